"""What people write is a job or a pod, and the record that they mean is found."""

import pytest

from isthmus.domain.views import targets
from isthmus.domain.views.targets import JobTarget, PodTarget
from isthmus.errors import Terminal
from isthmus.model.slurm import Job, Number


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("12", JobTarget("12")),
        ("job/12", JobTarget("12")),
        ("12_3", JobTarget("12_3")),
        ("12+1", JobTarget("12+1")),
        ("train-0", PodTarget("train-0")),
        ("pod/12", PodTarget("12")),
        ("po/train-0", PodTarget("train-0")),
        ("pod/team/train-0", PodTarget("train-0", "team")),
    ],
)
def test_targets_are_read(text: str, target: JobTarget | PodTarget) -> None:
    assert targets.parse(text) == target


@pytest.mark.parametrize("text", ["", "job/x", "job/", "pod/", "pod/a/b/c", "node/n1", "--help", "../x", "١٢", "A"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(Terminal, match="neither a job nor a pod"):
        targets.parse(text)


def test_tasks_of_an_array_are_found() -> None:
    array = Number.of(10)
    rest = Job(10, ("PENDING",), array_job_id=array, array_tasks="3-5")
    done = Job(11, ("COMPLETED",), array_job_id=array, array_task_id=Number.of(1))
    runs = Job(12, ("RUNNING",), array_job_id=array, array_task_id=Number.of(2))
    jobs = [done, runs, rest]
    assert targets.find_job(JobTarget("10_2"), jobs) is runs
    assert targets.find_job(JobTarget("10_4"), jobs) is rest
    assert targets.find_job(JobTarget("10"), jobs) is rest
    assert targets.find_job(JobTarget("12"), jobs) is runs
    assert targets.find_job(JobTarget("99"), jobs) is None
    assert targets.find_job(JobTarget("11_7"), [done, runs]) is None
