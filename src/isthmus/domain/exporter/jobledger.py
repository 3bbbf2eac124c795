"""Counts what happens to jobs, from their records, however often and however late these are read.

    submitted ─► started ─► ended                  each is counted once for each run of a job
         ▲          │
         └─ requeue ┘                              which begins a new run: `restart_cnt` grows, then the submit time

A record tells everything that happened to its run so far. So a job that came and went between two polls counts in
full, and one that is read twice counts once. What the very first look finds is where counting begins: such a job is
not submitted now, but it will start and end.

- The tasks of an array count one by one. Those that have not begun share one record.
- The components of a heterogeneous job count one by one, as in the accounts.
- A job id that comes back with another submit time and no restart is another job: slurmctld forgot the first one.
- The wait of a run is its start less its submission, which a requeue sets anew, as in `sacct -D`. The time until a
  job is eligible (a dependency, `--begin`) is part of it.
- A run that is requeued counts as requeued, and not as ended: `started = ended + requeued + running`.
- A run that leaves Slurm before its end was seen is missing. The accounts tell how it ended; if they do not, or if
  there are none, it ended as "unknown". Its record may still come after that, as that of an array's task may, which
  leaves the array's record a poll before it has its own.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from isthmus.domain.exporter import catalog
from isthmus.domain.exporter.arrays import Array, Arrays, Left, shares
from isthmus.domain.exporter.arraytasks import key, tasks_of
from isthmus.domain.exporter.exposition import Family
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.runfacts import Whose, has_started, ran, submitted_at, whose
from isthmus.domain.exporter.tallies import Histogram, Tally
from isthmus.model.slurm import Job

UNKNOWN: Final = "unknown"
_MAX_SETTLED: Final = 1000
"""So many of the latest runs from accounting are remembered: a record comes within seconds or never."""
_PREEMPTED: Final = "preempted"


class Run(msgspec.Struct, array_like=True):
    """What is known and counted of the latest run of a job."""

    job_id: int
    submit: int
    restarts: int
    whose: Whose
    started: bool = False
    ended: bool = False
    preempted: int = 0
    """When, in seconds since 1970."""
    start: int = 0
    """When it started, or the run before it did: a record keeps that until the nodes have been cleaned up."""


class Missing(msgspec.Struct, array_like=True):
    """A run that is in no list any more, and whose end was not seen."""

    run: Run
    since: float


class Ending(msgspec.Struct, frozen=True):
    """What became of a run, by the accounts. Times are seconds since 1970, 0 for what never happened."""

    state: str
    start: int = 0
    elapsed: int = 0


class Saved(msgspec.Struct):
    since: float
    runs: dict[str, Run]
    arrays: dict[int, Array]
    missing: list[tuple[str, Missing]]
    settled: dict[str, Run] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Saved).decode


class JobLedger:
    def __init__(self, limits: Limits) -> None:
        def tally(family: Family) -> Tally:
            return Tally(family, limit=limits.series)

        self.since = 0.0
        """When counting began, in seconds since 1970."""
        self.submitted = tally(catalog.JOBS_SUBMITTED)
        self.started = tally(catalog.JOBS_STARTED)
        self.ended = tally(catalog.JOBS_ENDED)
        self.requeued = tally(catalog.JOBS_REQUEUED)
        self.preempted = tally(catalog.JOBS_PREEMPTED)
        self.wait = Histogram(catalog.JOB_WAIT, limit=limits.series)
        self.run = Histogram(catalog.JOB_RUN, limit=limits.series)
        self._runs: dict[str, Run] = {}
        self._arrays = Arrays({})
        self._missing: dict[str, dict[int, Missing]] = {}
        """By name and time of submission."""
        self._settled: dict[str, Run] = {}
        """Runs that were missing, and whose end accounting has reported."""

    @property
    def tallies(self) -> tuple[Tally | Histogram, ...]:
        return self.submitted, self.started, self.ended, self.requeued, self.preempted, self.wait, self.run

    def save(self) -> bytes:
        """Write down what is known of jobs; the tallies are saved apart."""
        return _encode(Saved(self.since, self._runs, self._arrays.known, list(self.missing()), self._settled))

    def load(self, text: bytes) -> None:
        """Take over what was saved; raises `msgspec.MsgspecError` if this is something else."""
        saved = _decode(text)
        self.since, self._runs, self._arrays = saved.since, saved.runs, Arrays(saved.arrays)
        self._settled = saved.settled
        for name, it in saved.missing:
            self._miss(name, it.run, it.since)

    # What Slurm shows

    def see(self, job: Job, *, now: float, before: bool = False) -> Run | None:
        """Count what is new in a record; with `before`, take it as what was there when counting began.

        Returns the run before this one, if it was seen to start and is over by a requeue.
        """
        if not shares(job):
            return self._see_run(key(job), job, now=now, before=before)
        news = self._arrays.see(job, before=before)
        self.submitted.add(news.array.whose, news.fresh)
        if not before:
            self.ended.add((*news.array.whose, job.job_state[0].lower()), news.over)
        self._miss_tasks(news.left, now)
        return None

    def has_ended(self, job: Job) -> bool:
        """Whether the end of what this record is about has been seen before."""
        if shares(job):
            return self._arrays.has_ended(job)
        run = self._runs.get(key(job))
        return run is not None and (run.submit, run.ended) == (submitted_at(job), True)

    def _see_run(self, name: str, job: Job, *, now: float, before: bool) -> Run | None:
        known = self._runs.get(name)
        if known is not None and _is_another(job, known):
            self._miss(name, known, now)
            known = None
        submitted = 1
        if job.array_job_id.value:
            news = self._arrays.see(job, before=before)
            self._miss_tasks(news.left, now)
            submitted = news.fresh
        if known is None:
            known = self._found_again(name, job)
        superseded = None
        run = Run(job.job_id, submitted_at(job), job.restarts, whose(job))
        if known is None:
            if not before:
                self.submitted.add(run.whose, submitted)
                self.requeued.add(run.whose, job.restarts)
        elif job.restarts > known.restarts:
            self.requeued.add(known.whose, job.restarts - known.restarts)
            run.preempted, run.start = known.preempted, known.start
            superseded = known if known.started and not known.ended else None
        else:
            run.started, run.ended = known.started, known.ended
            run.preempted, run.start = known.preempted, known.start
        self._runs[name] = run
        self._count(run, job, counts=not before)
        return superseded

    def _count(self, run: Run, job: Job, *, counts: bool) -> None:
        """Count what a run did since it was looked at last."""
        preempted, start = int(job.preempt_time.value or 0), int(job.start_time.value or 0)
        if preempted and preempted != run.preempted:
            run.preempted = preempted
            if counts:
                self.preempted.add(run.whose)
        if not run.started and has_started(job) and start != run.start:
            run.started, run.start = True, start
            if counts:
                self.started.add(run.whose)
                self.wait.observe(run.whose, max(0, start - run.submit))
        if not run.ended and job.has_ended:
            run.ended = True
            if counts:
                self._end(run, Ending(job.job_state[0].lower(), start, ran(job)))

    def _end(self, run: Run, ending: Ending) -> None:
        self.ended.add((*run.whose, ending.state))
        if run.started:
            self.run.observe(run.whose, max(0, ending.elapsed))
        if ending.state == _PREEMPTED and run.preempted < ending.start:
            self.preempted.add(run.whose)

    # What Slurm does not show any more

    def gone(self, job: Job, *, now: float) -> None:
        """Take note that a job, of which this was the last record, is in no list any more."""
        name = key(job)
        run = self._runs.get(name)
        if not shares(job) and run is not None and run.job_id == job.job_id:
            del self._runs[name]
            if not run.ended:
                self._miss(name, run, now)
        if left := self._arrays.gone(job):
            self._miss_tasks([left], now)

    def keep_only(self, present: Collection[Job], *, now: float) -> None:
        """Compare what was loaded with all jobs there are: others have left while nobody looked."""
        names = {key(job) for job in present}
        for name in [name for name in self._runs if name not in names]:
            run = self._runs.pop(name)
            if not run.ended:
                self._miss(name, run, now)
        self._miss_tasks(self._arrays.keep_only({job.job_id for job in present}), now)

    def missing(self) -> Iterator[tuple[str, Missing]]:
        """List the runs whose end was not seen."""
        for name, by_submit in list(self._missing.items()):
            for it in list(by_submit.values()):
                yield name, it
            if not by_submit:
                del self._missing[name]

    def latest(self, name: str) -> int | None:
        """When the latest run of a job in Slurm's lists was submitted; None if it has none there."""
        run = self._runs.get(name)
        return run.submit if run else None

    # Data from accounting

    def settle(self, name: str, run: Run, ending: Ending, *, requeued: bool = False) -> bool:
        """Count what became of a missing run; False if it is not missing. One that was requeued stays missing."""
        by_submit = self._missing.get(name, {})
        # A run that is requeued has the number of the next one for a while, and still its own time of submission.
        # One without restarts and with another time is another job that got the same id.
        candidates = (it for it in by_submit.values() if run.restarts or it.run.submit == run.submit)
        same = max(
            (it for it in candidates if it.run.submit <= run.submit and it.run.restarts <= run.restarts),
            key=lambda it: it.run.submit,
            default=None,
        )
        if same is None:
            return False
        known = same.run
        del by_submit[known.submit]
        if known.restarts < run.restarts:
            self.requeued.add(known.whose, run.restarts - known.restarts)
            known.started = False
        known.submit, known.restarts = run.submit, run.restarts
        self._settle_start(known, ending)
        if requeued:
            self._miss(name, known, same.since)
        else:
            self._end(known, ending)
            known.ended = True
            self._settled[name] = known
            while len(self._settled) > _MAX_SETTLED:
                del self._settled[next(iter(self._settled))]
        return True

    def settle_unseen(self, run: Run, ending: Ending) -> None:
        """Count all of the last run of a job that was in no list that we saw."""
        if run.submit >= self.since:
            self.submitted.add(run.whose)
        self.requeued.add(run.whose, run.restarts)
        self._settle_start(run, ending)
        self._end(run, ending)

    def settle_requeued(self, run: Run, ending: Ending) -> None:
        """Count the start of an earlier run of a job, which was in no list that we saw."""
        self._settle_start(run, ending)

    def _settle_start(self, run: Run, ending: Ending) -> None:
        if ending.start and not run.started:
            run.started = True
            if ending.start >= self.since:
                self.started.add(run.whose)
                self.wait.observe(run.whose, max(0, ending.start - run.submit))

    def _miss(self, name: str, run: Run, since: float) -> None:
        self._missing.setdefault(name, {})[run.submit] = Missing(run, since)

    def _miss_tasks(self, left: Iterable[Left], now: float) -> None:
        for array_id, array, tasks in left:
            for task in tasks_of(tasks):
                name = f"{array_id}_{task}"
                if name not in self._runs:
                    self._miss(name, Run(0, array.submit, 0, array.whose), now)

    def _found_again(self, name: str, job: Job) -> Run | None:
        """Find the run that was missing: it is there after all, or runs again, or the accounts were quicker."""
        by_submit = self._missing.get(name, {})
        for submit, it in by_submit.items():
            if submit == submitted_at(job) or not _is_another(job, it.run):
                del by_submit[submit]
                return it.run
        settled = self._settled.get(name)
        return settled if settled is not None and settled.submit == submitted_at(job) else None


def _is_another(job: Job, known: Run) -> bool:
    """Whether a record is that of another job than the one that had this id. The time of a requeue comes late."""
    return submitted_at(job) != known.submit and job.restarts in range(max(1, known.restarts))
