"""What the poller knows of jobs, as sums, and, where they are wanted, as Soperator's series for each job."""

from collections.abc import Callable, Iterable, Iterator

from isthmus.domain.exporter import catalog, jobfacts, joblines, jobsums
from isthmus.domain.exporter.sets import Waiting
from isthmus.domain.exporter.sums import Sums
from isthmus.exporter.lines import Lines
from isthmus.model.slurm import Job
from isthmus.slurm.store import Store


class JobSums:
    """Follows the jobs of a poller, and adds them up."""

    def __init__(self, store: Store[int, Job]) -> None:
        self.sums = Sums()
        self._waiting: dict[int, Waiting] = {}
        store.on_change(self._changed)

    def waiting(self) -> Iterable[Waiting]:
        return self._waiting.values()

    def _changed(self, job_id: int, old: Job | None, new: Job | None) -> None:
        if old is not None:
            was = jobfacts.facts(old)
            self.sums.add(jobsums.groups(was), jobsums.amounts(was), sign=-1)
            self._waiting.pop(job_id, None)
        if new is not None:
            now = jobfacts.facts(new)
            self.sums.add(jobsums.groups(now), jobsums.amounts(now))
            if now.pending:
                self._waiting[job_id] = Waiting.of(now)


class PerJob:
    """Soperator's series for each job."""

    def __init__(self, *, place_of: joblines.PlaceOf = lambda _: ("", "")) -> None:
        self._place_of = place_of
        self._lines = {
            field: Lines[int](family)
            for field, family in (
                ("info", catalog.JOB_INFO),
                ("nodes", catalog.NODE_JOB),
                ("cpus", catalog.JOB_CPUS),
                ("memory", catalog.JOB_MEMORY),
            )
        }
        self._over: dict[int, str] = {}
        self._running: dict[int, tuple[str, float]] = {}

    def follow(self, store: Store[int, Job]) -> None:
        """Take every change of a poller's jobs."""
        store.on_change(lambda job_id, _, new: self.drop(job_id) if new is None else self.put(new))

    def put_all(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.put(job)

    def put(self, job: Job) -> None:
        found = joblines.lines(job, place_of=self._place_of)
        for field, lines in self._lines.items():
            lines.put(job.job_id, getattr(found, field))
        self._over.pop(job.job_id, None)
        self._running.pop(job.job_id, None)
        if found.duration:
            self._over[job.job_id] = found.duration
        elif found.running:
            self._running[job.job_id] = found.running, found.started

    def drop(self, job_id: int) -> None:
        for lines in self._lines.values():
            lines.drop(job_id)
        self._over.pop(job_id, None)
        self._running.pop(job_id, None)

    def text(self, now: float) -> Iterator[str]:
        yield from (lines.text() for lines in self._lines.values())
        if self._over or self._running:
            yield catalog.JOB_DURATION.head
            yield "".join(self._over.values())
            # Slurm's clock may be ahead of ours, and no job runs for less than no time.
            yield "".join([f"{it}{max(0, int(now - since))}\n" for it, since in self._running.values()])


class Gate:
    """Lets families of jobs through once all jobs have been read, and for ever after.

    A sum over a part of the queue would look like a queue that is almost empty.
    """

    def __init__(self, is_complete: Callable[[], bool], *behind: Callable[[float], Iterable[str]]) -> None:
        self._is_complete = is_complete
        self._behind = behind
        self._open = False

    def text(self, now: float) -> Iterator[str]:
        self._open = self._open or self._is_complete()
        if self._open:
            for text in self._behind:
                yield from text(now)
