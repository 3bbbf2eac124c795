import pytest

from isthmus.domain.exporter.jobfacts import Resources, counted, facts, gpus, shown_state
from isthmus.model.slurm import Job, Number


@pytest.mark.parametrize(
    ("tasks", "count"),
    [
        ("3-20%2", 18),
        ("1,3,5", 3),
        ("0-9:3", 4),
        ("7", 1),
        ("1-5,10-14,20", 11),
        ("1-3,7,...", 4),
        ("nonsense", 1),
        ("", 1),
    ],
)
def test_the_waiting_tasks_of_an_array_count_one_by_one(tasks: str, count: int) -> None:
    job = Job(10, job_state=("PENDING",), array_job_id=Number.of(10), array_tasks=tasks, tres_requested="cpu=2")
    assert facts(job).tasks == count
    assert facts(job).resources.cpus == 2 * count


def test_a_task_that_runs_counts_once_though_it_names_itself() -> None:
    job = Job(
        11,
        job_state=("RUNNING",),
        array_job_id=Number.of(10),
        array_task_id=Number.of(3),
        array_tasks="3",
        tres_allocated="cpu=4,mem=1G,node=1,gres/gpu=2",
    )
    found = facts(job)
    assert (found.tasks, found.holds, found.pending) == (1, True, False)
    assert found.resources == Resources(cpus=4, memory=1 << 30, gpus=2, nodes=1)


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (("RUNNING", "COMPLETING"), "completing"),
        (("RUNNING", "CONFIGURING"), "configuring"),
        (("CANCELLED",), "cancelled"),
        (("PENDING", "REQUEUED"), "requeued"),
        ((), "unknown"),
    ],
)
def test_the_state_is_what_squeue_shows(states: tuple[str, ...], shown: str) -> None:
    assert shown_state(states) == shown


def test_gpus_are_counted_whatever_slurm_tracks() -> None:
    assert counted("cpu=1,gres/gpu=4,gres/gpu:a100=4").gpus == 4
    assert counted("cpu=1,gres/gpu:a100=2,gres/gpu:h100=1").gpus == 3
    assert gpus("gpu:a100:4(S:0-1),nic:2") == 4
    assert gpus("gpu:a100:0(IDX:N/A)") == 0
    assert gpus("(null)") == 0
    untracked = Job(1, job_state=("RUNNING",), tres_allocated="cpu=1", gres_detail=("gpu:2(IDX:0-1)", None))
    assert facts(untracked).resources.gpus == 2


def test_what_cannot_be_read_counts_nothing() -> None:
    assert counted("cpu=many") == Resources()
    assert gpus("[[[") == 0


def test_a_job_for_several_partitions_counts_in_the_first() -> None:
    assert facts(Job(1, job_state=("PENDING",), partition="gpu,cpu")).partition == "gpu"


def test_why_a_job_waits_is_asked_of_jobs_that_wait() -> None:
    assert facts(Job(1, job_state=("PENDING",), state_reason="Priority")).reason == "Priority"
    assert facts(Job(1, job_state=("FAILED",), state_reason="NonZeroExitCode")).reason == ""
