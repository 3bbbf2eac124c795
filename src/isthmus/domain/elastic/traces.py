"""Traces of jobs to play against a policy: the Standard Workload Format, and what `sacct` prints.

    SWF     lines of 18 numbers, comments after `;` (MaxNodes, MaxProcs and UnixStartTime are read)
    sacct   sacct --allusers --parsable2 --format=JobID,Submit,Eligible,NNodes,ElapsedRaw,Timelimit,Priority

Of sacct, more columns do no harm and the order is free; JobID, Submit, NNodes and either ElapsedRaw or Elapsed are
needed. Times are read as UTC (`TZ=UTC sacct …`). Jobs that never ran, steps and lines that cannot be read are left
out and counted. A job uses whole nodes: processors of SWF become nodes by MaxProcs and MaxNodes.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from isthmus.domain.languages import slurmtime
from isthmus.errors import Terminal

_EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
"""Where a trace does not say when it begins: midnight of a Monday."""

_SWF_FIELDS: Final = 11
"""Status and what is before it; shorter lines are not read."""

_YEAR_S: Final = 365 * 86400.0
"""What Slurm plans with for a job without a limit."""

_NEEDED: Final = ("JobID", "Submit", "NNodes")


class TraceError(Terminal):
    """There is no trace in the text."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """One job of a trace. Times are seconds since 1970."""

    name: str
    submit: float
    """When it could have started at the earliest."""
    nodes: int
    runtime: float
    limit: float
    """What it asked for; its run time where that is not known, or was longer."""
    priority: float = 0.0


class Trace(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission."""

    jobs: tuple[Job, ...]
    skipped: int = 0
    """Lines that are no job that ran."""
    nodes: int | None = None
    """How many nodes the cluster had, if the trace says so."""

    @property
    def largest(self) -> int:
        """Nodes of the largest job."""
        return max((it.nodes for it in self.jobs), default=0)


def read(text: str, *, cpus_per_node: int | None = None) -> Trace:
    """Read either format. Raise TraceError if no job can be read."""
    lines = text.splitlines()
    first = next((it for it in lines if it.strip()), "")
    found = _read_sacct(lines) if "|" in first else _read_swf(lines, cpus_per_node)
    if not found.jobs:
        raise TraceError(
            "the trace has no job that ran",
            remedy="give a file in the Standard Workload Format, or the output of `TZ=UTC sacct --allusers"
            " --parsable2 --format=JobID,Submit,Eligible,NNodes,ElapsedRaw,Timelimit`",
        )
    return found


def write_swf(trace: Trace) -> str:
    """Write a trace in the Standard Workload Format, one processor for each node."""
    start = math.floor(trace.jobs[0].submit) if trace.jobs else 0
    size = trace.nodes or trace.largest
    head = [f"; UnixStartTime: {start}", f"; MaxNodes: {size}", f"; MaxProcs: {size}"]
    lines = [
        f"{place} {job.submit - start:.0f} -1 {job.runtime:.0f} {job.nodes} -1 -1 {job.nodes} {job.limit:.0f}"
        " -1 1 -1 -1 -1 -1 -1 -1 -1"
        for place, job in enumerate(trace.jobs, 1)
    ]
    return "\n".join((*head, *lines, ""))


def _ordered(jobs: Iterable[Job], *, skipped: int, nodes: int | None = None) -> Trace:
    return Trace(tuple(sorted(jobs, key=lambda it: (it.submit, it.name))), skipped, nodes)


def _read_swf(lines: Iterable[str], cpus_per_node: int | None) -> Trace:
    head: dict[str, str] = {}
    rows: list[list[str]] = []
    skipped = 0
    for line in lines:
        if line.lstrip().startswith(";"):
            name, _, value = line.lstrip("; \t").partition(":")
            head[name.strip()] = value.strip()
        elif words := line.split():
            rows.append(words)
    start = _number(head.get("UnixStartTime", "")) or _EPOCH
    size = _whole(head.get("MaxNodes", ""))
    processors = _whole(head.get("MaxProcs", ""))
    per_node = cpus_per_node or (max(1, round(processors / size)) if size and processors else 1)
    jobs = []
    for words in rows:
        if (job := _swf_job(words, start, per_node)) is None:
            skipped += 1
        else:
            jobs.append(job)
    return _ordered(jobs, skipped=skipped, nodes=size or (processors // per_node if processors else None))


def _swf_job(words: list[str], start: float, per_node: int) -> Job | None:
    if len(words) < _SWF_FIELDS:
        return None
    numbers = [_number(it) for it in words[:_SWF_FIELDS]]
    submit, runtime, allocated, asked, limit = (numbers[it] for it in (1, 3, 4, 7, 8))
    processors = allocated if allocated and allocated > 0 else asked
    if submit is None or submit < 0 or not runtime or runtime <= 0 or not processors or processors <= 0:
        return None
    return Job(
        name=words[0],
        submit=start + submit,
        nodes=math.ceil(processors / per_node),
        runtime=runtime,
        limit=max(limit or 0.0, runtime),
    )


def _read_sacct(lines: Iterable[str]) -> Trace:
    rows = iter(lines)
    columns = next((it for it in rows if it.strip()), "").strip().split("|")
    missing = [it for it in _NEEDED if it not in columns]
    if not {"ElapsedRaw", "Elapsed"} & set(columns):
        missing.append("ElapsedRaw")
    if missing:
        raise TraceError(
            f"the output of sacct has no column {', '.join(missing)}",
            remedy="call `TZ=UTC sacct --allusers --parsable2"
            " --format=JobID,Submit,Eligible,NNodes,ElapsedRaw,Timelimit` and keep its first line",
        )
    jobs = []
    skipped = 0
    for line in rows:
        row = dict(zip(columns, line.strip().split("|"), strict=False))
        if not line.strip() or "." in row.get("JobID", "."):
            continue  # a step of a job
        if (job := _sacct_job(row)) is None:
            skipped += 1
        else:
            jobs.append(job)
    return _ordered(jobs, skipped=skipped)


def _sacct_job(row: dict[str, str]) -> Job | None:
    submit = next(_times(row.get(it, "") for it in ("Eligible", "Submit")), None)
    nodes = _whole(row.get("NNodes", ""))
    runtime = _number(row.get("ElapsedRaw", "")) or _duration(row.get("Elapsed", ""))
    if submit is None or not nodes or not runtime or runtime <= 0:
        return None
    raw = _number(row.get("TimelimitRaw", ""))
    limit = raw * 60 if raw else _duration(row.get("Timelimit", ""))
    return Job(
        name=row["JobID"],
        submit=submit,
        nodes=nodes,
        runtime=runtime,
        limit=max(limit or 0.0, runtime),
        priority=_number(row.get("Priority", "")) or 0.0,
    )


def _times(texts: Iterable[str]) -> Iterator[float]:
    for text in texts:
        if (number := _number(text)) is not None:
            yield number
            continue
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            continue  # such as Unknown, of a job that is held
        yield (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _duration(text: str) -> float | None:
    try:
        seconds = slurmtime.parse_duration(text)
    except slurmtime.TimeError:
        return None  # such as Partition_Limit
    return min(seconds, _YEAR_S)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(text: str) -> int | None:
    number = _number(text)
    return int(number) if number and number > 0 else None
