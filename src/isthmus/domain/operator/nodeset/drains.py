"""Which Slurm nodes are drained, and which pods can be deleted without losing a job.

    wanted in Kubernetes        in Slurm now                       what is done
    pod is to go, or goes       open                               drain, all that go for one cause at once
    pod goes, not by us         starts                             nothing: the next pod takes its place
    node or pod is cordoned     open                               drain, with what Kubernetes says as the reason
    its machine is to go        open                               drain, with who removes it as the reason
    pod is to go or cordoned    shut by somebody else, or down     nothing: their reason stays
    pod is to stay              drained by us, its pod is ready    undrain
    pod is to stay              shut by somebody else              nothing

A drain of ours is known by its reason. A record that says DRAIN and is not busy proves that no job can come, for
slurmctld writes both at once. A record that says IDLE alone proves nothing: a job may have begun since.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from isthmus import names
from isthmus.domain.elastic.decision import is_off, phase_of
from isthmus.domain.kube.removal import Notice
from isthmus.domain.operator.nodeset.actions import Drain, DrainCause, Undrain
from isthmus.domain.operator.nodeset.view import BUSY_STATES, PodView, View
from isthmus.model.meta import condition
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode

Cause = Literal["scale-in", "update", "restart", "deletion"]
"""Why a pod is deleted."""

_DRAIN_CAUSES: Final[Mapping[Cause | None, DrainCause]] = {
    "scale-in": "scale_in",
    "update": "rollout",
    "restart": "repair",
    "deletion": "deletion",
    None: "terminating",
}

OURS: Final = names.DRAIN_REASON_PREFIX
"""Reasons that begin with this are ours; the prefix is slurm-operator's, whose drains we take over."""

UNREGISTERED_GRACE: Final = 60.0
"""A ready pod that Slurm does not know may be about to register, for so many seconds after its start."""

_LEAVING: Final = "pending termination for "
_TERMINATING: Final = "terminating"
_MAX_REASON_CHARS: Final = 256
_ESCAPE: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


def is_ours(reason: str) -> bool:
    """Whether a reason in Slurm was written by us."""
    return reason.startswith(OURS.rstrip())


def says_leaving(reason: str) -> bool:
    """Whether a reason of ours says that the node is removed, and not only cordoned."""
    return is_ours(reason) and (_LEAVING in reason or reason.endswith(_TERMINATING))


def is_shut(node: SlurmNode) -> bool:
    """Whether Slurm starts no jobs there, for whatever reason."""
    states = set(node.state)
    return ("DRAIN" in states and "UNDRAIN" not in states) or not states.isdisjoint(("DOWN", "FAIL"))


def is_occupied(node: SlurmNode) -> bool:
    """Whether a job of Slurm is there, or has not been cleaned up after.

    When a node is down because its slurmd does not answer, Slurm has ended its jobs or put them back into the
    queue. It stays COMPLETING, since no slurmd is left to report its end.
    """
    states = frozenset(node.state)
    if {"DOWN", "NOT_RESPONDING"} <= states:
        return False
    return not states.isdisjoint(BUSY_STATES)


def is_free(node: SlurmNode) -> bool:
    """Whether the node has no job and gets none; of one that Slurm has stopped, that the pod it has gets none."""
    return (is_shut(node) or is_off(node)) and not is_occupied(node)


def may_go(view: View, pod: PodView) -> bool:
    """Whether no job can be lost with this pod, by what is known. Without Slurm, nothing is known."""
    if pod.finished or not pod.node_name:
        return True
    if not view.slurm_in_touch:
        return False
    if pod.slurm is None:
        return not pod.ready or seconds_since_start(view, pod) >= UNREGISTERED_GRACE
    return is_free(pod.slurm) or is_left_behind(pod)


def is_left_behind(pod: PodView) -> bool:
    """Whether Slurm starts a node anew, and its pod is from before: Slurm never accepts the slurmd in it.

    A pod that starts with its node is ready only when the node is up. What Slurm said may be from before that, so
    it is asked once more before the pod is deleted.
    """
    return pod.ready and pod.slurm is not None and phase_of(pod.slurm) == "starting"


def seconds_since_start(view: View, pod: PodView) -> float:
    """For how long a pod has been running; 0 if it does not say."""
    started = pod.pod.status.start_time
    return (view.now - started).total_seconds() if started else 0.0


def drains(
    view: View, departing: Mapping[str, Cause], *, propagated: Collection[str] = ()
) -> tuple[Drain | Undrain, ...]:
    """Decide which nodes to drain and which to resume. `departing` are pods to delete, by name."""
    if not view.slurm_in_touch:
        return ()
    going: dict[Cause | None, list[PodView]] = {}
    resting: dict[str, list[str]] = {}
    back: list[str] = []
    for pod in view.pods:
        if pod.slurm is None:
            continue
        cause = departing.get(pod.name)
        if cause is not None or pod.leaving:
            if _has_to_be_told(pod.slurm) and not is_left_behind(pod) and not _is_started_anew(pod, cause):
                going.setdefault(cause, []).append(pod)
        elif reason := _resting_reason(pod, propagated):
            if _wants_reason(pod.slurm, reason):
                resting.setdefault(reason, []).append(pod.slurm_name)
        elif _is_to_come_back(pod, pod.slurm):
            back.append(pod.slurm_name)
    return (
        *((Undrain(tuple(back)),) if back else ()),
        *(
            Drain(_names(pods), _leaving_reason(view, pods, cause), _DRAIN_CAUSES[cause])
            for cause, pods in going.items()
        ),
        *(Drain(tuple(found), reason, "cordon") for reason, found in resting.items()),
    )


def cordon_reason(pod: PodView, node: Node, propagated: Collection[str]) -> str:
    """The reason in Slurm for a cordoned node: its administrator's, that of its conditions, or a general one."""
    if told := sanitised(node.metadata.annotations.get(names.NODE_CORDON_REASON_ANNOTATION, "")):
        return f"{OURS}{told}"
    found = (condition(node.status.conditions, type_) for type_ in propagated)
    held = [f"({it.reason}: {it.message})" for it in found if it and it.status == "True"]
    if told := sanitised("; ".join(held)):
        return f"{OURS}{told}"
    return f"{OURS}Node ({node.metadata.name}) was cordoned, Pod ({pod.key}) must be cordoned"


def notice_reason(pod: PodView, notice: Notice) -> str:
    """The reason in Slurm for a node whose machine is about to go."""
    return f"{OURS}Node ({pod.node_name}) {notice.what}, Pod ({pod.key}) must be cordoned"


def sanitised(text: str) -> str:
    """One printable line of at most 256 characters."""
    plain = "".join(it if it.isprintable() else " " for it in _ESCAPE.sub("", text))
    return " ".join(plain.split())[:_MAX_REASON_CHARS].rstrip()


def held_reason(pod: PodView) -> str:
    """Why a node is to take no jobs, as far as its pod and its machine tell; empty if it may."""
    if pod.leaving:
        return f"{OURS}Pod ({pod.key}) is {_TERMINATING}"
    return _resting_reason(pod, propagated=())


def _resting_reason(pod: PodView, propagated: Collection[str]) -> str:
    """Why a pod that stays takes no jobs; empty if it should take some."""
    if pod.notice:
        return notice_reason(pod, pod.notice)
    if pod.kube_node is not None and pod.kube_cordoned:
        return cordon_reason(pod, pod.kube_node, propagated)
    return f"{OURS}Pod ({pod.key}) was cordoned" if pod.cordoned else ""


def _leaving_reason(view: View, pods: Iterable[PodView], cause: Cause | None) -> str:
    """Why nodes are removed, or (None) are being removed already: one text for all, for one request."""
    how = f"{_LEAVING}{cause}" if cause else _TERMINATING
    first, *others = pods
    if others:
        return f"{OURS}Pods of NodeSet ({view.nodeset.metadata.key}) are {how}"
    return f"{OURS}Pod ({first.key}) is {how}"


def _has_to_be_told(node: SlurmNode) -> bool:
    """Whether a node to remove is open, or drained with a reason of ours that says less."""
    if "DRAIN" in node.state and "UNDRAIN" not in node.state:
        return is_ours(node.reason) and not says_leaving(node.reason)
    return not is_shut(node) and not is_off(node)


def _is_started_anew(pod: PodView, cause: Cause | None) -> bool:
    """Whether a pod goes by no doing of ours, and its node waits for the next one: no job has begun in it.

    A drain would give back the job for which it starts, which the whole gang would wait for then.
    """
    return cause is None and pod.slurm is not None and phase_of(pod.slurm) == "starting"


def _wants_reason(node: SlurmNode, reason: str) -> bool:
    if "DRAIN" in node.state and "UNDRAIN" not in node.state:
        return is_ours(node.reason) and node.reason != reason
    return not is_shut(node)


def _is_to_come_back(pod: PodView, node: SlurmNode) -> bool:
    """Whether we drained a node that stays, and that has a slurmd to run jobs."""
    return pod.draining and is_ours(node.reason) and pod.ready


def _names(pods: Iterable[PodView]) -> tuple[str, ...]:
    return tuple(pod.slurm_name for pod in pods)
