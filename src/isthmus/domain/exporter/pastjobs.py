"""Jobs as slurmdbd has them, in the shape in which slurmctld gives them."""

from collections.abc import Iterable
from typing import Final

from isthmus.model.slurm import Job, Number
from isthmus.model.slurmdb import PastJob, PastTres

_STALE: Final = 30 * 86400
"""A job that has waited for so many seconds is most likely gone, and slurmdbd never heard of its end."""


def is_stale(job: PastJob, *, now: float) -> bool:
    """Whether a job only seems to wait."""
    return job.state.current[:1] == ("PENDING",) and 0 < job.time.submission < now - _STALE


def as_job(past: PastJob) -> Job:
    """Write an accounted job as slurmctld would."""
    return Job(
        job_id=past.job_id,
        job_state=past.state.current,
        name=past.name,
        state_reason=past.state.reason,
        user_name=past.user,
        account=past.account,
        partition=past.partition,
        qos=past.qos,
        nodes="" if past.nodes == "None assigned" else past.nodes,
        array_job_id=Number.of(past.array.job_id) if past.array.job_id else Number(),
        array_task_id=past.array.task_id,
        submit_time=_moment(past.time.submission),
        start_time=_moment(past.time.start),
        end_time=_moment(past.time.end),
        tres_requested=_written(past.tres.requested),
        tres_allocated=_written(past.tres.allocated),
        standard_output=past.stdout_expanded or past.stdout,
        standard_error=past.stderr_expanded or past.stderr,
    )


def _moment(second: int) -> Number:
    return Number.of(second) if second else Number()


def _written(tres: Iterable[PastTres]) -> str:
    """Write TRES as slurmctld does. Both count memory in megabytes; what is not known is negative in slurmdbd."""
    words = []
    for it in (each for each in tres if each.count >= 0):
        name = f"{it.type}/{it.name}" if it.name else it.type
        words.append(f"{name}={it.count}M" if name == "mem" else f"{name}={it.count}")
    return ",".join(words)
