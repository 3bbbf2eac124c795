"""The maintenance reservation of a ScheduledUpdate."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.nodeset.actions import DeleteReservation, SaveReservation
from isthmus.domain.operator.nodeset.reservation import Maintenance, maintenance, next_start
from isthmus.model.slurm import Number, Reservation
from tests.unit.domain.operator.nodeset.views import NOW, nodeset, pod, view

NAME = "SlurmOperatorMaint-worker"
TOMORROW = NOW + timedelta(days=1)


def decided(*there: Reservation, start: Any = TOMORROW, of: Any = None, nodes: int = 2, **more: Any) -> Maintenance:
    update = {"startTime": start.isoformat(), **more.pop("update", {})}
    owner = of or nodeset(nodes, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": update})
    return maintenance(view(*map(pod, range(nodes)), of=owner, reservations=there, **more))


def reserved(
    start: Any = TOMORROW, minutes: int = 30, nodes: str = "worker-[0-1]", flags: tuple[str, ...] = ()
) -> Reservation:
    begin = start.timestamp()
    return Reservation(
        name=NAME,
        node_list=nodes,
        flags=("MAINT", "IGNORE_JOBS", "SPEC_NODES", *flags),
        start_time=Number.of(begin),
        end_time=Number.of(begin + 60 * minutes),
    )


def request(found: Maintenance) -> Any:
    (action,) = found.actions
    assert isinstance(action, SaveReservation)
    return action.request


def test_it_is_made_over_all_registered_nodes() -> None:
    found = decided(update={"flags": ["flex"]})
    asked = request(found)
    assert (asked.name, asked.node_list, asked.users) == (NAME, ("worker-0", "worker-1"), ("slurm",))
    assert asked.flags == ("FLEX", "IGNORE_JOBS", "MAINT")
    assert (asked.start_time, asked.duration) == (Number.of(int(TOMORROW.timestamp())), Number.of(30))
    assert found.condition
    assert (found.condition.status, found.condition.reason) == ("False", "NotExists")


def test_a_start_that_is_past_is_told() -> None:
    """W31: silence is no answer."""
    found = decided(start=NOW - timedelta(hours=1))
    assert found.actions == ()
    assert found.condition
    assert (found.condition.status, found.condition.reason) == ("False", "StartTimePast")


def test_a_start_that_is_past_may_be_forced() -> None:
    assert request(decided(start=NOW - timedelta(hours=1), update={"flags": ["FORCE_START"]}))


def test_what_is_as_it_should_be_is_left_alone() -> None:
    found = decided(reserved())
    assert found.actions == ()
    assert found.condition
    assert (found.condition.status, found.condition.reason) == ("True", "Created")


def test_new_nodes_are_taken_in_also_while_it_lasts() -> None:
    for start in (TOMORROW, NOW - timedelta(minutes=5)):
        asked = request(decided(reserved(start), start=start, nodes=3))
        assert asked.node_list == ("worker-0", "worker-1", "worker-2")
        assert asked.start_time is None


def test_a_new_start_and_length_are_taken_over_before_it_begins() -> None:
    asked = request(decided(reserved(TOMORROW - timedelta(hours=1))))
    assert asked.start_time == Number.of(int(TOMORROW.timestamp()))
    assert request(decided(reserved(), update={"duration": "1h"})).duration == Number.of(60)


def test_one_that_has_begun_keeps_its_times() -> None:
    assert decided(reserved(NOW - timedelta(minutes=5), minutes=10)).actions == ()


def test_other_flags_need_another_reservation() -> None:
    assert decided(reserved(flags=("FLEX",))).actions == (DeleteReservation(NAME),)


def test_slurm_moves_a_start_that_recurs() -> None:
    begin = NOW - timedelta(days=9)
    daily = {"flags": ["daily"]}
    found = decided(reserved(NOW + timedelta(hours=7), flags=("DAILY",)), start=begin, update=daily)
    assert found.actions == ()
    assert request(decided(start=begin, update=daily)).start_time == Number.of(int(TOMORROW.timestamp()))


@pytest.mark.parametrize(
    ("flag", "start"),
    [
        ("HOURLY", NOW + timedelta(minutes=30)),
        ("DAILY", NOW + timedelta(hours=23, minutes=30)),
        ("WEEKLY", NOW + timedelta(days=6, hours=23, minutes=30)),
        ("WEEKDAY", NOW + timedelta(hours=23, minutes=30)),
        ("WEEKEND", NOW + timedelta(days=2, hours=23, minutes=30)),
        ("FLEX", NOW - timedelta(minutes=30)),
    ],
)
def test_the_next_of_starts_that_recur(flag: str, start: Any) -> None:
    """The day of these tests is a Wednesday."""
    assert next_start(NOW - timedelta(minutes=30), frozenset({flag}), NOW) == start


def test_it_goes_with_the_strategy_the_nodes_and_the_nodeset() -> None:
    for of in (nodeset(2), nodeset(0), nodeset(2, deleted=True)):
        assert decided(reserved(), of=of) == Maintenance((DeleteReservation(NAME),))


def test_those_of_others_are_not_touched() -> None:
    assert decided(Reservation(name="theirs"), of=nodeset(2)) == Maintenance()


def test_nothing_is_made_without_nodes_or_without_slurm() -> None:
    without = decided(nodes=0, desired=1)
    assert without.condition
    assert (without.actions, without.condition.reason) == ((), "NoNodes")
    away = decided(in_touch=False)
    assert away.condition
    assert (away.actions, away.condition.status) == ((), "Unknown")


def test_what_was_told_holds_while_slurm_cannot_be_asked() -> None:
    """Each change of ours is such a moment, and a status that flickers would be written each time."""
    told = decided(reserved()).condition
    update = {"startTime": TOMORROW.isoformat()}
    owner = nodeset(2, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": update})
    assert told
    status = msgspec.structs.replace(owner.status, conditions=(told,))
    owner = msgspec.structs.replace(owner, status=status)
    assert decided(of=owner, in_touch=False).condition == told


def test_reservations_are_looked_at_now_and_then() -> None:
    assert decided().look_again == 1
    assert decided(reserved()).look_again == 60


def test_a_length_that_is_none_is_told() -> None:
    found = decided(update={"duration": ""})
    assert found.condition
    assert (found.actions, found.condition.reason) == ((), "InvalidDuration")
