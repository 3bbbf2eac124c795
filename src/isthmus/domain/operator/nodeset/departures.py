"""Which worker pods are deleted and why, and what has to happen in Slurm before.

    who goes      for good: what is too many (`victims`), has no place, or goes with the NodeSet
                  to come back: what is old (`rollout`), what does not come into service (`repair`)
    what it takes drain, wait for the jobs as long as the policy says (`patience`), delete the pod

The order of the actions matters: protection comes before a node takes jobs again, and goes after it has stopped.
No pod is deleted by this alone: the runner reads Slurm once more before it deletes one.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.elastic.decision import is_off
from isthmus.domain.operator.nodeset import patience
from isthmus.domain.operator.nodeset.actions import (
    Action,
    DeletePod,
    Drain,
    Protect,
    ReplacementCause,
    Undrain,
    Unprotect,
)
from isthmus.domain.operator.nodeset.drains import (
    UNREGISTERED_GRACE,
    Cause,
    drains,
    is_left_behind,
    may_go,
    seconds_since_start,
)
from isthmus.domain.operator.nodeset.protection import protection
from isthmus.domain.operator.nodeset.repair import Repair, to_repair
from isthmus.domain.operator.nodeset.reservation import maintenance
from isthmus.domain.operator.nodeset.rollout import to_update
from isthmus.domain.operator.nodeset.victims import victims
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import Condition

_POWERED_DOWN: Final = "Slurm has powered its node down"
_COMING_BACK: Final[Mapping[Cause, ReplacementCause]] = {"update": "rollout", "restart": "repair"}


class Note(msgspec.Struct, frozen=True):
    """An Event, of type Warning."""

    reason: str
    note: str


class Departures(msgspec.Struct, frozen=True):
    """What to do, in this order; which pods were chosen; what to report; when to look again if nothing changes."""

    actions: tuple[Action, ...] = ()
    victims: tuple[str, ...] = ()
    """For the status: the pods to delete, until they are gone or needed again."""
    leaving_for_good: tuple[str, ...] = ()
    """Those of them that no other pod replaces."""
    notes: tuple[Note, ...] = ()
    condition: Condition | None = None
    """Of the maintenance reservation."""
    look_again: float | None = None
    wants_jobs: bool = False
    """Jobs have to be read first: nothing else here counts until they are in the View."""


def departures(view: View, *, propagated: Collection[str] = ()) -> Departures:
    """`propagated` are types of conditions of Kubernetes nodes that make good reasons in Slurm."""
    departing, repair = _departing(view)
    if patience.unmarked(view, departing):
        return Departures(wants_jobs=True)
    late = patience.overdue(view, departing)
    lost = patience.taken_back(view)
    if late.wants_jobs or lost.wants_jobs:
        return Departures(wants_jobs=True)
    shut = drains(view, departing, propagated=propagated)
    opening = {name for it in shut if isinstance(it, Undrain) for name in it.slurm_names}
    protected = protection(view, opening)
    going = [pod for pod in view.pods if pod.name in departing and not pod.leaving and may_go(view, pod)]
    gone = {pod.name for pod in going}
    plan = maintenance(view)
    reasons = {name: _why(cause, repair, name) for name, cause in departing.items()}
    reasons |= {pod.name: _POWERED_DOWN for pod in going if pod.slurm and is_off(pod.slurm)}
    return Departures(
        actions=(
            *(it for it in protected if isinstance(it, Protect)),
            *(it for it in shut if isinstance(it, Undrain)),
            *(it for it in shut if isinstance(it, Drain)),
            *late.actions,
            *lost.actions,
            *plan.actions,
            *(it for it in protected if isinstance(it, Unprotect) and it.name not in gone),
            *(_delete(pod, departing[pod.name], reasons[pod.name]) for pod in going),
            *patience.marks(view, departing),
        ),
        victims=tuple(departing),
        leaving_for_good=tuple(name for name, cause in departing.items() if cause not in _COMING_BACK),
        notes=_notes(repair, late, lost),
        condition=plan.condition,
        look_again=_soonest(
            late.look_again, lost.look_again, plan.look_again, repair.look_again, *_until_sure(view, departing)
        ),
    )


def _departing(view: View) -> tuple[dict[str, Cause], Repair]:
    """Find the pods to delete, first those without a replacement, each for the first cause that applies."""
    ends = patience.deadlines(view)
    departing: dict[str, Cause] = {}
    present = {pod.name for pod in view.pods if not pod.leaving}
    for name in sorted(view.unwanted & present):
        departing[name] = "deletion" if view.deleting else "scale-in"
    departing |= dict.fromkeys(victims(view, ends), "deletion" if view.deleting else "scale-in")
    updated = to_update(view, departing, ends)
    repair = to_repair(view, {*departing, *updated})
    departing |= dict.fromkeys(updated, "update")
    departing |= dict.fromkeys(repair.pods, "restart")
    return departing, repair


def _until_sure(view: View, departing: Collection[str]) -> Iterator[float]:
    """When it is sure that a pod which Slurm does not know, though it is ready, will not register any more."""
    for pod in view.pods:
        if pod.name in departing and pod.ready and pod.slurm is None and view.slurm_in_touch:
            left = UNREGISTERED_GRACE - seconds_since_start(view, pod)
            if left > 0:
                yield left


def _soonest(*pauses: float | None) -> float | None:
    return min((it for it in pauses if it is not None), default=None)


def _delete(pod: PodView, cause: Cause, why: str) -> DeletePod:
    if why == _POWERED_DOWN:
        event = "PoweredDown"
    elif cause == "restart":
        event = "SlurmNodeNotRegistered" if pod.slurm is None else "SlurmNodeStuck"
    else:
        event = "RollingUpdate" if cause == "update" else "ScalingDown"
    return DeletePod(
        pod.name,
        pod.uid,
        why,
        event=event,
        cause=_COMING_BACK.get(cause),
        left_behind=is_left_behind(pod),
        version="" if pod.node_name else pod.pod.metadata.resource_version,
    )


def _why(cause: Cause, repair: Repair, name: str) -> str:
    return {
        "scale-in": "the NodeSet was scaled in",
        "deletion": "its NodeSet is being deleted",
        "update": "its specification changed",
        "restart": repair.pods.get(name, ""),
    }[cause]


def _notes(repair: Repair, late: patience.Overdue, lost: patience.Overdue) -> tuple[Note, ...]:
    complaint = (Note("SlurmStateLost", repair.complaint),) if repair.complaint else ()
    waiting = (Note("DrainOverdue", late.note),) if late.note else ()
    leaving = (Note("MachineTakenBack", lost.note),) if lost.note else ()
    return (*complaint, *waiting, *leaving)
