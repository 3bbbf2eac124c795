"""Why a pod does not run, in one sentence: by what its containers, kubelet and the scheduler report."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from isthmus.model.event import Event
from isthmus.model.meta import HasMeta, condition
from isthmus.model.pod import ContainerStatus, Pod, PodCondition, Terminated

PATIENCE: Final = 15.0
"""Seconds after which it is worth telling that something is still not there."""

UNCREATED: Final = "pods cannot be created"
"""The text if Kubernetes refuses pods: by a quota, an admission webhook, a security policy."""

_ON_THE_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
_MAX_CHARS: Final = 400


class Trouble(NamedTuple):
    """What is wrong and needs a user, or what is merely still to come; both empty if all is well."""

    wrong: str = ""
    missing: str = ""


def of_pods(pods: Iterable[Pod], *, now: datetime) -> Trouble:
    """Find what keeps pods from being ready: the first thing that is wrong, else the first that is not ready."""
    told = [_of_pod(pod, now) for pod in sorted(pods, key=lambda it: it.metadata.name)]
    return Trouble(
        next((it.wrong for it in told if it.wrong), ""), next((it.missing for it in told if it.missing), "")
    )


def _of_pod(pod: Pod, now: datetime) -> Trouble:
    ready = condition(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return Trouble()
    name = f"pod {pod.metadata.name}"
    if pod.leaving:
        return Trouble(missing=f"{name} is being replaced")
    if (scheduled := _refused(pod)) is not None:
        unplaced = f"{name} cannot be scheduled: {_short(scheduled.message)}"
        return Trouble(missing=unplaced) if is_new(pod, now) else Trouble(wrong=unplaced)
    if _has_done_its_work(pod):
        return Trouble(missing=f"{name} has completed and is ending")
    for wrong in of_containers(pod):
        return Trouble(wrong=f"{name}: {wrong}")
    return Trouble(missing=f"{name} is not ready yet")


def uncreated(events: Iterable[Event]) -> str:
    """Why the pods of a workload are refused, by what its controller says of them; empty if they are not."""
    told: dict[str, Event] = {}
    for event in sorted(events, key=_moment):
        told[event.reason] = event
    refused, made = told.get("FailedCreate"), told.get("SuccessfulCreate")
    if refused is None or (made is not None and _moment(made) >= _moment(refused)):
        return ""
    return _short(refused.message.rpartition("failed error: ")[2])


def _moment(event: Event) -> float:
    return event.at.timestamp() if event.at else 0.0


def is_new(found: HasMeta, now: datetime) -> bool:
    """Whether an object is so young that what it needs may still be on its way, such as its volumes."""
    made = found.metadata.creation_timestamp
    return made is not None and (now - made).total_seconds() < PATIENCE


def turns(pods: Iterable[Pod], *, now: datetime) -> bool:
    """Whether something that is merely missing becomes wrong with time, without an event."""
    return any(_refused(pod) is not None and is_new(pod, now) for pod in pods)


def _refused(pod: Pod) -> PodCondition | None:
    """Find what the Kubernetes scheduler says of a pod that no node takes."""
    found = condition(pod.status.conditions, "PodScheduled")
    return found if found and found.status == "False" and found.reason == "Unschedulable" else None


def _has_done_its_work(pod: Pod) -> bool:
    """Whether every container has ended well; kubelet ends the side-cars then, which is not a failure."""
    ends = [it.state.terminated for it in pod.status.container_statuses]
    return bool(ends) and all(it is not None and not it.exit_code and not it.signal for it in ends)


def of_containers(pod: Pod) -> Iterator[str]:
    """What is wrong with containers, the earliest first: later ones may wait for it."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = _end(status)
        waiting = status.state.waiting
        if ended and not status.ready:
            yield f"container {status.name} ended with {_how(ended)}"
        elif waiting and waiting.reason and waiting.reason not in _ON_THE_WAY:
            yield f"container {status.name}: {waiting.reason}: {_short(waiting.message)}".removesuffix(": ")


def _end(status: ContainerStatus) -> Terminated | None:
    """How a container ended that should run; one that did its work ends with 0."""
    ended = status.state.terminated or status.last_state.terminated
    return ended if ended and (ended.exit_code or ended.signal) else None


def _how(ended: Terminated) -> str:
    code = f"signal {ended.signal}" if ended.signal else f"{ended.exit_code}"
    return (
        f"{code}: {_short(ended.message)}" if ended.message.strip() else f"{code} ({ended.reason or 'no reason'})"
    )


def _short(text: str) -> str:
    """Make one line of a text, with its end: that is where programs say what is wrong."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else f"…{line[-_MAX_CHARS:]}"
