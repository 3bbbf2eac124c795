"""A Slurm with many waiting jobs, of which one changes now and then: how soon a poller tells, and what it costs."""

import asyncio
import random
import time
from dataclasses import dataclass

from bench.stopwatch import measured
from isthmus.model.slurm import JobRequest, States
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.poller import Poller
from tests.bed.slurm import SlurmBed

_SUBMISSIONS_AT_ONCE = 16
_SEEN_WITHIN = 30.0


@dataclass(frozen=True)
class Watched:
    """Seconds from each change to the news of it, and the share of one core that the whole process took."""

    delays: list[float]
    share: float


async def watch_changes(bed: SlurmBed, *, jobs: int, changes: int) -> Watched:
    """Submit held jobs, wait for all of them, and cancel some, one by one at moments of no pattern."""
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        ids = await _submit_held(client, jobs)
        poller = Poller(client, waiting=lambda: ids)
        async with asyncio.TaskGroup() as group:
            run = group.create_task(poller.run())
            await poller.synced()
            watched = await _cancel_some(client, poller, random.sample(ids, changes))
            run.cancel()
    return watched


async def _submit_held(client: Client, count: int) -> list[int]:
    request = JobRequest(
        name="waiting",
        script="#!/bin/sh\nsleep 600\n",
        environment=("PATH=/usr/bin:/bin",),
        current_working_directory="/tmp",  # noqa: S108 - of the bed
        hold=True,
    )
    gate = asyncio.Semaphore(_SUBMISSIONS_AT_ONCE)

    async def submit(number: int) -> int:
        async with gate:
            return (await client.submit(request, key=f"bench-{number}")).job_id

    async with asyncio.TaskGroup() as group:
        submissions = [group.create_task(submit(number)) for number in range(count)]
    return [submission.result() for submission in submissions]


async def _cancel_some(client: Client, poller: Poller, ids: list[int]) -> Watched:
    seen: dict[str, asyncio.Future[float]] = {}

    def told(key: str, _: States | None, new: States | None) -> None:
        if new == ("CANCELLED",) and key in seen and not seen[key].done():
            seen[key].set_result(time.monotonic())

    poller.states.on_change(told)
    delays = []
    with measured("jobs") as times:
        for job_id in ids:
            await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311 - meets every phase of the poller's round
            news = seen[str(job_id)] = asyncio.get_running_loop().create_future()
            await client.cancel_job(job_id)
            changed = time.monotonic()
            delays.append(await asyncio.wait_for(news, _SEEN_WITHIN) - changed)
    return Watched(delays, times.processor / times.elapsed)
