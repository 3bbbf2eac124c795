"""The file of a batch job, from the pattern that Slurm tells."""

from typing import Any

import pytest

from isthmus.domain.views.outputfile import output_file
from isthmus.model.slurm import Job, Number


def job(**fields: Any) -> Job:
    given: dict[str, Any] = {
        "work_directory": "/home/ann",
        "user_name": "ann",
        "name": "fit",
        "nodes": "n[3-4]",
        "batch_flag": True,
    }
    return Job(17, ("RUNNING",), **(given | fields))


@pytest.mark.parametrize(
    ("pattern", "file"),
    [
        ("slurm-%j.out", "/home/ann/slurm-17.out"),
        ("/logs/%u/%x-%5j.%N", "/logs/ann/fit-00017.n3"),
        ("/logs/100%%-%A", "/logs/100%-17"),
        ("out\\%j", "/home/ann/out%j"),
        ("/logs/%z", "/logs/%z"),
        ("/logs/done.out", "/logs/done.out"),
    ],
)
def test_patterns(pattern: str, file: str) -> None:
    assert output_file(job(standard_output=pattern)) == file


def test_tasks_of_an_array_have_files_of_their_own() -> None:
    task = job(standard_output="%A_%a-%b.out", array_job_id=Number.of(15), array_task_id=Number.of(12))
    assert output_file(task) == "/home/ann/15_12-2.out"


def test_what_is_no_batch_job_has_none() -> None:
    assert not output_file(job(standard_output="x", batch_flag=False))
    assert not output_file(job(standard_output=None))


def test_nodes_that_cannot_be_read_name_nobody() -> None:
    assert output_file(job(standard_output="/a-%N", nodes="n[")) == "/a-"
