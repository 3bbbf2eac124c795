"""What holds of `spec.autoscale` at a moment: limits in numbers, each with the reason for it.

    size (replicas)  ─► max  ─► schedule ─► budget  ─► maximum     no more nodes than this are on
                        min  ─► schedule ─► ≤ max   ─► minimum     so many are on, with or without jobs
                        warm ─► schedule ─► ≤ max   ─► warm        so many idle ones are kept on
                    idleTime ─► schedule            ─► idle        a node is released after so many idle seconds

A used-up budget sets the first three to 0: nodes that run jobs go on, idle ones are released, none are started.
Entries of the schedule are reckoned with in UTC, so a day on which clocks are changed has no gap and no overlap.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from isthmus.domain.languages.gotime import GoTimeError, parse_duration
from isthmus.errors import Terminal
from isthmus.model.elastic import Autoscale, Budget, ScheduleEntry

IDLE_S: Final = 300.0
"""How long nodes stay idle where neither the policy nor the cluster says it."""

PLANNED_IDLE_S: Final = 600.0
"""How long a node stays idle at least while Slurm plans a job on it. Of the times tried on a week of jobs (none,
10, 30, 60 minutes), ten minutes shorten waiting the most for what they cost."""

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOUR_S: Final = 3600.0
_DAYS_AHEAD: Final = 8
"""An entry that holds on one day of the week begins within so many days."""
_LONGEST_STEP_S: Final = 3600.0
"""More than this between two looks is not counted: the clock was set, or nobody was looking."""


class PolicyError(Terminal):
    """The policy cannot be applied as it stands."""


class Limit(NamedTuple):
    """A number of nodes, and why it is that."""

    nodes: int
    reason: str


class IdleTime(NamedTuple):
    """How long a node stays idle before it is released, and why so long."""

    seconds: float
    reason: str


class Usage(msgspec.Struct, frozen=True):
    """Node-hours of a day. Kept between looks, with the object that the policy is of."""

    day: date
    """By the budget's time zone."""
    node_hours: float
    at: datetime
    """Until when they are counted."""


class Effective(msgspec.Struct, frozen=True):
    """The limits of a NodeSet at a moment."""

    minimum: Limit
    maximum: Limit
    warm: Limit
    idle: IdleTime
    exhausted: str = ""
    """Why no node may be started at all; empty while some may."""
    dry_run: bool = False
    next_change: datetime | None = None
    """When other limits come to hold by the clock alone."""

    def floor(self, busy: int) -> Limit:
        """How many nodes are to be on while so many have jobs: the minimum, or those and the warm ones."""
        if busy + self.warm.nodes <= self.minimum.nodes:
            return self.minimum
        wanted = min(busy + self.warm.nodes, max(busy, self.maximum.nodes))
        if wanted > busy:
            return Limit(wanted, f"{busy} with jobs and {wanted - busy} warm: {self.warm.reason}")
        return Limit(wanted, f"{busy} with jobs")

    def patience(self, *, planned: bool) -> IdleTime:
        """How long a node may be idle; longer if Slurm plans a job on it, as that often starts early."""
        if planned and self.idle.seconds < PLANNED_IDLE_S:
            return IdleTime(PLANNED_IDLE_S, "Slurm plans a job on it")
        return self.idle

    def room(self, on: int) -> Limit:
        """How many more nodes may be started while so many are on."""
        return Limit(max(0, self.maximum.nodes - on), self.exhausted or self.maximum.reason)


def effective(
    policy: Autoscale, *, size: int, now: datetime, used_today: float = 0.0, default_idle: float = IDLE_S
) -> Effective:
    """Find the limits that hold now, for a NodeSet of so many announced nodes. Raise PolicyError if it is wrong."""
    place, entry = _current(policy.schedule, now)
    maximum = Limit(size, f"replicas is {size}")
    for given, where in ((policy.max, "autoscale.max"), (entry.max if entry else None, f"schedule[{place}].max")):
        if given is not None:
            maximum = Limit(given, f"{where} is {given}") if given <= size else Limit(size, f"replicas is {size}")
    minimum = _floor("min", policy.min, entry.min if entry else None, place, maximum)
    warm = _floor("warm", policy.warm, entry.warm if entry else None, place, maximum)
    exhausted = ""
    if policy.budget and used_today >= policy.budget.node_hours_per_day:
        exhausted = _used_up(policy.budget, used_today, now)
        minimum = maximum = warm = Limit(0, exhausted)
    return Effective(
        minimum=minimum,
        maximum=maximum,
        warm=warm,
        idle=_idle(policy, entry, place, default_idle),
        exhausted=exhausted,
        dry_run=policy.dry_run,
        next_change=_next_change(policy, now),
    )


def longest_idle(policy: Autoscale | None, *, default: float) -> float:
    """How long a node may be idle at any hour: what Slurm itself is told, while shorter times are kept by us.

    Where a policy sets a time, it is also as long as a node may wait that Slurm plans a job on.
    """
    texts = (policy.idle_time, *(it.idle_time for it in policy.schedule)) if policy else ()
    given = [parse_duration(it) for it in texts if it]
    if not given:
        return default
    general = () if policy and policy.idle_time else (default,)
    return max(*given, *general, PLANNED_IDLE_S)


def accrue(usage: Usage | None, budget: Budget | None, *, on: int, now: datetime) -> Usage:
    """Add what nodes used since the last look, of which so many are on. A new day begins at 0.

    A clock that was set back adds nothing, and one that jumped forward at most an hour.
    """
    day = now.astimezone(zone(budget.time_zone if budget else "UTC")).date()
    if usage is None:
        return Usage(day, 0.0, now)
    step = min(max((now - usage.at).total_seconds(), 0.0), _LONGEST_STEP_S)
    if usage.day != day:
        step = min(step, (now - _midnight(budget, now)).total_seconds())
        return Usage(day, on * step / _HOUR_S, now)
    return Usage(day, usage.node_hours + on * step / _HOUR_S, now)


def used_today(usage: Usage | None, budget: Budget | None, now: datetime) -> float:
    """Node-hours that count for today's budget; those of another day do not."""
    today = now.astimezone(zone(budget.time_zone if budget else "UTC")).date()
    return usage.node_hours if usage is not None and usage.day == today else 0.0


def problems(policy: Autoscale) -> Iterator[tuple[str, str]]:
    """What of a policy can never be applied: the field, and why."""
    for where, text in _durations(policy):
        try:
            if text and parse_duration(text) < 1:
                yield where, f"{text} is less than a second; write a time such as 5m"
        except GoTimeError as error:
            yield where, error.line
    for where, name in _zones(policy):
        try:
            zone(name)
        except PolicyError as error:
            yield where, error.line
    if policy.max is not None and policy.min > policy.max:
        yield "min", f"{policy.min} is more than max, {policy.max}"
    for place, entry in enumerate(policy.schedule):
        most = policy.max if entry.max is None else entry.max
        if entry.min is not None and most is not None and entry.min > most:
            yield f"schedule[{place}].min", f"{entry.min} is more than max, {most}"


def remarks(policy: Autoscale, *, size: int) -> Iterator[tuple[str, str]]:
    """What works, and perhaps not as its author expects."""
    fields = [("max", policy.max), ("min", policy.min), ("warm", policy.warm)]
    for place, entry in enumerate(policy.schedule):
        where = f"schedule[{place}]"
        fields += [(f"{where}.max", entry.max), (f"{where}.min", entry.min), (f"{where}.warm", entry.warm)]
        if (entry.min, entry.max, entry.warm, entry.idle_time) == (None, None, None, ""):
            yield where, "has no effect: it sets none of min, max, warm, idleTime"
    for where, given in fields:
        if given is not None and given > size:
            yield where, f"{given} is more than replicas, {size}: Slurm knows no more nodes than those"
    if policy.budget and policy.min * 24 > policy.budget.node_hours_per_day:
        most = policy.budget.node_hours_per_day
        what = f"min keeps {policy.min} nodes on: {policy.min * 24} node-hours a day, which is more than {most:g}"
        yield "budget.nodeHoursPerDay", what


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """Find a time zone. Raise PolicyError if there is none of the name."""
    if name in {"", "UTC"}:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PolicyError(
            f"time zone {name[:64]!r} is not known", remedy="write a name such as Europe/Berlin, or UTC"
        ) from None


def _floor(name: str, general: int, special: int | None, place: int, maximum: Limit) -> Limit:
    given, where = (general, f"autoscale.{name}") if special is None else (special, f"schedule[{place}].{name}")
    if given > maximum.nodes:
        return Limit(maximum.nodes, f"{where} is {given}, and {maximum.reason}")
    return Limit(given, f"{where} is {given}")


def _idle(policy: Autoscale, entry: ScheduleEntry | None, place: int, default: float) -> IdleTime:
    for text, where in (
        (entry.idle_time if entry else "", f"schedule[{place}].idleTime"),
        (policy.idle_time, "autoscale.idleTime"),
    ):
        if text:
            return IdleTime(max(parse_duration(text), 1.0), f"{where} is {text}")
    return IdleTime(default, f"suspendTime is {default:g} s")


def _used_up(budget: Budget, used: float, now: datetime) -> str:
    again = _midnight(budget, now, days=1).astimezone(zone(budget.time_zone))
    return (
        f"the budget is used up: {used:.1f} of {budget.node_hours_per_day:g} node-hours today; nodes are started"
        f" again from {again:%Y-%m-%d %H:%M} {budget.time_zone}"
    )


def _midnight(budget: Budget | None, now: datetime, *, days: int = 0) -> datetime:
    """The midnight that began the day, or one so many days later, in UTC."""
    where = zone(budget.time_zone if budget else "UTC")
    day = now.astimezone(where).date() + timedelta(days=days)
    return datetime.combine(day, time(), tzinfo=where).astimezone(UTC)


def _current(schedule: tuple[ScheduleEntry, ...], now: datetime) -> tuple[int, ScheduleEntry | None]:
    for place, entry in enumerate(schedule):
        today = now.astimezone(zone(entry.time_zone)).date()
        for day in (today - timedelta(days=1), today):
            begins, ends = _span(entry, day)
            if begins <= now < ends and _is_for(entry, day):
                return place, entry
    return -1, None


def _next_change(policy: Autoscale, now: datetime) -> datetime | None:
    found = [_midnight(policy.budget, now, days=1)] if policy.budget else []
    for entry in policy.schedule:
        today = now.astimezone(zone(entry.time_zone)).date()
        for ahead in range(-1, _DAYS_AHEAD):
            day = today + timedelta(days=ahead)
            if _is_for(entry, day):
                found += [it for it in _span(entry, day) if it > now]
    return min(found, default=None)


def _span(entry: ScheduleEntry, day: date) -> tuple[datetime, datetime]:
    """When an entry that begins on a day begins and ends, in UTC."""
    where = zone(entry.time_zone)
    begins, ends = (time.fromisoformat(it) for it in (entry.from_, entry.to))
    last = day if begins < ends else day + timedelta(days=1)
    return (
        datetime.combine(day, begins, tzinfo=where).astimezone(UTC),
        datetime.combine(last, ends, tzinfo=where).astimezone(UTC),
    )


def _is_for(entry: ScheduleEntry, day: date) -> bool:
    return not entry.days or _DAYS[day.weekday()] in entry.days


def _durations(policy: Autoscale) -> Iterator[tuple[str, str]]:
    yield "idleTime", policy.idle_time
    for place, entry in enumerate(policy.schedule):
        yield f"schedule[{place}].idleTime", entry.idle_time


def _zones(policy: Autoscale) -> Iterator[tuple[str, str]]:
    if policy.budget:
        yield "budget.timeZone", policy.budget.time_zone
    for place, entry in enumerate(policy.schedule):
        yield f"schedule[{place}].timeZone", entry.time_zone
