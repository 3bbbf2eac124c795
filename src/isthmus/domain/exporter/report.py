"""Usage of jobs, summed up by users, accounts, partitions, QOS, namespaces, days, weeks.

A run of a job counts when it ended within the span of time. Runs that were requeued used CPUs and GPUs, but they
are not jobs that ended. Efficiency is that of runs whose usage was measured: without accounting, and for pods, it
is not known.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from isthmus.domain.languages import gotime
from isthmus.errors import Terminal

DEFAULT_SPAN: Final = 7 * 86400.0
IDLE_BELOW: Final = 0.05
IDLE_AFTER: Final = 600
"""An allocation is idle that used less than this part of its CPUs and lasted longer than these seconds."""

KINDS: Final = ("slurm", "pod")
_REQUEUED: Final = "requeued"
_COMPLETED: Final = "completed"
_HOUR: Final = 3600
_DAYS: Final = re.compile(r"(\d{1,5})([dw])", re.ASCII)
_DAYS_OF: Final = {"d": 1, "w": 7}


class Usage(NamedTuple):
    """What a report reads of a run; times are seconds since 1970, memory is in bytes."""

    user: str
    account: str
    partition: str
    qos: str
    namespace: str
    kind: str
    state: str
    submit: int
    start: int
    end: int
    elapsed: int
    cpus: int
    gpus: int
    memory: int
    cpu_seconds: float | None
    max_memory: int | None


COLUMNS: Final = Usage._fields


def _day(run: Usage) -> str:
    return f"{datetime.fromtimestamp(run.end, UTC):%Y-%m-%d}"


def _week(run: Usage) -> str:
    """Name a week by its Monday."""
    end = datetime.fromtimestamp(run.end, UTC)
    return f"{end - timedelta(days=end.weekday()):%Y-%m-%d}"


_GROUPS: Final[Mapping[str, Callable[[Usage], str]]] = {
    "user": lambda run: run.user,
    "account": lambda run: run.account,
    "partition": lambda run: run.partition,
    "qos": lambda run: run.qos,
    "namespace": lambda run: run.namespace,
    "kind": lambda run: run.kind,
    "day": _day,
    "week": _week,
}
BY: Final = tuple(_GROUPS)
_PARAMETERS: Final = ("since", "until", "by", "user", "account", "partition", "kind")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is about. Times are seconds since 1970; an empty filter takes all."""

    since: float
    until: float
    by: str = "user"
    user: str = ""
    account: str = ""
    partition: str = ""
    kind: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One group. What is not known is null."""

    group: str
    jobs: int
    success_rate: float | None
    """The part of the jobs that completed."""
    cpu_hours: float
    gpu_hours: float
    cpu_efficiency: float | None
    memory_efficiency: float | None
    wait_mean: float | None
    wait_p95: float | None
    """In seconds, from submission to start."""
    idle: int
    """Allocations that used next to nothing."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    since: float
    until: float
    by: str
    lines: tuple[Line, ...]
    total: Line


def parse(parameters: Mapping[str, str], *, now: float) -> Query:
    """Read the parameters of a request; raises `Terminal` for one that is wrong."""
    for name in parameters:
        if name not in _PARAMETERS:
            raise Terminal(f"there is no parameter {name[:40]!r}", remedy=f"use {', '.join(_PARAMETERS)}")
    until = moment(parameters.get("until") or "0s", now=now)
    since = moment(parameters["since"], now=now) if parameters.get("since") else until - DEFAULT_SPAN
    by, kind = parameters.get("by") or "user", parameters.get("kind") or ""
    if by not in _GROUPS:
        raise Terminal(f"a report by {by[:40]!r} is not possible", remedy=f"use one of {', '.join(BY)}")
    if kind and kind not in KINDS:
        raise Terminal(f"there is no kind {kind[:40]!r}", remedy=f"use one of {', '.join(KINDS)}")
    if since >= until:
        raise Terminal("the report would begin at its end or later", remedy="give a `since` before `until`")
    return Query(
        since=since,
        until=until,
        by=by,
        kind=kind,
        user=parameters.get("user") or "",
        account=parameters.get("account") or "",
        partition=parameters.get("partition") or "",
    )


def moment(text: str, *, now: float) -> float:
    """Read a time: a date or time in ISO 8601, by default in UTC, or how long ago it was: 12h, 7d, 4w."""
    if match := _DAYS.fullmatch(text):
        return now - int(match[1]) * _DAYS_OF[match[2]] * 86400
    try:
        return now - gotime.parse_duration(text)
    except gotime.GoTimeError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Terminal(
            f"{text[:40]!r} is not a valid time", remedy="write 2026-11-01, 2026-11-01T08:00, or 12h, 7d or 4w ago"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def report(runs: Iterable[Usage], query: Query) -> Report:
    """Sum up; the largest use of CPUs comes first."""
    group = _GROUPS[query.by]
    sums: dict[str, _Sums] = {}
    total = _Sums()
    for run in runs:
        name = group(run)
        for each in (sums.setdefault(name, _Sums()), total):
            each.add(run)
    lines = sorted((each.line(name) for name, each in sums.items()), key=lambda it: (-it.cpu_hours, it.group))
    return Report(since=query.since, until=query.until, by=query.by, lines=tuple(lines), total=total.line("total"))


class _Sums:
    def __init__(self) -> None:
        self.jobs = self.completed = self.idle = 0
        self.cpu_seconds = self.gpu_seconds = 0
        self.used = self.usable = self.memory_used = self.memory_usable = 0.0
        self.waits: list[int] = []

    def add(self, run: Usage) -> None:
        if run.state != _REQUEUED:
            self.jobs += 1
            self.completed += run.state == _COMPLETED
        if not run.start:
            return
        self.waits.append(max(0, run.start - run.submit))
        allocated = run.cpus * run.elapsed
        self.cpu_seconds += allocated
        self.gpu_seconds += run.gpus * run.elapsed
        if run.cpu_seconds is not None and allocated:
            self.used += run.cpu_seconds
            self.usable += allocated
            self.idle += run.elapsed > IDLE_AFTER and run.cpu_seconds < IDLE_BELOW * allocated
        if run.max_memory is not None and run.memory:
            # A long run weighs more than a short one.
            self.memory_used += run.max_memory * run.elapsed
            self.memory_usable += run.memory * run.elapsed

    def line(self, group: str) -> Line:
        waits = sorted(self.waits)
        return Line(
            group=group,
            jobs=self.jobs,
            success_rate=_ratio(self.completed, self.jobs),
            cpu_hours=self.cpu_seconds / _HOUR,
            gpu_hours=self.gpu_seconds / _HOUR,
            cpu_efficiency=_ratio(self.used, self.usable),
            memory_efficiency=_ratio(self.memory_used, self.memory_usable),
            wait_mean=_ratio(sum(waits), len(waits)),
            wait_p95=float(waits[math.ceil(0.95 * len(waits)) - 1]) if waits else None,
            idle=self.idle,
        )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
