"""The arrays that Slurm has, and which of their tasks were seen.

7  [1,2,3]              all tasks wait, in one record with the id of the array
7  [2,3]   8 (task 1)   a task that begins gets a record and an id of its own
7  (task 3)  8  9       the last one takes the record that all have shared
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from isthmus.domain.exporter.arraytasks import still_waiting
from isthmus.domain.exporter.runfacts import Whose, submitted_at, whose
from isthmus.model.slurm import Job


class Array(msgspec.Struct, array_like=True):
    """The tasks of an array, as bits; in hexadecimal, since numbers in JSON are too short."""

    submit: int
    whose: Whose
    before: bool
    """Whether it was there when counting began."""
    submitted: str = "0"
    waiting: str = "0"
    """Those that share a record."""
    ended: bool = False
    """Whether these ended without having begun."""
    records: set[int] = set()
    """Ids of the jobs that it has in Slurm."""


class Left(NamedTuple):
    """Tasks that no longer share the record of an array. Each has one of its own, or its fate is not known."""

    array_id: int
    array: Array
    tasks: int


class News(NamedTuple):
    """What a record says about an array that was not known."""

    array: Array
    fresh: int
    """How many tasks were submitted since counting began."""
    over: int = 0
    """How many tasks ended without having begun."""
    left: tuple[Left, ...] = ()


class Arrays:
    def __init__(self, known: dict[int, Array]) -> None:
        self.known = known

    def see(self, job: Job, *, before: bool) -> News:
        """Take note of a record: that of one task, or that which waiting tasks share."""
        array_id = _id(job)
        array, left = self._find(array_id, job, before=before)
        array.records.add(job.job_id)
        submitted, waited = int(array.submitted, 16), int(array.waiting, 16)
        if shares(job):
            seen = waiting = still_waiting(job.array_tasks or "", waited)
        else:
            seen = 1 << int(job.array_task_id.value or 0)
            waiting = 0 if job.job_id == array_id else waited & ~seen
        array.submitted, array.waiting = f"{submitted | seen:x}", f"{waiting:x}"
        fresh = 0 if array.before else (seen & ~submitted).bit_count()
        over = seen.bit_count() if shares(job) and job.has_ended and not array.ended else 0
        array.ended |= over > 0
        gone = waited & ~waiting & (~0 if shares(job) else ~seen)
        return News(array, fresh, over, (*left, Left(array_id, array, gone)))

    def has_ended(self, job: Job) -> bool:
        """Whether it is known that the tasks which share this record are over."""
        array = self.known.get(_id(job))
        return array is not None and array.submit == submitted_at(job) and array.ended

    def gone(self, job: Job) -> Left | None:
        """Take note that a record is in no list any more."""
        array = self.known.get(_id(job))
        if array is None:
            return None
        array.records.discard(job.job_id)
        left = self._leave(_id(job), array) if shares(job) else None
        if not array.records:
            del self.known[_id(job)]
        return left

    def keep_only(self, ids: Collection[int]) -> Iterator[Left]:
        """Forget arrays of which none of these jobs is a part."""
        for array_id, array in list(self.known.items()):
            array.records.intersection_update(ids)
            if not array.records:
                del self.known[array_id]
                yield self._leave(array_id, array)

    def _find(self, array_id: int, job: Job, *, before: bool) -> tuple[Array, tuple[Left, ...]]:
        known = self.known.get(array_id)
        if known is not None and (known.submit == submitted_at(job) or job.restarts):
            return known, ()
        made = self.known[array_id] = Array(submitted_at(job), whose(job), before, records=set())
        return made, () if known is None else (self._leave(array_id, known),)

    @staticmethod
    def _leave(array_id: int, array: Array) -> Left:
        waited = 0 if array.ended else int(array.waiting, 16)
        array.waiting = "0"
        return Left(array_id, array, waited)


def shares(job: Job) -> bool:
    """Whether a record is that of several tasks which have not begun."""
    return bool(_id(job)) and job.array_task_id.value is None


def _id(job: Job) -> int:
    return int(job.array_job_id.value or 0)
