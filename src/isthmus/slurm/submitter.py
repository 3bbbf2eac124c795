"""Exactly one job per key, whatever happens to requests and answers.

    submit ──▶ answered: done
       │
       └─────▶ answer lost ──▶ look for the key ──▶ found: done
                  ▲                │ not there, three times
                  └── submit ◀─────┘

slurmrestd may report a failure while slurmctld makes the job all the same: the request waits in its backlog. So one
look is not enough, and a key that was once uncertain begins with a look the next time, too.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from isthmus.errors import IsthmusError
from isthmus.model.slurm import Job, JobRequest, JobState
from isthmus.slurm.errors import AnswerLost, ControllerAway, Garbled
from isthmus.slurm.submission import base_id, key_of, newer

_LOOKS = (0.0, 0.5, 2.0)
"""Pauses before each look, in seconds."""


class Submission(NamedTuple):
    """A job that Slurm has taken, and what it had to remark about it."""

    job_id: int
    warnings: tuple[str, ...]


class Queue(Protocol):
    """What this needs of Slurm."""

    async def submit_once(self, request: JobRequest, *, key: str) -> Submission:
        """Submit a job marked with a key."""

    async def job_states(self) -> Collection[JobState]:
        """Read the states of all jobs."""

    async def details(self, ids: Iterable[int]) -> Collection[Job]:
        """Read some jobs in full."""


class Submitter:
    """Submits, and remembers what is uncertain."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._newest: int | None = None
        self._uncertain: dict[str, int] = {}
        """Keys that may have been submitted, with the newest job from before that."""
        self._looking = asyncio.Lock()
        self._looks = 0
        self._found: dict[str, int] = {}
        self._found_by = 0
        """The number of the look that found `_found`; one that failed found nothing."""

    async def submit(self, request: JobRequest, *, key: str) -> Submission:
        """Make sure that a job with this key exists, and that it is the only one."""
        if key not in self._uncertain:
            self._uncertain[key] = await self._newest_job()
            try:
                return self._certain(key, await self._queue.submit_once(request, key=key))
            except (AnswerLost, ControllerAway, Garbled):
                pass
            except IsthmusError:
                del self._uncertain[key]
                raise
        for pause in _LOOKS:
            await asyncio.sleep(pause)
            if job_id := await self._look(key):
                return self._certain(key, Submission(job_id, ()))
        return self._certain(key, await self._queue.submit_once(request, key=key))

    def _certain(self, key: str, submission: Submission) -> Submission:
        self._uncertain.pop(key, None)
        if self._newest is None or newer(submission.job_id, self._newest):
            self._newest = submission.job_id
        return submission

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

    async def _look(self, key: str) -> int | None:
        """Look for a key among the jobs that are young enough. One look serves all who asked before it began."""
        begun_before = self._looks
        async with self._looking:
            if self._found_by <= begun_before:
                self._looks += 1
                self._found = await self._keys_of_young_jobs()
                self._found_by = self._looks
        return self._found.get(key)

    async def _keys_of_young_jobs(self) -> dict[str, int]:
        oldest = None
        for baseline in self._uncertain.values():
            oldest = baseline if oldest is None or newer(oldest, baseline) else oldest
        ids = {base_id(state.job_id) for state in await self._queue.job_states()}
        found: dict[str, int] = {}
        for job in await self._queue.details(it for it in ids if newer(it, oldest or 0)):
            key = key_of(job.comment)
            # Of two jobs with one key the older is the job.
            if key and (key not in found or newer(found[key], job.job_id)):
                found[key] = job.job_id
        return found
