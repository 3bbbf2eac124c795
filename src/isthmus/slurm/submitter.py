"""Exactly one job per key, whatever happens to requests and answers.

    submit ──▶ answered: done
       │
       └─────▶ answer lost ──▶ look for the key ──▶ found: done
                                   │ not there, three times
                                   ▼
               submit, to begin in 15 s ──▶ look for 12 s ──▶ only ours: let it go, done
                                                │
                                                └──▶ an older one: cancel ours, done

slurmrestd may report a failure while slurmctld makes the job all the same: the request waits in its backlog, or in
a proxy. So one look is not enough, and the second submission must not start while the first may still appear. It
carries a mark until then, so that a reader of both knows which one may be cancelled (`submission.best_first`).

What is guaranteed, for one key and one process that submits it:

- No two jobs with the key ever run, if the first submission takes effect before the last look: 12 s after Slurm has
  taken the second one, which is at least 15 s after the answer to the first was lost. Time during which slurmctld
  answers nobody does not count, since no look succeeds and nothing is submitted in it.
- A request that somebody holds back for longer can make a second job that runs; nobody can know that from here.
  `submission.duplicates` over all jobs, asked from time to time, names it.
- If the process ends in between, a job that waits for its begin starts by itself. Nothing is stuck for want of us.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from isthmus.errors import IsthmusError
from isthmus.model.slurm import Job, JobRequest, JobState, Number, Statistics
from isthmus.slurm.errors import AlreadyDone, AnswerLost, ControllerAway, ControllerUnreached, Garbled, NotFound
from isthmus.slurm.submission import base_id, best_first, key_of, newer, with_hold, with_key

_LOOKS = (0.0, 0.5, 2.0)
"""Pauses before each look for the first submission, in seconds."""

_LATE_LOOKS = (1.0, 2.0, 4.0, 5.0)
"""Pauses before each look for the first submission after the second one was taken."""

_HEAD_START = 15
"""So many seconds the second submission waits for the first: the looks above, and time for them to be answered."""

_AT_ONCE = 1
"""The second since 1970 that means "now", since 0 changes nothing."""


_MAYBE = (AnswerLost, ControllerAway, Garbled)
"""The errors after which a submission may or may not have taken effect, ControllerUnreached excepted."""


class Submission(NamedTuple):
    """A job that Slurm has taken, and what it had to remark about it."""

    job_id: int
    warnings: tuple[str, ...]
    nodes: str = ""
    """Those of a job that started at once, as a host list, where the answer says so."""


class Queue(Protocol):
    async def submit_once(self, request: JobRequest, *more: JobRequest, key: str) -> Submission:
        """Submit a job marked with a key; with `more` components it is a heterogeneous one."""

    async def job_states(self) -> Collection[JobState]: ...

    async def details(self, ids: Iterable[int]) -> Sequence[Job]: ...

    async def diagnose(self) -> Statistics:
        """Read slurmctld's clock."""

    async def update_job(self, job_id: int, change: JobRequest) -> None: ...

    async def cancel_job(self, job_id: int) -> None: ...


@dataclass
class _Doubt:
    """A key that may have been submitted more often than we know."""

    baseline: int
    """The newest job from before the first submission."""
    taken: Submission | None = None
    """The second submission, if Slurm said that it took it."""
    held: bool = False
    """Whether a second submission may be waiting for its begin."""


class Submitter:
    """Submits, and remembers what is uncertain."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._newest: int | None = None
        self._doubts: dict[str, _Doubt] = {}
        self._under_way: set[str] = set()
        self._unwanted: set[str] = set()
        """Keys under way that will not be submitted again."""
        self._keys: dict[int, str | None] = {}
        """The keys of jobs that were read while there were doubts: each look reads only those that are new."""
        self._looking = asyncio.Lock()
        self._looks = 0
        self._found: dict[str, list[int]] = {}
        self._found_by = 0
        """The number of the look that found `_found`; one that failed found nothing."""

    async def submit(self, request: JobRequest, *more: JobRequest, key: str) -> Submission:
        """Make sure that a job with this key exists, and that it is the only one.

        A heterogeneous job has `more` components. All of them carry the key, and the id of the first is the job's.
        """
        self._under_way.add(key)
        try:
            return await self._submit((request, *more), key=key)
        finally:
            self._under_way.discard(key)
            if key in self._unwanted:
                self._unwanted.discard(key)
                self._forget(key)

    def note_newest(self, job_id: int) -> None:
        """Record the newest job at some time before now, so that Slurm need not be asked for a list."""
        if self._newest is None:
            self._newest = job_id

    def forget(self, key: str) -> None:
        """Record that this key will not be submitted again, whatever became of it.

        As long as a key is in doubt, every look for another reads all jobs since that time.
        """
        if key in self._under_way:
            self._unwanted.add(key)
        else:
            self._forget(key)

    async def _submit(self, components: Sequence[JobRequest], *, key: str) -> Submission:
        if key not in self._doubts:
            self._doubts[key] = _Doubt(await self._newest_job())
            if submission := await self._try(components, key=key):
                return self._certain(key, submission)
        doubt = self._doubts[key]
        if not doubt.held:
            if ids := await self._look_for(key, _LOOKS, enough=1):
                return self._certain(key, await self._only(ids))
            await self._submit_held(components, key, doubt)
        # With a job for each of the two submissions, nothing can appear any more.
        ids = await self._look_for(key, _LATE_LOOKS, enough=2 if doubt.taken else None)
        if not ids:
            doubt.taken, doubt.held = None, False
            raise AnswerLost(f"it is not known yet whether Slurm accepted job {components[0].name or key!r}")
        job = await self._only(ids, taken=doubt.taken)
        if doubt.taken in {None, job}:
            # A job that cannot be released now begins by itself a little later.
            with suppress(IsthmusError):
                await self._let_go(job.job_id, components, key=key)
        return self._certain(key, job)

    async def _let_go(self, job_id: int, components: Sequence[JobRequest], *, key: str) -> None:
        """Let a job begin that was submitted to begin later: each of its components."""
        ids = [job_id]
        if len(components) > 1:
            found = sorted(await self._queue.details(ids), key=lambda it: it.het_job_offset.value or 0)
            ids = [it.job_id for it in found]
        for each, request in zip(ids, components, strict=False):
            begin = request.begin_time or Number.of(_AT_ONCE)
            free = JobRequest(begin_time=begin, comment=with_key(request.comment, key))
            await self._queue.update_job(each, free)

    async def _try(self, components: Sequence[JobRequest], *, key: str) -> Submission | None:
        """Submit for the first time; None if it is not known whether it took effect."""
        try:
            return await self._queue.submit_once(*components, key=key)
        except _MAYBE as error:
            if not isinstance(error, ControllerUnreached):
                return None
            self._forget(key)
            raise
        except IsthmusError:
            self._forget(key)
            raise

    async def _submit_held(self, components: Sequence[JobRequest], key: str, doubt: _Doubt) -> None:
        # Slurm compares with its own clock, which need not be ours.
        now = (await self._queue.diagnose()).now.value or 0
        held = [
            msgspec.structs.replace(
                request,
                begin_time=Number.of(
                    max(now + _HEAD_START, (request.begin_time and request.begin_time.value) or 0)
                ),
                comment=with_hold(request.comment),
                immediate=None,
            )
            for request in components
        ]
        doubt.held = True
        try:
            doubt.taken = await self._queue.submit_once(*held, key=key)
        except _MAYBE as error:
            if isinstance(error, ControllerUnreached):
                doubt.held = False
                raise
        except IsthmusError:
            # Slurm has refused it. The first submission may appear all the same, so the next call looks for it.
            doubt.held = False
            raise

    async def _only(self, ids: Sequence[int], *, taken: Submission | None = None) -> Submission:
        """Leave one of these jobs, and cancel the others."""
        job = ids[0]
        if len(ids) > 1 and (jobs := await self._queue.details(ids)):
            job, *others = dict.fromkeys(it.queue_id for it in best_first(jobs))
            for other in others:
                with suppress(AlreadyDone, NotFound):
                    await self._queue.cancel_job(other)
        return taken if taken and taken.job_id == job else Submission(job, ())

    def _certain(self, key: str, submission: Submission) -> Submission:
        self._forget(key)
        if self._newest is None or newer(submission.job_id, self._newest):
            self._newest = submission.job_id
        return submission

    def _forget(self, key: str) -> None:
        self._doubts.pop(key, None)
        if not self._doubts:
            self._keys.clear()

    async def _newest_job(self) -> int:
        """Any job with a greater id is younger than this call; asked of Slurm once, known from then on."""
        async with self._looking:
            if self._newest is None:
                newest = 0
                for state in await self._queue.job_states():
                    job_id = base_id(state.job_id)
                    newest = job_id if newer(job_id, newest) else newest
                self._newest = newest
        return self._newest

    async def _look_for(self, key: str, pauses: Iterable[float], *, enough: int | None) -> Sequence[int]:
        """Look for a key until `enough` jobs have it, or (None) for as long as there are pauses."""
        ids: Sequence[int] = ()
        for pause in pauses:
            await asyncio.sleep(pause)
            ids = await self._look(key)
            if enough is not None and len(ids) >= enough:
                break
        return ids

    async def _look(self, key: str) -> Sequence[int]:
        """Look for a key among the jobs that are young enough. One look serves all who asked before it began."""
        begun_before = self._looks
        async with self._looking:
            if self._found_by <= begun_before:
                self._looks += 1
                self._found = await self._keys_of_young_jobs()
                self._found_by = self._looks
        return self._found.get(key, ())

    async def _keys_of_young_jobs(self) -> dict[str, list[int]]:
        oldest = None
        for doubt in self._doubts.values():
            oldest = doubt.baseline if oldest is None or newer(oldest, doubt.baseline) else oldest
        ids = {base_id(state.job_id) for state in await self._queue.job_states()}
        young = [it for it in ids if newer(it, oldest or 0)]
        unread = [it for it in young if it not in self._keys]
        for job in await self._queue.details(unread):
            self._keys[job.queue_id] = key_of(job.comment)
        found: dict[str, list[int]] = {}
        for job_id in young:
            if key := self._keys.get(job_id):
                found.setdefault(key, []).append(job_id)
        return found
