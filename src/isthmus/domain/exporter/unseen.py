"""What the accounts say about runs that Slurm's lists did not show to their end, and what is done about them.

A run may leave slurmctld before its end was seen: the exporter was down for longer than MinJobAge, or a job was
requeued between two polls. slurmdbd has it. Each run is counted once, so one that the lists may still show has to
wait.
"""

from collections.abc import Callable, Iterable
from typing import Final

from isthmus.domain.exporter.jobledger import UNKNOWN, Ending, JobLedger
from isthmus.domain.exporter.jobrun import REQUEUED, JobRun

SETTLED_AFTER: Final = 120.0
"""A run that ended so many seconds ago has been seen by the poller, or will never be."""

GIVEN_UP_AFTER: Final = 60.0
"""So long a run may be missing where there are no accounts."""

GIVEN_UP_BY_ACCOUNTS_AFTER: Final = 900.0
"""And so long if there are: slurmctld may report its end to slurmdbd late."""


def settle(
    ledger: JobLedger, uncounted: Iterable[tuple[JobRun, bool]], *, listed: Callable[[JobRun], bool], now: float
) -> list[JobRun]:
    """Count runs that only the accounts know; return those that are done with.

    Each comes with whether the accounts have a later run of the same job. `listed` says whether slurmctld still has
    a job.
    """
    done = []
    for run, has_later in sorted(uncounted, key=lambda it: it[0].submit):
        latest = ledger.latest(run.name)
        requeued = has_later or run.state == REQUEUED or (latest is not None and latest > run.submit)
        if run.end < ledger.since or ledger.settle(run.name, run.run, run.ending, requeued=requeued):
            done.append(run)
        elif run.end > now - SETTLED_AFTER:
            continue
        elif requeued:
            ledger.settle_requeued(run.run, run.ending)
            done.append(run)
        elif latest is None and not listed(run):
            ledger.settle_unseen(run.run, run.ending)
            done.append(run)
    return done


def give_up(ledger: JobLedger, *, patience: float, now: float) -> list[JobRun]:
    """Let missing runs end as "unknown" if accounting will not report them any more; return them."""
    lost = [(name, it.run) for name, it in ledger.missing() if now - it.since > patience]
    for name, run in lost:
        ledger.settle(name, run, Ending(UNKNOWN))
    return [
        JobRun(
            job_id=run.job_id,
            submit=run.submit,
            name=name,
            partition=run.whose[0],
            account=run.whose[1],
            qos=run.whose[2],
            state=UNKNOWN,
            end=int(now),
        )
        for name, run in lost
        if run.job_id
    ]
