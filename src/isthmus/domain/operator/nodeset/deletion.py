"""When the finalizers of a deleted NodeSet are removed: when its nodes have been drained.

finalizer      goes when
drain          no pod is left
reservation    Slurm has no reservation of ours

Where the Controller is gone or the namespace is being deleted, nothing can drain them: `operator.nodesets.sync`
then takes both finalizers away at once.
"""

from isthmus import names
from isthmus.domain.operator.nodeset.reservation import our_reservation
from isthmus.domain.operator.nodeset.view import View


def finalizers(view: View) -> tuple[str, ...]:
    """The finalizers that the NodeSet should have, those of others included, in their order."""
    there = view.nodeset.metadata.finalizers
    wanted = {
        names.DRAIN_FINALIZER: _needs_draining(view),
        names.RESERVATION_FINALIZER: _needs_clearing(view),
    }
    kept = [it for it in there if wanted.get(it, True)]
    return (*kept, *(it for it, needed in wanted.items() if needed and it not in there and not view.deleting))


def _needs_draining(view: View) -> bool:
    if not view.deleting:
        return True
    return bool(view.pods)


def _needs_clearing(view: View) -> bool:
    """Whether there is a reservation in Slurm, or may be one while Slurm does not answer."""
    scheduled = view.nodeset.spec.update_strategy.type == "ScheduledUpdate" and not view.deleting
    may_be_there = names.RESERVATION_FINALIZER in view.nodeset.metadata.finalizers
    surely_gone = view.slurm_in_touch and view.reservations is not None and our_reservation(view) is None
    return scheduled or (may_be_there and not surely_gone)
