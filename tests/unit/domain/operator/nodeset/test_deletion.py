"""When a deleted NodeSet may go."""

from collections.abc import Sequence
from typing import Any

from isthmus.domain.operator.nodeset.deletion import finalizers
from isthmus.model.slurm import Reservation
from isthmus.names import DRAIN_FINALIZER, RESERVATION_FINALIZER
from tests.unit.domain.operator.nodeset.views import nodeset, pod, view

OTHER = "example.org/kept"
SCHEDULED = {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2027-01-01T00:00:00Z"}}
OURS = Reservation(name="SlurmOperatorMaint-worker")


def kept(*there: str, pods: int = 0, deleted: bool = True, **more: Any) -> Sequence[str]:
    spec = more.pop("spec", {})
    of = nodeset(1, deleted=deleted, finalizers=there, **spec)
    return finalizers(view(*map(pod, range(pods)), of=of, **more))


def test_every_nodeset_waits_for_its_nodes() -> None:
    assert kept(OTHER, deleted=False) == (OTHER, DRAIN_FINALIZER)
    assert kept(OTHER, DRAIN_FINALIZER, deleted=False) == (OTHER, DRAIN_FINALIZER)


def test_one_with_a_schedule_waits_for_its_reservation_too() -> None:
    found = kept(DRAIN_FINALIZER, deleted=False, spec={"updateStrategy": SCHEDULED})
    assert found == (DRAIN_FINALIZER, RESERVATION_FINALIZER)


def test_it_stays_while_there_are_pods() -> None:
    assert kept(DRAIN_FINALIZER, OTHER, pods=1) == (DRAIN_FINALIZER, OTHER)
    assert kept(DRAIN_FINALIZER, OTHER) == (OTHER,)


def test_without_slurm_it_waits() -> None:
    assert kept(DRAIN_FINALIZER, pods=1, in_touch=False) == (DRAIN_FINALIZER,)


def test_nothing_is_added_to_what_is_being_deleted() -> None:
    assert kept(OTHER, pods=2) == (OTHER,)


def test_a_reservation_is_waited_for_until_it_is_surely_gone() -> None:
    there = (RESERVATION_FINALIZER,)
    assert kept(*there) == there
    assert kept(*there, reservations=(OURS,)) == there
    assert kept(*there, reservations=(), in_touch=False) == there
    assert kept(*there, reservations=()) == ()
    assert kept(*there, reservations=(Reservation(name="of others"),)) == ()


def test_another_strategy_needs_no_reservation() -> None:
    assert kept(RESERVATION_FINALIZER, deleted=False, reservations=()) == (DRAIN_FINALIZER,)
