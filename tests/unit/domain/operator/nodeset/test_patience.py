"""For how long nodes wait for their jobs, and what becomes of these."""

from datetime import UTC, datetime, timedelta
from typing import Any

from isthmus.domain.operator.nodeset.actions import CancelJobs, RequeueJobs, SetDeadline
from isthmus.domain.operator.nodeset.patience import Overdue, deadlines, marks, overdue, unmarked
from isthmus.model.slurm import Job, Number
from isthmus.names import POD_DEADLINE_ANNOTATION
from tests.unit.domain.operator.nodeset.views import GOING, NOW, job, nodeset, pod, view

BOTH = {"worker-0", "worker-1"}


def late(*jobs: Job, on: str = "Wait", timeout: str = "10m", since: float = 700, **more: Any) -> Overdue:
    of = nodeset(1, drain={"timeout": timeout, "onTimeout": on})
    pods = [pod(n, "MIXED", "DRAIN", reason=GOING, since=since) for n in range(2)]
    return overdue(view(*pods, of=of, jobs=more.pop("read", jobs), **more), BOTH)


def test_before_its_time_nothing_happens() -> None:
    found = late(job(7, "worker-0"), on="Cancel", since=540)
    assert (found.actions, found.note, found.look_again) == ((), "", 60.0)


def test_without_a_time_nothing_happens() -> None:
    assert late(job(7, "worker-0"), on="Cancel", timeout="") == Overdue()


def test_jobs_are_read_only_when_it_is_late() -> None:
    assert late(read=None).wants_jobs
    assert not late(read=None, since=5).wants_jobs


def test_jobs_are_not_read_at_every_look() -> None:
    found = late(read=None, jobs_in=7.0, on="Cancel")
    assert (found.actions, found.wants_jobs, found.look_again) == ((), False, 7.0)
    assert not unmarked(view(pod(0, "MIXED"), of=nodeset(0), jobs_in=7.0), BOTH)


def test_jobs_are_waited_for_by_name() -> None:
    found = late(job(7, "worker-0"), job(9, "elsewhere"))
    assert found.actions == ()
    assert "worker-0 cannot be drained because of job 7" in found.note


def test_jobs_are_cancelled() -> None:
    (action,) = late(job(7, "worker-[0-1]"), job(8, "worker-1"), job(9, "elsewhere"), on="Cancel").actions
    assert isinstance(action, CancelJobs)
    assert action.jobs == (7, 8)


def test_jobs_that_are_over_are_left_alone() -> None:
    assert late(job(7, "worker-0", state="COMPLETED"), job(8, state="PENDING"), on="Cancel").actions == ()


def test_a_suspended_job_holds_its_node() -> None:
    assert late(job(7, "worker-0", state="SUSPENDED"), on="Cancel").actions


def test_jobs_are_requeued_if_they_can_be() -> None:
    found = late(job(7, "worker-0"), job(8, "worker-1"), job(9, "worker-1", batch_flag=False), on="Requeue")
    (action,) = found.actions
    assert isinstance(action, RequeueJobs)
    assert (action.jobs, action.cleared) == ((7, 8), ("worker-0",))
    assert "job 9 cannot be requeued" in found.note


def test_nothing_is_requeued_that_cannot_be() -> None:
    assert late(job(7, "worker-0", requeue=False), on="Requeue").actions == ()


def test_a_drain_of_others_has_no_time() -> None:
    of = nodeset(0, drain={"timeout": "1s", "onTimeout": "Cancel"})
    theirs = pod(0, "MIXED", "DRAIN", reason="ticket 4711", since=700)
    assert overdue(view(theirs, of=of, jobs=(job(7, "worker-0"),)), {"worker-0"}).actions == ()


def test_nobody_is_late_without_slurm() -> None:
    assert late(job(7, "worker-0"), on="Cancel", in_touch=False) == Overdue()


# Deadlines


def test_a_deadline_is_the_end_of_the_last_job() -> None:
    jobs = (
        job(7, "worker-0", minutes=60),
        job(8, "worker-0", minutes=90),
        job(9, "worker-1", minutes=float("inf")),
    )
    found = deadlines(view(pod(0), pod(1), pod(2), jobs=jobs))
    assert found == {"worker-0": NOW + timedelta(minutes=80), "worker-1": datetime(9999, 12, 31, tzinfo=UTC)}


def test_deadlines_are_written_on_pods_that_wait_and_on_no_others() -> None:
    busy = [pod(n, "MIXED", "DRAIN", reason=GOING) for n in range(2)]
    there = view(*busy, of=nodeset(0), jobs=(job(7, "worker-[0-1]", minutes=10),))
    assert marks(there, {"worker-0"}) == (SetDeadline("worker-0", "uid-worker-0", NOW),)


def test_a_deadline_that_is_written_stays() -> None:
    said = {POD_DEADLINE_ANNOTATION: NOW.isoformat()}
    busy = pod(0, "MIXED", "DRAIN", reason=GOING, annotations=said)
    assert marks(view(busy, jobs=(job(7, "worker-0", minutes=10),)), BOTH) == ()
    assert not unmarked(view(busy), BOTH)


def test_a_deadline_goes_with_the_jobs() -> None:
    said = {POD_DEADLINE_ANNOTATION: NOW.isoformat()}
    idle = pod(0, "IDLE", "DRAIN", reason=GOING, annotations=said)
    assert marks(view(idle), BOTH) == (SetDeadline("worker-0", "uid-worker-0", None),)
    assert marks(view(idle, in_touch=False), BOTH) == ()


def test_jobs_are_read_once_for_deadlines() -> None:
    there = view(pod(0, "MIXED"), of=nodeset(0))
    assert unmarked(there, BOTH)
    assert not unmarked(view(pod(0, "MIXED"), jobs=()), BOTH)
    assert not unmarked(view(pod(0)), BOTH)


def test_a_job_without_numbers_ends_far_away() -> None:
    odd = job(7, "worker-0", minutes=1, end_time=Number())
    assert deadlines(view(pod(0), jobs=(odd,)))["worker-0"] < NOW
    odd = Job(job_id=7, job_state=("RUNNING",), nodes="worker-0")
    assert deadlines(view(pod(0), jobs=(odd,)))["worker-0"].year == 9999
