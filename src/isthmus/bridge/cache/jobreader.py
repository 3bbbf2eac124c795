"""Reads of a job only what is not known already.

The full record of a job is eleven kilobytes, and costs slurmrestd more than the job's submission did. But of a job
that we made we know everything except its state, which the poller sees, and its nodes, which a short call tells. So
from submission to binding a pod costs two calls of its own.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec

from isthmus.bridge.cache.inflight import JobInFlight, JobsInFlight
from isthmus.domain.bridge import jobstates, marker
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.languages import hostlist
from isthmus.errors import IsthmusError, Terminal
from isthmus.model.slurm import Job, States
from isthmus.slurm.client import Client
from isthmus.slurm.errors import NotFound
from isthmus.slurm.versions import Feature
from isthmus.tasks import TaskGroup

_AT_ONCE: Final = 8


@dataclass(eq=False)
class JobReader:
    """Reads the records of jobs for the poller, from what is known of a job where that is enough.

    `known` and `state` find what the poller has.
    """

    client: Client
    inflight: JobsInFlight
    _: KW_ONLY
    cluster: str
    known: Callable[[int], Job | None]
    state: Callable[[int], States | None]
    _doubted: set[int] = field(default_factory=set, init=False)
    """Jobs whose ids Slurm may have given to others."""

    def doubt(self, ids: Iterable[int]) -> None:
        """Take nothing for granted of these jobs until they are read in full."""
        self._doubted.update(ids)

    async def jobs(self) -> tuple[Job, ...]:
        found = await self.client.jobs()
        self._doubted.clear()
        return found

    async def has(self, flight: JobInFlight) -> bool:
        """Whether Slurm has a job that it took. Another job may have its id by now, so the marker decides."""
        try:
            jobs = await self.client.job(flight.job_id)
        except NotFound:
            return False
        found = (marker.read(job.admin_comment) for job in jobs)
        return any(it and it.cluster == self.cluster and it.uid == flight.gang for it in found)

    async def started(self, flight: JobInFlight) -> bool:
        """Read the nodes of a job that should have started; return whether it has. Not for jobs that pack nodes."""
        record = flight.record
        if record is not None and record.nodes:
            return True
        if record is None or _is_packed(record) or not (await self.client.server()).has(Feature.ALLOCATIONS):
            return False
        return bool(await self._placed([record]))

    async def details(self, ids: Iterable[int]) -> list[Job]:
        """Read what is not known of several jobs; jobs that are gone are left out."""
        short = (await self.client.server()).has(Feature.ALLOCATIONS)
        found: list[Job] = []
        started: list[Job] = []
        unknown: list[int] = []
        for job_id in ids:
            job = self._up_to_date(job_id)
            if job is None:
                unknown.append(job_id)
            elif not jobstates.running(job.job_state) or (job.nodes and self._as_submitted(job_id)):
                found.append(job)
            elif short and not _is_packed(job):
                started.append(job)
            else:
                unknown.append(job_id)
        placed = await self._placed(started)
        found += placed
        unknown += {job.job_id for job in started} - {job.job_id for job in placed}
        if unknown:
            found += await self.client.details(unknown)
            self._doubted.difference_update(unknown)
        for job in found:
            self.inflight.seen(job.job_id)
        return found

    def _as_submitted(self, job_id: int) -> Job | None:
        flight = self.inflight.get(job_id)
        return flight.record if flight else None

    def _up_to_date(self, job_id: int) -> Job | None:
        """Put together what is known of a job; None if that is not enough."""
        state, known = self.state(job_id), self.known(job_id)
        job = known or self._as_submitted(job_id)
        if state is None or job is None or job_id in self._doubted:
            return None
        if jobstates.phase(state) is Phase.WAITING and known:
            return None  # Put back into the queue, perhaps with another reason: only the full record tells.
        return msgspec.structs.replace(job, job_state=state)

    async def _placed(self, jobs: Iterable[Job]) -> list[Job]:
        """Read the nodes of jobs that run; those that could not be read are left out."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(job: Job) -> Job | None:
            flight = self.inflight.get(job.job_id)
            async with gate, flight.reading if flight else nullcontext():
                if flight and flight.record and flight.record.nodes:
                    known = flight.record
                    return msgspec.structs.replace(job, nodes=known.nodes, gres_detail=known.gres_detail)
                try:
                    nodes = await self.client.nodes_of(job.job_id)
                except Terminal:
                    return None
                if not nodes:
                    return None
                detail = tuple(it.gres for it in nodes) if any(it.gres for it in nodes) else ()
                placed = msgspec.structs.replace(
                    job, nodes=hostlist.fold(it.node for it in nodes), gres_detail=detail
                )
                if flight and flight.record:
                    flight.record = placed
                return placed

        try:
            async with TaskGroup() as group:
                reads = [group.create_task(read(job)) for job in jobs]
        except* IsthmusError as failures:
            # One is enough: they have one cause, and the poller decides by the class.
            raise failures.exceptions[0] from None
        return [job for finished in reads if (job := finished.result())]


def _is_packed(job: Job) -> bool:
    """Whether several pods may share a node of it, so that their numbers must be read, too."""
    found = marker.read(job.admin_comment)
    return found is not None and found.packed
