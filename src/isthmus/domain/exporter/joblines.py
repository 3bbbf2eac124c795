"""The series that Soperator's exporter has for each job."""

from collections.abc import Callable
from typing import NamedTuple

from isthmus.domain.exporter import catalog as c
from isthmus.domain.exporter.exposition import number
from isthmus.domain.exporter.jobfacts import resources
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import Job, Number

PlaceOf = Callable[[str], tuple[str, str]]
"""Tells the NVLink instance group and the NodeSet of a node, or two empty texts."""

_MAX_NODES = 1 << 16


class JobLines(NamedTuple):
    """The lines of one job; empty where there is nothing to say."""

    info: str
    nodes: str
    cpus: str
    memory: str
    duration: str
    """Of a job that is over."""
    running: str
    """Of a job that runs: the line of its duration without the value."""
    started: float


def lines(job: Job, *, place_of: PlaceOf = lambda _: ("", "")) -> JobLines:
    job_id = str(job.job_id)
    has = resources(job)
    start, end = _second(job.start_time), _second(job.end_time)
    running = c.JOB_DURATION.series((job_id,)) if _runs(job) and start else ""
    over = job.has_ended and 0 < start < end
    return JobLines(
        info=c.JOB_INFO.line(_labels(job, job_id), 1),
        nodes="".join(c.NODE_JOB.line((job_id, node, *place_of(node)), 1) for node in _nodes(job)),
        cpus=c.JOB_CPUS.line((job_id,), has.cpus) if has.cpus else "",
        memory=c.JOB_MEMORY.line((job_id,), has.memory) if has.memory else "",
        duration=f"{c.JOB_DURATION.series((job_id,))}{number(end - start)}\n" if over else "",
        running=running,
        started=start,
    )


def _labels(job: Job, job_id: str) -> tuple[str, ...]:
    return (
        job_id,
        job.job_state[0] if job.job_state else "",
        job.state_reason,
        job.partition or "",
        job.name or "",
        job.user_name or "",
        job.mail_user or "",
        "" if job.user_id is None else str(job.user_id),
        job.standard_error or "",
        job.standard_output or "",
        _moment(job.array_job_id),
        _task(job),
        _moment(job.submit_time),
        _moment(job.start_time),
        _moment(job.end_time),
        _moment(job.end_time) if job.has_ended else "",
    )


def _runs(job: Job) -> bool:
    return job.job_state[:1] in {("RUNNING",), ("SUSPENDED",)}


def _nodes(job: Job) -> list[str]:
    if not job.nodes:
        return []
    try:
        return hostlist.expand(job.nodes, limit=_MAX_NODES)
    except hostlist.HostListError:
        return []


def _moment(value: Number) -> str:
    return str(int(value.value)) if value.value and value.value != float("inf") else ""


def _task(job: Job) -> str:
    """Write the number of a task, which may be 0."""
    found = job.array_task_id.value if job.array_job_id.value else None
    return "" if found is None else str(int(found))


def _second(value: Number) -> float:
    return float(value.value or 0)
