"""What a NodeSet's status says: counts of pods and of Slurm nodes, and what is missing or wrong in a sentence.

Counts of Slurm's are those of its last answer: while it does not answer, they stay, and SlurmReachable says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.kube import conditions, podtrouble
from isthmus.domain.operator.nodeset.view import View
from isthmus.model.meta import Condition, condition
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode

DEVICES_KNOWN: Final = "DevicesKnown"
"""A condition that is there only while it is false."""

MIRRORED: Final = "SlurmNodeState"
"""How conditions of pods begin that mirror the state of their Slurm nodes."""

_BASE: Final = {
    "ALLOCATED": "Allocated",
    "DOWN": "Down",
    "ERROR": "Error",
    "FUTURE": "Future",
    "IDLE": "Idle",
    "MIXED": "Mixed",
    "UNKNOWN": "Unknown",
}
_FLAGS: Final = {
    "COMPLETING": "Completing",
    "DRAIN": "Drain",
    "FAIL": "Fail",
    "INVALID": "Invalid",
    "INVALID_REG": "InvalidReg",
    "MAINTENANCE": "Maintenance",
    "NOT_RESPONDING": "NotResponding",
    "UNDRAIN": "Undrain",
}
_TOLD: Final = _BASE | _FLAGS
_SHOWN: Final = 3


class Trouble(msgspec.Struct, frozen=True):
    """What prevents progress."""

    wrong: tuple[str, ...] = ()
    """What somebody has to see to."""
    slurm: str = ""
    """Why Slurm cannot be asked; empty if it can."""


def fields(view: View, *, selector: str, victims: Sequence[str] = ()) -> dict[str, Any]:
    """Make the fields of the status, but for its conditions."""
    pods = [pod for pod in view.pods if pod.pod.status.phase]
    live = [pod for pod in pods if not pod.leaving]
    available = sum(pod.available for pod in live)
    made: dict[str, Any] = {
        "desired": view.desired,
        "replicas": len(pods),
        "updatedReplicas": sum(not view.outdated(pod) for pod in live),
        "readyReplicas": sum(pod.ready for pod in live),
        "availableReplicas": available,
        "unavailableReplicas": max(0, view.desired - available),
        "nodeSetHash": view.hash,
        "selector": selector,
        **_slurm_counts(view),
    }
    if view.nodeset.spec.pin_to_node:
        made["ordinalToNode"] = _pins(view)
    if victims:
        made["victims"] = list(victims)
    return made


def held(view: View, trouble: Trouble, *, also: Iterable[Condition | None] = ()) -> tuple[Condition, ...]:
    """Make the conditions; `also` are further ones, None where there is nothing to report."""
    missing = _missing(view)
    # What pods wait for needs somebody once it has had its time; until then it may come by itself.
    wrong = (*trouble.wrong, missing) if missing and _stuck(view) else trouble.wrong
    summary = conditions.summary(wrong=_sentence(wrong), missing=missing, settled=_settled(view))
    if view.nodeset.elastic and missing and not wrong and not view.deleting:
        # Nodes that come and go are what it is for: it is as ready as one that stands still.
        ready = conditions.yes(conditions.READY, "AsExpected", missing)
        summary = (ready, *summary[1:])
    return (
        *summary,
        conditions.no(conditions.SLURM_REACHABLE, "OutOfTouch", trouble.slurm)
        if trouble.slurm
        else conditions.yes(conditions.SLURM_REACHABLE, "Answers"),
        *_devices(view),
        *(it for it in also if it is not None),
    )


def _devices(view: View) -> Iterator[Condition]:
    """Report the nodes whose devices Slurm can only count, as their pods reported."""
    told = Counter(
        pod.slurm.comment.removeprefix(names.DEVICES_COMMENT)
        for pod in view.pods
        if pod.slurm is not None and pod.slurm.comment.startswith(names.DEVICES_COMMENT)
    )
    if told:
        (why, _), count = told.most_common(1)[0], told.total()
        yield conditions.no(DEVICES_KNOWN, "OnlyCounted", f"{count} nodes; {why}")


def hopeless(wrong: str) -> tuple[Condition, ...]:
    """Make the conditions of a NodeSet for which nothing can be done until somebody changes something."""
    return conditions.summary(wrong=wrong, settled="")


def mirrored(record: SlurmNode | None) -> tuple[tuple[str, str], ...]:
    """Which conditions a pod should have that mirror Slurm: their types, and the reason that Slurm gives."""
    if record is None:
        return ()
    told = sorted({_TOLD[state] for state in record.state if state in _TOLD})
    return tuple((f"{MIRRORED}{it}", record.reason) for it in told)


def shown(pod: Pod) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((it.type, it.message) for it in pod.status.conditions if it.type.startswith(MIRRORED)))


def _slurm_counts(view: View) -> dict[str, int]:
    if not view.slurm_in_touch:
        before = view.nodeset.status
        return {
            "slurmIdle": before.slurm_idle,
            "slurmAllocated": before.slurm_allocated,
            "slurmDown": before.slurm_down,
            "slurmDrain": before.slurm_drain,
        }
    counts: Counter[str] = Counter()
    for pod in view.pods:
        counts["slurmDrain"] += pod.draining
        counts["slurmDown"] += pod.slurm_has("DOWN", "ERROR", "FAIL")
        counts["slurmAllocated"] += pod.slurm_has("ALLOCATED", "MIXED")
        counts["slurmIdle"] += pod.slurm_has("IDLE") and not pod.draining
    return {name: counts[name] for name in ("slurmIdle", "slurmAllocated", "slurmDown", "slurmDrain")}


def _pins(view: View) -> dict[str, str]:
    """Remember where each ordinal runs; a pod that is away for a moment keeps its place while there is one."""
    before = {
        ordinal: node for ordinal, node in view.nodeset.status.ordinal_to_node.items() if node in view.kube_nodes
    }
    now = {
        str(pod.ordinal): pod.node_name
        for pod in view.pods
        if pod.ordinal is not None and pod.node_name and pod.pod.status.phase == "Running"
    }
    return {**before, **now}


def _missing(view: View) -> str:
    """What has to come before all is as it should be; empty if nothing has to."""
    live = [pod for pod in view.pods if not pod.leaving]
    kept = [pod for pod in live if pod.name not in view.unwanted]
    if view.deleting:
        return f"{len(view.pods)} pods are drained and deleted before this NodeSet is deleted"
    if len(kept) < view.desired:
        return f"{len(kept)} of {view.desired} pods exist{_waiting(view)}"
    available = sum(pod.available for pod in kept)
    if available < min(len(kept), view.desired):
        return f"{available} of {view.desired} nodes are ready{_waiting(view)}"
    if len(live) > view.desired:
        return f"{len(live) - view.desired} pods are deleted as soon as their nodes are drained"
    outdated = sum(view.outdated(pod) for pod in live)
    if outdated and view.nodeset.spec.update_strategy.type == "RollingUpdate":
        return f"{len(live) - outdated} of {view.desired} pods are up to date"
    return ""


def _waiting(view: View) -> str:
    """Why pods cannot be placed or started: what users look for first."""
    told = Counter(
        found.message
        for pod in _unready(view)
        if (found := condition(pod.status.conditions, "PodScheduled")) and found.status == "False"
    )
    if not told:
        return f"; {wrong}" if (wrong := _stuck(view)) else ""
    message, count = told.most_common(1)[0]
    return f"; {count} {'has' if count == 1 else 'have'} no place: {message}"


def _stuck(view: View) -> str:
    """What keeps a pod from starting and does not go away by itself."""
    return podtrouble.of_pods(_unready(view), now=view.now).wrong


def _unready(view: View) -> list[Pod]:
    return [it.pod for it in view.pods if not (it.ready or it.leaving or it.name in view.unwanted)]


def _settled(view: View) -> str:
    if view.nodeset.elastic:
        return f"{view.desired} of {view.nodeset.spec.replicas} nodes are powered up"
    if not view.desired:
        return "no nodes are requested"
    return f"{view.desired} of {view.desired} nodes are ready"


def _sentence(wrong: Sequence[str]) -> str:
    """Join what is wrong, as far as a person reads."""
    found = list(dict.fromkeys(wrong))
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
