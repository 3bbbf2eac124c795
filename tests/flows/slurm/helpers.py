"""What the flows of Slurm share: a small job, and patience."""

import asyncio
import itertools
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from isthmus.model.slurm import Job, JobRequest, Number
from isthmus.slurm.client import Client
from isthmus.slurm.poller import Poller
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until
from tests.flows.kube.waiting import eventually_read

T = TypeVar("T")

QUICK = {"MessageTimeout": "5"}
"""slurmrestd gives up on slurmctld after this, instead of ten seconds; a busy machine may need the half of it."""

_serial = itertools.count(1)


def batch_job(script: str = "sleep 600", **changes: object) -> JobRequest:
    """A job of one task that no other test knows, held unless told otherwise."""
    request = JobRequest(
        name=f"flow-{next(_serial)}",
        script=f"#!/bin/sh\n{script}\n",
        current_working_directory="/tmp",  # noqa: S108 - in the bed
        environment=("PATH=/usr/bin:/bin",),
        tasks=1,
        cpus_per_task=1,
        memory_per_node=Number.of(16),
        time_limit=Number.of(5),
        hold=True,
    )
    return msgspec.structs.replace(request, **changes)


def busy_on(node: str, **changes: object) -> JobRequest:
    """An external job that keeps a node busy."""
    request = JobRequest(
        name="busy",
        flags=("EXTERNAL_JOB",),
        environment=("A=b",),
        current_working_directory="/tmp",  # noqa: S108 - in the bed
        minimum_nodes=1,
        tasks=1,
        cpus_per_task=1,
        memory_per_node=Number.of(10),
        required_nodes=(node,),
    )
    return msgspec.structs.replace(request, **changes)


def new_key() -> str:
    """A submission key that no other test uses."""
    return f"flows/{next(_serial)}"


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], bool], *, within: float = 60) -> T:
    """Read until it is good."""
    return await eventually_read(read, holds=good, within=within)


async def job_in_state(client: Client, job_id: int, state: str) -> Job:
    """Wait until a job is in a state."""

    async def read() -> Job:
        return (await client.job(job_id))[0]

    return await eventually(read, lambda job: state in job.job_state)


def hold_census(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let pollers find so many jobs that a list of all takes long: until the event is set."""
    monkeypatch.setattr("isthmus.slurm.poller.MANY", -1)
    counted = asyncio.Event()
    take_census = Poller._take_census

    async def when_counted(self: Poller) -> None:
        await counted.wait()
        await take_census(self)

    monkeypatch.setattr(Poller, "_take_census", when_counted)
    return counted


@contextmanager
def frozen(bed: SlurmBed, daemon: str) -> Iterator[None]:
    """Stop a daemon in the middle of whatever it does, and let it go on in the end."""
    process = bed._daemons[daemon]
    # The process at the door of the bed stops together with its child, but later: if it stopped after it was told
    # to go on, nobody would ever tell it again.
    both = process.pid, process._entered.pid
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: all(map(_stands_still, both)), what=f"{daemon} stands still", within=60)
    try:
        yield
    finally:
        for pid in both:
            os.kill(pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """A signal is sent sooner than every thread has heeded it."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has just ended


async def jobs_with_key(client: Client, key: str) -> list[Job]:
    """Every job that carries this key, by the most expensive and most certain way."""
    return [job for job in await client.jobs() if job.comment and job.comment.endswith(f"isthmus-key={key}")]
