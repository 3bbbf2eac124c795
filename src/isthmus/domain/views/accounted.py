"""A job as slurmdbd remembers it, in the shape in which slurmctld tells of jobs: both are shown alike."""

from collections.abc import Iterable
from typing import Final

from isthmus.model.slurm import Job, Number
from isthmus.model.slurmdb import PastJob, PastTres

_MEGABYTES: Final = "mem"


def job_of(past: PastJob) -> Job:
    times = past.time
    began = bool(times.start and past.tres.allocated)
    return Job(
        past.job_id,
        past.state.current,
        name=past.name,
        user_name=past.user or "",
        account=past.account,
        partition=past.partition.partition(",")[0],
        qos=past.qos,
        nodes=past.nodes if began else "",
        state_reason=past.state.reason or "None",
        submit_time=_moment(times.submission),
        eligible_time=_moment(times.eligible),
        start_time=_moment(times.start if began else 0),
        end_time=_moment(times.end),
        array_job_id=_moment(past.array.job_id),
        array_task_id=past.array.task_id,
        exit_code=past.exit_code,
        restarts=past.restarts,
        standard_output=past.stdout_expanded or past.stdout,
        admin_comment=past.comment.administrator or "",
        tres_requested=_text(past.tres.requested),
        tres_allocated=_text(past.tres.allocated),
    )


def _moment(seconds: int) -> Number:
    return Number.of(seconds) if seconds else Number()


def _text(tres: Iterable[PastTres]) -> str:
    named = ((f"{it.type}/{it.name}" if it.name else it.type, it.count) for it in tres)
    return ",".join(f"{name}={count}{'M' if name == _MEGABYTES else ''}" for name, count in named)
