"""What a poller does differently where Slurm has tens of thousands of jobs, most of them not ours.

slurmrestd takes two milliseconds to write out the full record of a job, and frees a long list in quadratic time: a
list of 10,000 states takes a second, one of 100,000 minutes. So above `MANY`

    states     are asked for by id, some hundred at a time: those of interest over and over, all others in turn, and
               after the newest of them those that may have come since
    details    are read one by one, the newest first, in the background

A job can only have been submitted for something after that was made. So who knows all jobs since then need not wait
for the rest (`knows_since`).
"""

from collections.abc import Collection, Iterable
from typing import Final

from isthmus.model.slurm import Job
from isthmus.slurm.submission import JOB_IDS, newer

MANY: Final = 20_000
SLICE: Final = 500
"""So many ids are asked about at a time: 8 KiB of them at most."""

_CLOCKS: Final = 60.0
"""By so many seconds Slurm's clock and those of others may differ."""

_NOTHING_KNOWN: Final = float("inf")
_ALL_KNOWN: Final = float("-inf")


class Unread:
    """Jobs that were there in the beginning and whose records have not been read, the newest at the end."""

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}
        self._read_back_to = _NOTHING_KNOWN

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._ids

    def begin(self, ids: Collection[int]) -> None:
        wrapped = bool(ids) and max(ids) - min(ids) >= JOB_IDS // 2
        self._ids = dict.fromkeys(sorted(ids, key=lambda it: it + JOB_IDS * (wrapped and it < JOB_IDS // 2)))

    def take(self, count: int, *, among: Collection[int]) -> set[int]:
        """Take the newest of them that are also among `others`; the rest need no reading any more."""
        taken: set[int] = set()
        while self._ids and len(taken) < count:
            job_id, _ = self._ids.popitem()
            if job_id in among:
                taken.add(job_id)
        return taken

    def put_back(self, ids: Iterable[int]) -> None:
        """Have these to read after all, next."""
        self._ids |= dict.fromkeys(sorted(ids))

    def have_read(self, jobs: Iterable[Job]) -> None:
        """Take note of records that were taken from here: all that is left is older than they are."""
        if not self._ids:
            self.all_read()
            return
        # A job that was put back into the queue counts as submitted then, which is later than it was.
        submitted = (float(job.submit_time.value or 0) for job in jobs)
        self._read_back_to = min([self._read_back_to, *(it for it in submitted if it)])

    def all_read(self) -> None:
        """Record that nothing is left of what was there in the beginning."""
        self._read_back_to = _ALL_KNOWN

    def knows_since(self, moment: float) -> bool:
        """Whether every job that was submitted at this time (in seconds since 1970) or later has been read."""
        return self._read_back_to < moment - _CLOCKS


class Sweep:
    """Which ids to ask about next, so that all of them have their turn."""

    def __init__(self) -> None:
        self.newest = 0
        self._slices: list[tuple[int, ...]] = []

    def note(self, job_id: int) -> None:
        if not self.newest or newer(job_id, self.newest):
            self.newest = job_id

    @property
    def is_over(self) -> bool:
        return not self._slices

    def begin(self, ids: Iterable[int]) -> None:
        """Begin again; what may have come since is asked about first."""
        self._slices = [*reversed(slices(ids)), self.ahead()]

    def take(self) -> tuple[int, ...]:
        """Take the next slice."""
        return self._slices.pop()

    def ahead(self) -> tuple[int, ...]:
        """The ids that Slurm gives next."""
        return tuple((self.newest + number) % JOB_IDS for number in range(1, SLICE + 1))

    def go_on(self) -> None:
        """Ask about those that come next, too, because some of the last ones were there."""
        self._slices.append(self.ahead())


def slices(ids: Iterable[int], size: int = SLICE) -> list[tuple[int, ...]]:
    """Cut ids into slices, in their order."""
    ordered = sorted(ids)
    return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]
