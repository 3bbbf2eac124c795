"""When it is worth asking Slurm for nodes that are free now."""

import msgspec

from isthmus.bridge.cache.jobs import OurJobs
from isthmus.bridge.cache.vacancies import Vacancies
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.marker import Marker
from isthmus.model.slurm import Job, JobRequest, Node
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
        self.vacancies = Vacancies(self.nodes, ours, clock=lambda: self.now)

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
    bed.vacancies.given(7, WHOLE)
    assert not bed.vacancies.suffice(WHOLE), "nobody has said which node it has"
    bed.job(7, "RUNNING", "n1")
    assert not bed.vacancies.suffice(WHOLE), "the list of nodes is from before"
    bed.job(7, "COMPLETED", "n1")
    assert bed.vacancies.suffice(WHOLE), "the list of nodes is from before, again"


def test_a_job_that_is_seen_before_slurms_answer_arrives_counts_once() -> None:
    bed = Bed()
    bed.job(7, "RUNNING", "n1")
    bed.vacancies.given(7, WHOLE)
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
    bed.vacancies.given(7, WHOLE)
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
        bed.vacancies.given(7, SHARED)
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
