"""What is done for a NodeSet now: one list of actions, in the order in which they are carried out.

    Kubernetes alone    finalizers; pods that are missing; pods in which no job can be
    with Slurm          records of nodes that are gone
                        the choice of who goes, saved before anything is done to them
                        owners of their claims; those of them that have no node
                        drain, wait for jobs, delete (`departures`)
                        features and topology (`marks`)

What needs Kubernetes alone is done even if Slurm does not answer. A choice of who goes is kept, so it is not made
by what Slurm said at the last poll: `needs` says what has to be read first. With that, it is decided again.
"""

from collections.abc import Collection, Sequence
from typing import Final, Literal

import msgspec

from isthmus import names
from isthmus.domain.kube.podtrouble import PATIENCE, turns
from isthmus.domain.operator.nodeset import claims
from isthmus.domain.operator.nodeset.actions import (
    Action,
    CreatePods,
    DeletePod,
    DeleteRecord,
    SaveVictims,
    SetFinalizers,
)
from isthmus.domain.operator.nodeset.deletion import finalizers
from isthmus.domain.operator.nodeset.departures import Departures, Note, departures
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.domain.operator.nodeset.marks import revisions
from isthmus.domain.operator.nodeset.plan import Plan
from isthmus.domain.operator.nodeset.records import records
from isthmus.domain.operator.nodeset.shape import shape_of
from isthmus.domain.operator.nodeset.status import Trouble
from isthmus.domain.operator.nodeset.victims import chosen_before
from isthmus.domain.operator.nodeset.view import View
from isthmus.model.meta import Condition

Need = Literal["nodes", "jobs", "reservations"]

_LOOK_AGAIN_S: Final = 1.0


class Decision(msgspec.Struct, frozen=True):
    """What to do, in this order; what to report; when to look again even if nothing changes."""

    actions: tuple[Action, ...] = ()
    needs: Need | None = None
    """What has to be read from Slurm before the rest can be decided."""
    final: bool = False
    """The NodeSet itself changes by this: it is decided again when the cache shows it, and not reported now."""
    victims: tuple[str, ...] = ()
    """For the status: the pods to delete, until they are gone or needed again."""
    notes: tuple[Note, ...] = ()
    trouble: Trouble = Trouble()
    condition: Condition | None = None
    """Of the maintenance reservation."""
    look_again: float | None = None


def decide(view: View, planned: Plan, *, propagated: Collection[str] = ()) -> Decision:
    """`propagated` are types of conditions of Kubernetes nodes that make good reasons in Slurm."""
    present, wanted = view.nodeset.metadata.finalizers, finalizers(view)
    if not view.deleting and not set(wanted) <= set(present):
        # Before the first pod is there: with it, the NodeSet cannot go without draining it.
        return Decision((SetFinalizers(wanted),), final=True)
    forgotten = records(view, shape_of(view.nodeset) if view.has_template else None)
    slots = _slots(view, planned, forgotten)
    create = (CreatePods(slots),) if slots and not view.create_after else ()
    alone = (*create, *planned.delete)
    if _may_have_reservation(view) and view.slurm_in_touch and view.reservations is None:
        return Decision(alone, needs="reservations")
    if (view.deleting or view.reservations is not None) and set(present) - set(wanted):
        return Decision((*alone, *forgotten, SetFinalizers(wanted)), final=True)
    leaving = departures(view, propagated=propagated)
    if needs := _unread(view, leaving):
        return Decision(alone, needs=needs)
    return Decision(
        actions=(*alone, *forgotten, *_departure_actions(view, leaving), *_untold(view)),
        victims=leaving.victims,
        notes=leaving.notes,
        trouble=_trouble(view, planned, leaving),
        condition=leaving.condition,
        look_again=_soonest(
            view.create_after if slots and view.create_after else None, leaving.look_again, planned.look_again
        ),
    )


def until_settled(view: View) -> float | None:
    """In how many seconds to look again for what no event reports; None if there is nothing of that kind."""
    waits = any(pod.ready and not pod.available for pod in view.pods)
    # Slurm answers, but has not since we wrote to it: an answer that shows nothing new wakes nobody.
    if waits or (view.slurm_answers and not view.slurm_in_touch):
        return _LOOK_AGAIN_S
    # Whether a pod that finds no node has been given time enough to find one.
    return PATIENCE if turns((pod.pod for pod in view.pods), now=view.now) else None


def _slots(view: View, planned: Plan, forgotten: Sequence[DeleteRecord]) -> tuple[Identity, ...]:
    """The pods that can be created now."""
    if not (view.has_template and view.has_keys):
        return ()
    # A record that does not fit has to go before a pod registers under its name. It is tried once.
    held = {it.slurm_name for it in forgotten} - view.deletion_tried
    slots = tuple(it for it in planned.create if it.hostname not in held)
    if not view.nodeset.spec.volume_claim_templates:
        return slots
    # A pod whose claim is on its way out would wait for it for ever.
    alive = [pod.uid for pod in view.pods]
    return tuple(it for it in slots if not claims.blocked(view.nodeset, it, view.claims, alive=alive))


def _may_have_reservation(view: View) -> bool:
    scheduled = view.nodeset.spec.update_strategy.type == "ScheduledUpdate"
    return scheduled or names.RESERVATION_FINALIZER in view.nodeset.metadata.finalizers


def _unread(view: View, leaving: Departures) -> Need | None:
    if leaving.wants_jobs:
        return "jobs"
    new = not set(leaving.victims) <= chosen_before(view)
    # A node that was idle at the last poll may have a job by now.
    return "nodes" if new and view.slurm_in_touch and not view.slurm_nodes_read else None


def _departure_actions(view: View, leaving: Departures) -> tuple[Action, ...]:
    for_good = frozenset() if view.deleting else frozenset(leaving.leaving_for_good)
    return (
        *((SaveVictims(leaving.victims),) if leaving.victims != view.nodeset.status.victims else ()),
        *claims.retention(view.nodeset, view.claims, view.pods, going=for_good),
        # A pod without a node can be deleted at once.
        *(it for it in leaving.actions if _is_placeless(it)),
        *(it for it in leaving.actions if not _is_placeless(it)),
    )


def _is_placeless(action: Action) -> bool:
    return isinstance(action, DeletePod) and bool(action.version)


def _untold(view: View) -> tuple[Action, ...]:
    """An update that Slurm did not take is not repeated for a while: an older Slurm knows no topology."""
    return tuple(it for it in revisions(view) if it not in view.revision_tried)


def _trouble(view: View, planned: Plan, leaving: Departures) -> Trouble:
    warnings = (it.note for it in leaving.notes)
    return Trouble((*view.wrong, *planned.complaints, *warnings), slurm=view.slurm_trouble)


def _soonest(*pauses: float | None) -> float | None:
    return min((it for it in pauses if it is not None), default=None)
