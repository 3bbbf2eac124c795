"""Slurm's commands: what they print is read, and why they fail is told."""

from collections.abc import Sequence

import pytest

from isthmus.errors import Retry
from isthmus.slurm import commands
from isthmus.slurm.commands import Done, SlurmCommands
from isthmus.slurm.errors import Garbled, NotFound


def printing(code: int, output: bytes, errors: bytes = b"") -> SlurmCommands:
    async def run(_words: Sequence[str], _fed: bytes) -> Done:
        return Done(code, output, errors)

    return SlurmCommands(run)


async def test_jobs_and_nodes_are_read() -> None:
    (job,) = await printing(0, b'{"jobs": [{"job_id": 3, "job_state": ["RUNNING"]}]}').jobs()
    assert job.job_id == 3
    (node,) = await printing(0, b'{"nodes": [{"name": "n1", "state": ["IDLE"]}]}').nodes()
    assert node.name == "n1"


async def test_a_failure_is_told_on_one_line() -> None:
    with pytest.raises(Retry, match="squeue failed: no contact twice"):
        await printing(1, b"", b"no contact\n  twice\n").jobs()
    with pytest.raises(Retry, match="it ended with 3"):
        await printing(3, b"").jobs()


async def test_an_unknown_job_is_told_from_a_silent_slurm() -> None:
    with pytest.raises(NotFound):
        await printing(1, b"", b"slurm_load_jobs error: Invalid job id specified").job(5)
    with pytest.raises(NotFound):
        await printing(0, b'{"jobs": []}').job(5)


async def test_what_is_not_json_is_garbled() -> None:
    with pytest.raises(Garbled):
        await printing(0, b"JOBID PARTITION").jobs()


async def test_commands_of_this_machine_are_fed_and_heard() -> None:
    done = await commands.on_this_machine(("sh", "-c", "cat; echo no >&2; exit 7"), b"yes")
    assert done == Done(7, b"yes", b"no\n")


def test_a_machine_has_the_commands_or_not(tmp_path: object) -> None:
    assert not commands.are_here({"PATH": str(tmp_path)})
