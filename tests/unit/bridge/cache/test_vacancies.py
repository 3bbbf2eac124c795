"""When it is worth asking Slurm for nodes that are free now."""

import msgspec
import pytest

from isthmus.bridge.cache.inflight import JobsInFlight
from isthmus.bridge.cache.jobs import OurJobs
from isthmus.bridge.cache.vacancies import Vacancies
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import POD, GroupKey
from isthmus.domain.bridge.marker import Marker
from isthmus.model.slurm import Job, JobRequest, Node, States
from isthmus.slurm.store import Store

MARK = marker.write(Marker("c", "Pod", "ns", "p", "uid", ("ns/p",), ("uid",)))
WHOLE = JobRequest(shared=("none",), minimum_nodes=1, partition="main")
SHARED = JobRequest(minimum_nodes=1, partition="main")


class Bed:
    """Three nodes, all idle."""

    def __init__(self) -> None:
        self.nodes: Store[str, Node] = Store()
        self.jobs: Store[int, Job] = Store()
        self.now = 0.0
        self.see("n1", "n2", "n3", state="IDLE")
        ours = OurJobs(self.jobs, cluster="c")
        self.inflight = JobsInFlight(cluster="c", nudge=lambda: None, clock=lambda: self.now)
        self.states: Store[str, States] = Store()
        self.vacancies = Vacancies(self.nodes, ours, self.inflight, states=self.states)

    def give(self, job_id: int, request: JobRequest) -> None:
        """Let Slurm answer that a job has started."""
        flight = self.inflight.begin(GroupKey(POD, "ns", "p"), "uid", slots=1, uids=["uid"])
        self.inflight.taken(flight, job_id, [msgspec.structs.replace(request, immediate=True)])

    def see(self, *names: str, state: str, partition: str = "main") -> None:
        """Let the latest list of nodes say so."""
        for name in names:
            self.nodes.put(name, Node(name, state=(state, "EXTERNAL"), partitions=(partition,)))

    def job(self, job_id: int, state: str, nodes: str = "") -> None:
        """Let the poller see a job of ours."""
        self.jobs.put(job_id, Job(job_id, job_state=(state,), nodes=nodes, admin_comment=MARK))


def test_as_many_whole_nodes_are_asked_for_at_a_time_as_are_idle() -> None:
    bed = Bed()
    with bed.vacancies.attempt(WHOLE), bed.vacancies.attempt(WHOLE):
        assert bed.vacancies.suffice(WHOLE)
        with bed.vacancies.attempt(WHOLE):
            assert not bed.vacancies.suffice(WHOLE)
    assert bed.vacancies.suffice(WHOLE)


def test_a_gang_needs_nodes_for_all_its_pods() -> None:
    gang = msgspec.structs.replace(WHOLE, minimum_nodes=3)
    bed = Bed()
    assert bed.vacancies.suffice(gang)
    assert not bed.vacancies.suffice(msgspec.structs.replace(WHOLE, minimum_nodes=4))
    with bed.vacancies.attempt(WHOLE):
        assert not bed.vacancies.suffice(gang)


def test_a_job_holds_its_node_from_slurms_answer_to_its_end() -> None:
    bed = Bed()
    bed.see("n2", "n3", state="ALLOCATED")
    bed.give(7, WHOLE)
    assert not bed.vacancies.suffice(WHOLE), "nobody has said which node it has"
    bed.job(7, "RUNNING", "n1")
    assert not bed.vacancies.suffice(WHOLE), "the list of nodes is from before"
    bed.job(7, "COMPLETED", "n1")
    assert bed.vacancies.suffice(WHOLE), "the list of nodes is from before, again"
    bed.inflight.seen(7)
    bed.jobs.drop(7)
    assert bed.vacancies.suffice(WHOLE), "it was seen once"


def test_a_job_that_is_seen_before_slurms_answer_arrives_counts_once() -> None:
    bed = Bed()
    bed.job(7, "RUNNING", "n1")
    bed.give(7, WHOLE)
    with bed.vacancies.attempt(WHOLE):
        assert bed.vacancies.suffice(WHOLE)


def test_a_job_that_leaves_slurm_leaves_its_node() -> None:
    bed = Bed()
    bed.see("n2", "n3", state="ALLOCATED")
    bed.job(7, "RUNNING", "n1")
    bed.see("n1", state="ALLOCATED")
    assert not bed.vacancies.suffice(WHOLE)
    bed.jobs.drop(7)
    assert bed.vacancies.suffice(WHOLE)


def test_a_job_that_slurm_has_lost_holds_nothing_for_ever() -> None:
    bed = Bed()
    bed.see("n2", "n3", state="ALLOCATED")
    bed.give(7, WHOLE)
    bed.now = 14.0
    assert not bed.vacancies.suffice(WHOLE)
    bed.now = 16.0
    assert bed.vacancies.suffice(WHOLE)


def test_a_job_that_shares_nodes_needs_one_that_is_not_full() -> None:
    bed = Bed()
    bed.see("n1", "n2", "n3", state="MIXED")
    assert bed.vacancies.suffice(SHARED)
    assert not bed.vacancies.suffice(WHOLE)
    with bed.vacancies.attempt(SHARED):
        bed.give(7, SHARED)
        assert bed.vacancies.suffice(SHARED)
    bed.see("n1", "n2", "n3", state="ALLOCATED")
    assert not bed.vacancies.suffice(SHARED)


def test_nodes_that_the_job_cannot_have_do_not_count() -> None:
    bed = Bed()
    bed.see("n2", state="IDLE", partition="other")
    bed.nodes.put("n3", Node("n3", state=("IDLE", "DRAIN"), partitions=("main",)))
    assert bed.vacancies.suffice(WHOLE)
    without = msgspec.structs.replace(WHOLE, excluded_nodes=("n[1,9]",))
    assert not bed.vacancies.suffice(without)
    assert bed.vacancies.suffice(msgspec.structs.replace(without, partition=None)), "n2 is of the default partition"
    several = msgspec.structs.replace(without, partition="third,other")
    assert bed.vacancies.suffice(several), "Slurm takes whichever partition has room"
    bed.nodes.drop("n1")
    assert not bed.vacancies.suffice(WHOLE)


def test_an_ended_job_opens_no_node_that_is_shut() -> None:
    bed = Bed()
    bed.see("n2", "n3", state="ALLOCATED")
    bed.job(7, "RUNNING", "n1")
    bed.nodes.put("n1", Node("n1", state=("ALLOCATED", "DRAIN"), partitions=("main",)))
    bed.job(7, "CANCELLED", "n1")
    assert not bed.vacancies.suffice(WHOLE)
    assert not bed.vacancies.suffice(SHARED)


@pytest.mark.parametrize("request_", [WHOLE, SHARED])
def test_nobody_overtakes_a_job_of_others_that_waits(request_: JobRequest) -> None:
    bed = Bed()
    bed.states.put("7", ("PENDING",))
    bed.states.put("8_[1-4]", ("PENDING",))
    assert not bed.vacancies.suffice(request_)
    bed.states.put("7", ("RUNNING",))
    assert not bed.vacancies.suffice(request_)
    bed.states.drop("8_[1-4]")
    assert bed.vacancies.suffice(request_)


@pytest.mark.parametrize(("reason", "in_the_way"), [("Resources", True), ("Priority", True), ("Dependency", False)])
def test_a_job_of_ours_is_in_the_way_if_it_waits_for_nodes(reason: str, *, in_the_way: bool) -> None:
    bed = Bed()
    bed.jobs.put(7, Job(7, job_state=("PENDING",), state_reason=reason, admin_comment=MARK))
    bed.states.put("7", ("PENDING",))
    assert bed.vacancies.suffice(WHOLE) is not in_the_way


def test_where_very_many_wait_some_wait_for_nodes() -> None:
    bed = Bed()
    for job_id in range(1, 200):
        bed.jobs.put(job_id, Job(job_id, job_state=("PENDING",), state_reason="Dependency", admin_comment=MARK))
        bed.states.put(str(job_id), ("PENDING",))
    assert not bed.vacancies.suffice(WHOLE)
