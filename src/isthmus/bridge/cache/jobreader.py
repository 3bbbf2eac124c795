"""Reads no more of a job than is not known already.

The full record of a job is eleven kilobytes, and costs slurmrestd more than the job's submission did. But of a job
that we made we know everything except its state, which the poller sees, and its nodes, which a short call tells. So
from submission to binding a pod costs two calls of its own.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from isthmus.domain.bridge import jobstates, marker
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.languages import hostlist
from isthmus.errors import IsthmusError, Terminal
from isthmus.model.slurm import Job, JobRequest, States
from isthmus.slurm.client import Client
from isthmus.slurm.versions import Feature
from isthmus.tasks import TaskGroup

_AT_ONCE: Final = 8


class JobReader:
    """Reads the records of jobs for the poller, from what is known of a job where that is enough."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._made: dict[int, Job] = {}
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """Whoever submitted a job and the poller want to know its nodes at the same time: one of them asks."""
        self._doubted: set[int] = set()
        """Jobs whose ids may be somebody else's by now."""
        self._known: Callable[[int], Job | None] = lambda _: None
        self._states: Mapping[str, States] = {}

    def attach(self, known: Callable[[int], Job | None], states: Mapping[str, States]) -> None:
        """Say where the poller keeps what it knows."""
        self._known, self._states = known, states

    def made(self, job_id: int, request: JobRequest, *, comment: str) -> None:
        """Remember a job that we submitted, until the poller has it."""
        self._made[job_id] = Job(
            job_id,
            job_state=("RUNNING" if request.immediate else "PENDING",),
            name=request.name,
            partition=request.partition,
            account=request.account,
            qos=request.qos,
            comment=comment,
            admin_comment=request.admin_comment,
            excluded_nodes=",".join(request.excluded_nodes),
        )

    def doubt(self, ids: Iterable[int]) -> None:
        """Take nothing for granted of these jobs, nor of those that were just made, until they are read in full."""
        self._doubted.update(ids)
        self._made.clear()

    async def jobs(self) -> tuple[Job, ...]:
        """Read all jobs."""
        found = await self._client.jobs()
        self._doubted.clear()
        return found

    async def started(self, job_id: int) -> tuple[str, ...]:
        """Read the nodes of a job that we made and that is to have started; none if it has not, or packs nodes."""
        made = self._made.get(job_id)
        if made is None or _is_packed(made) or not (await self._client.server()).has(Feature.ALLOCATIONS):
            return ()
        placed = await self._placed([made])
        return tuple(hostlist.expand(placed[0].nodes or "")) if placed else ()

    async def details(self, ids: Iterable[int]) -> list[Job]:
        """Read what is not known of several jobs; jobs that are gone are left out."""
        short = (await self._client.server()).has(Feature.ALLOCATIONS)
        found: list[Job] = []
        started: list[Job] = []
        unknown: list[int] = []
        for job_id in ids:
            job = self._up_to_date(job_id)
            if job is None:
                unknown.append(job_id)
            elif not jobstates.running(job.job_state) or (job.nodes and job_id in self._made):
                found.append(job)
            elif short and not _is_packed(job):
                started.append(job)
            else:
                unknown.append(job_id)
        placed = await self._placed(started)
        found += placed
        unknown += {job.job_id for job in started} - {job.job_id for job in placed}
        if unknown:
            found += await self._client.details(unknown)
            self._doubted.difference_update(unknown)
        for job in found:
            self._made.pop(job.job_id, None)
        return found

    def _up_to_date(self, job_id: int) -> Job | None:
        """Put together what is known of a job; None if that is not enough."""
        state = self._states.get(str(job_id))
        known, made = self._known(job_id), self._made.get(job_id)
        job = known or made
        if state is None or job is None or job_id in self._doubted:
            return None
        if jobstates.phase(state) is Phase.WAITING and known:
            return None  # Put back into the queue, perhaps with another reason: only the full record tells.
        return msgspec.structs.replace(job, job_state=state)

    async def _placed(self, jobs: Iterable[Job]) -> list[Job]:
        """Read the nodes of jobs that run; those that could not be read are left out."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(job: Job) -> Job | None:
            async with gate, self._turns.setdefault(job.job_id, asyncio.Lock()):
                made = self._made.get(job.job_id)
                if made and made.nodes:
                    return msgspec.structs.replace(job, nodes=made.nodes)
                try:
                    nodes = await self._client.nodes_of(job.job_id)
                except Terminal:
                    return None
                if not nodes:
                    return None
                placed = msgspec.structs.replace(job, nodes=hostlist.fold(nodes))
                if job.job_id in self._made:
                    self._made[job.job_id] = placed
                return placed

        try:
            async with TaskGroup() as group:
                reads = [group.create_task(read(job)) for job in jobs]
        except* IsthmusError as failures:
            # One stands for all: they have one cause, and the poller decides by the class.
            raise failures.exceptions[0] from None
        return [job for finished in reads if (job := finished.result())]


def _is_packed(job: Job) -> bool:
    """Whether several pods may share a node of it, so that their numbers must be read, too."""
    found = marker.read(job.admin_comment)
    return found is not None and found.packed
