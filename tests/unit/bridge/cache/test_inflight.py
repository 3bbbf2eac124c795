"""What is remembered of a job between its submission and Slurm's lists, and for how long."""

import msgspec
import pytest

from isthmus.bridge.cache.inflight import UNSEEN, JobInFlight, JobsInFlight
from isthmus.domain.bridge.groups import POD, GroupKey
from isthmus.model.slurm import JobRequest

GROUP = GroupKey(POD, "ns", "p")
PLAIN = JobRequest(name="p", comment="ns/p", admin_comment="marker")


class Bed:
    """Jobs in flight, with a clock that a test sets and a count of nudges."""

    def __init__(self) -> None:
        self.now = 100.0
        self.nudges = 0
        self.jobs = JobsInFlight(cluster="0123456789abcdef", nudge=self._nudge, clock=lambda: self.now)

    def begin(self, *, attempt: int = 0, gang: str = "uid", slots: int = 1) -> JobInFlight:
        return self.jobs.begin(GROUP, gang, slots=slots, uids=["uid"], attempt=attempt)

    def take(self, job_id: int = 7, request: JobRequest = PLAIN) -> JobInFlight:
        flight = self.begin()
        self.jobs.taken(flight, job_id, [request])
        return flight

    def awaited(self, *seen: int, gang: str = "uid") -> list[int]:
        return [it.job_id for it in self.jobs.awaited(GROUP, gang, seen=seen)]

    def _nudge(self) -> None:
        self.nudges += 1


def test_one_in_doubt_is_submitted_again_under_its_key_and_every_other_under_a_new_one() -> None:
    bed = Bed()
    first = bed.begin()
    assert first.key == "0123456789abc:uid:0"
    assert bed.begin(slots=2) is first
    assert first.slots == 2
    bed.jobs.refused(first)
    second = bed.begin()
    assert second.key.endswith(":1")
    bed.jobs.taken(second, 7, [PLAIN])
    assert bed.begin().key.endswith(":2")


def test_no_number_that_a_job_in_slurm_has_is_used_again() -> None:
    assert Bed().begin(attempt=5).key.endswith(":5")


def test_the_scheduler_counts_on_it_until_the_poller_shows_it() -> None:
    bed = Bed()
    flight = bed.take()
    assert bed.awaited() == [7]
    assert bed.awaited(7) == []
    assert not flight.awaited


def test_a_gang_that_was_made_anew_does_not_count_on_the_job_of_the_one_before_it() -> None:
    bed = Bed()
    bed.take()
    assert bed.awaited(gang="another") == []


def test_a_group_that_is_forgotten_names_what_is_in_doubt_and_nothing_else() -> None:
    bed = Bed()
    bed.take()
    doubted = bed.begin()
    assert bed.jobs.forget(GROUP) == [doubted.key]
    assert bed.awaited() == []
    assert bed.jobs.forget(GROUP) == []


def test_a_job_that_slurm_takes_after_its_group_was_forgotten_is_counted_on() -> None:
    bed = Bed()
    flight = bed.begin()
    bed.jobs.forget(GROUP)
    bed.jobs.taken(flight, 7, [PLAIN])
    assert bed.awaited() == [7]


def test_its_record_is_known_from_its_submission_until_the_poller_has_it() -> None:
    bed = Bed()
    flight = bed.take(request=JobRequest(name="p", comment="ns/p", immediate=True))
    bed.jobs.forget(GROUP)
    assert flight.at_once
    assert flight.record
    assert flight.record.comment == f"ns/p isthmus-key={flight.key}"
    bed.now += UNSEEN - 1
    bed.jobs.watched()
    assert bed.jobs.get(7) is flight
    bed.jobs.seen(7)
    bed.now += 1
    bed.jobs.watched()
    assert bed.jobs.get(7) is None


def test_a_record_that_the_poller_never_comes_for_is_not_kept_for_ever() -> None:
    bed = Bed()
    bed.take()
    bed.now += UNSEEN
    bed.jobs.watched()
    assert bed.jobs.get(7), "its group counts on it"
    bed.jobs.forget(GROUP)
    bed.now += 1
    bed.jobs.watched()
    assert bed.jobs.get(7) is None


def test_of_a_job_with_components_there_is_no_record() -> None:
    bed = Bed()
    flight = bed.begin(slots=2)
    bed.jobs.taken(flight, 7, [PLAIN, PLAIN])
    assert flight.record is None
    assert not flight.at_once
    assert not flight.allocation.running


def test_it_is_watched_for_a_moment_and_the_poller_nudged_for_the_first() -> None:
    bed = Bed()
    bed.take()
    bed.jobs.watch(8)
    assert list(bed.jobs.watched()) == [7, 8]
    assert bed.nudges == 1
    bed.now += 3.5
    assert not bed.jobs.watched()
    assert bed.jobs.get(7)
    assert bed.jobs.get(8) is None, "of a job that ends, nothing is to be kept"
    bed.jobs.watch(9)
    assert bed.nudges == 2


def test_one_that_is_watched_again_is_watched_for_longer() -> None:
    bed = Bed()
    bed.jobs.watch(7)
    bed.now += 1
    bed.jobs.watch(8)
    bed.now += 1
    bed.jobs.watch(7)
    bed.now += 2.5
    assert list(bed.jobs.watched()) == [7]
    assert bed.nudges == 1


def test_slurm_is_asked_for_it_when_it_was_not_seen_for_long_and_after_a_restart() -> None:
    bed = Bed()
    flight = bed.take()
    assert bed.jobs.check_in(flight) == UNSEEN
    bed.now += UNSEEN
    assert bed.jobs.check_in(flight) == 0
    bed.jobs.checked(flight)
    assert bed.jobs.check_in(flight) == UNSEEN
    bed.jobs.slurm_restarted()
    assert bed.jobs.check_in(flight) == 0
    assert flight.record is None, "its id may be another's by now"
    assert bed.jobs.awaited_groups() == {GROUP}


@pytest.mark.parametrize(
    ("request_", "slots", "known"),
    [
        (PLAIN, 1, True),
        (msgspec.structs.replace(PLAIN, shared=("none",), minimum_nodes=2), 2, True),
        (msgspec.structs.replace(PLAIN, tasks=2), 2, False),
        (msgspec.structs.replace(PLAIN, tres_per_node="gres/gpu=1"), 1, False),
        (msgspec.structs.replace(PLAIN, tres_per_task="gres/gpu=1"), 1, False),
    ],
    ids=["alone", "each on a node of its own", "several on a node", "with devices", "with devices by task"],
)
def test_nodes_that_its_submission_told_are_believed_where_their_names_are_enough(
    request_: JobRequest, slots: int, *, known: bool
) -> None:
    bed = Bed()
    flight = bed.begin(slots=slots)
    bed.jobs.taken(flight, 7, [msgspec.structs.replace(request_, immediate=True)], nodes="n[1-2]")
    assert flight.record is not None
    assert flight.record.nodes == ("n[1-2]" if known else None)
    assert flight.allocation.nodes == (("n1", "n2")[:slots] if known else ())
    assert list(bed.jobs.watched()) == ([] if known else [7]), "there is nothing to be in a hurry for"
