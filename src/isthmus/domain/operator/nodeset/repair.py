"""Nodes that do not come into service by themselves and get a new pod, at a bounded rate.

    Slurm does not know the node      its pod is ready and has run for a minute, so it should have registered
    the record does not fit           INVALID_REG: slurmd is not what the record says, and is turned away
    down, although its pod is ready   slurmctld gave it up; not where a person set it down

If most nodes of the whole cluster are unknown at once, slurmctld has lost its state, and to restart slurmd
everywhere would end every job that still runs. Then nothing is done, and people are told. Pods that ended are
replaced by `plan`; a slurmd that never registers is restarted by its startup probe.
"""

from collections.abc import Collection, Container, Iterable
from datetime import datetime
from typing import Final

import msgspec

from isthmus.domain.elastic.decision import is_off
from isthmus.domain.operator.nodeset.drains import (
    UNREGISTERED_GRACE,
    is_left_behind,
    is_occupied,
    is_ours,
    seconds_since_start,
)
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.domain.operator.nodeset.rollout import budget, staying
from isthmus.domain.operator.nodeset.view import PodView, Registration, View
from isthmus.model.meta import condition
from isthmus.model.pod import Pod

STUCK_GRACE: Final = 120.0
"""A node that is down gets so many seconds to come back by itself."""

_LOST_AGAIN: Final = 10.0
"""Seconds until it is judged again whether Slurm has lost its state."""

_BY_SLURM: Final = ("not responding", "unexpectedly rebooted", "low realmemory", "low cpus", "low socket", "gres/")
"""Reasons with which slurmctld itself sets a node down, in lower case; others come from administrators."""


class Repair(msgspec.Struct, frozen=True):
    """Which pods to restart and why, by name; or why none is, though some should be."""

    pods: dict[str, str] = {}
    complaint: str = ""
    look_again: float | None = None
    """In so many seconds, a node that could still come by itself will have had its time."""


def to_repair(view: View, departing: Collection[str]) -> Repair:
    """Choose the pods that are restarted now, within what may be away at a time."""
    if not view.slurm_in_touch or view.deleting:
        return Repair()
    placed = [pod for pod in staying(view, departing) if pod.node_name]
    settled = [pod for pod in placed if seconds_since_start(view, pod) >= UNREGISTERED_GRACE]
    unknown = {pod.name for pod in settled if pod.ready and pod.slurm is None}
    wrong = {pod.name: why for pod in settled if (why := _what_is_wrong(view, pod))}
    complaint = ""
    lost, nodes = len(unknown) + view.elsewhere.unknown, len(settled) + view.elsewhere.settled
    if unknown and lost > 1 and 2 * lost > nodes:
        complaint = (
            f"Slurm does not know {lost} of {nodes} nodes of the cluster, as if it had lost its state; they are "
            "not repaired, since jobs may run there: restore slurmctld's state, or delete pods to register them"
        )
        wrong = {name: why for name, why in wrong.items() if name not in unknown}
    room = budget(view, departing, besides=wrong).room
    pauses = [left for pod in placed if (left := _time_left(view, pod)) is not None]
    if complaint:
        pauses.append(_LOST_AGAIN)  # there are no events for nodes of other NodeSets
    return Repair(dict(list(wrong.items())[:room]), complaint, min(pauses, default=None))


def registration(pods: Iterable[Pod], *, known: Container[str], now: datetime) -> Registration:
    """Count pods of other NodeSets; `known` are the nodes that Slurm knows."""
    present = (it for it in pods if it.spec.node_name and not it.leaving and not it.finished)
    settled = [it for it in present if _has_had_time(it, now)]
    return Registration(len(settled), sum(_is_ready(it) and slurm_name(it) not in known for it in settled))


def _has_had_time(pod: Pod, now: datetime) -> bool:
    started = pod.status.start_time
    return started is not None and (now - started).total_seconds() >= UNREGISTERED_GRACE


def _is_ready(pod: Pod) -> bool:
    held = condition(pod.status.conditions, "Ready")
    return held is not None and held.status == "True"


def _what_is_wrong(view: View, pod: PodView) -> str:
    """What a new pod would fix; empty if nothing is wrong, or a new pod would not help."""
    if pod.slurm is None:
        return "Slurm does not know its node, though its slurmd runs" if pod.ready else ""
    if is_left_behind(pod):
        return "Slurm is starting its node again, and its slurmd is from before that"
    if is_occupied(pod.slurm) or is_off(pod.slurm):
        return ""
    if pod.slurm_has("INVALID_REG"):
        return f"Slurm does not accept its node: {pod.slurm.reason or 'it does not fit its record'}"
    if _is_given_up(pod) and _down_for(view, pod) >= STUCK_GRACE:
        return f"its node is down in Slurm, though its slurmd runs: {pod.slurm.reason or 'no reason given'}"
    return ""


def _time_left(view: View, pod: PodView) -> float | None:
    """In how many seconds a node that is not in service will be called wrong; None if it never will."""
    left = UNREGISTERED_GRACE - seconds_since_start(view, pod)
    if left > 0:
        return left if (pod.slurm is None and pod.ready) or pod.slurm_has("INVALID_REG") else None
    left = STUCK_GRACE - _down_for(view, pod)
    return left if _is_given_up(pod) and left > 0 else None


def _is_given_up(pod: PodView) -> bool:
    """Whether slurmctld, and no person, holds a node to be down whose slurmd runs."""
    return pod.ready and pod.slurm is not None and pod.slurm_has("DOWN") and _by_slurm(pod.slurm.reason)


def _down_for(view: View, pod: PodView) -> float:
    """For how many seconds a node has had its reason; 0 if Slurm does not say."""
    since = pod.slurm.reason_changed_at.value if pod.slurm else None
    return view.now.timestamp() - since if since else 0.0


def _by_slurm(reason: str) -> bool:
    return not reason or is_ours(reason) or any(it in reason.lower() for it in _BY_SLURM)
