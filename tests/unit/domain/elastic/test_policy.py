"""Which limits hold at a moment, and why."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus.domain.elastic.policy import (
    Effective,
    IdleTime,
    PolicyError,
    Usage,
    accrue,
    effective,
    longest_idle,
    problems,
    remarks,
    used_today,
)
from isthmus.model.elastic import Autoscale, Budget

MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)
OFFICE = {"from": "08:00", "to": "18:00", "timeZone": "Europe/Berlin", "days": ["Mon", "Tue"]}


def policy(**fields: Any) -> Autoscale:
    return msgspec.convert(fields, Autoscale)


def at(now: datetime = MONDAY, *, size: int = 10, used: float = 0.0, **fields: Any) -> Effective:
    return effective(policy(**fields), size=size, now=now, used_today=used)


def test_without_fields_all_announced_nodes_may_be_on_and_none_has_to() -> None:
    found = at()
    assert (found.minimum.nodes, found.maximum.nodes, found.warm.nodes, found.idle.seconds) == (0, 10, 0, 300)
    assert found.maximum.reason == "replicas is 10"
    assert found.next_change is None


def test_limits_say_where_they_come_from() -> None:
    found = at(min=2, max=6, warm=1, idleTime="10m", dryRun=True)
    assert found.minimum == (2, "autoscale.min is 2")
    assert found.maximum == (6, "autoscale.max is 6")
    assert found.warm == (1, "autoscale.warm is 1")
    assert found.idle == IdleTime(600, "autoscale.idleTime is 10m")
    assert found.dry_run


def test_idle_time_of_the_cluster_where_the_policy_has_none() -> None:
    found = effective(policy(), size=1, now=MONDAY, default_idle=120)
    assert found.idle == IdleTime(120, "suspendTime is 120 s")


def test_no_limit_is_above_what_is_announced() -> None:
    found = at(size=3, min=5, max=8, warm=4)
    assert found.maximum == (3, "replicas is 3")
    assert found.minimum == (3, "autoscale.min is 5, and replicas is 3")
    assert found.warm.nodes == 3


@pytest.mark.parametrize(
    ("now", "minimum"),
    [
        (datetime(2026, 11, 16, 6, 59, 59, tzinfo=UTC), 0),  # 07:59:59 in Berlin
        (datetime(2026, 11, 16, 7, 0, tzinfo=UTC), 4),
        (datetime(2026, 11, 16, 16, 59, 59, tzinfo=UTC), 4),
        (datetime(2026, 11, 16, 17, 0, tzinfo=UTC), 0),
        (datetime(2026, 11, 18, 12, 0, tzinfo=UTC), 0),  # a Wednesday
        (datetime(2026, 7, 6, 6, 0, tzinfo=UTC), 4),  # in summer, 08:00 in Berlin is 06:00
    ],
)
def test_an_entry_holds_by_the_clock_of_its_time_zone(now: datetime, minimum: int) -> None:
    assert at(now, schedule=[{**OFFICE, "min": 4}]).minimum.nodes == minimum


@pytest.mark.parametrize(
    ("now", "warm"),
    [
        (datetime(2026, 11, 20, 21, 59, tzinfo=UTC), 0),
        (datetime(2026, 11, 20, 22, 0, tzinfo=UTC), 2),  # Friday night
        (datetime(2026, 11, 21, 5, 59, tzinfo=UTC), 2),
        (datetime(2026, 11, 21, 6, 0, tzinfo=UTC), 0),
        (datetime(2026, 11, 21, 23, 0, tzinfo=UTC), 0),  # it begins on Fridays only
    ],
)
def test_an_entry_that_passes_midnight_belongs_to_the_day_it_begins(now: datetime, warm: int) -> None:
    found = at(now, schedule=[{"from": "22:00", "to": "06:00", "days": ["Fri"], "warm": 2}])
    assert found.warm.nodes == warm


def test_equal_times_are_a_whole_day() -> None:
    entry = {"from": "06:00", "to": "06:00", "days": ["Mon"], "max": 1}
    assert at(MONDAY, schedule=[entry]).maximum == (1, "schedule[0].max is 1")
    assert at(MONDAY + timedelta(hours=17), schedule=[entry]).maximum.nodes == 1
    assert at(MONDAY + timedelta(hours=18), schedule=[entry]).maximum.nodes == 10


def test_the_first_of_several_entries_counts_and_leaves_what_it_does_not_set() -> None:
    entries = [{**OFFICE, "warm": 3, "idleTime": "1h"}, {**OFFICE, "warm": 5, "max": 1}]
    found = at(max=8, schedule=entries)
    assert found.warm == (3, "schedule[0].warm is 3")
    assert found.maximum == (8, "autoscale.max is 8")
    assert found.idle == IdleTime(3600, "schedule[0].idleTime is 1h")


def test_the_next_change_is_the_next_edge_of_any_entry() -> None:
    found = at(schedule=[{**OFFICE, "min": 4}])
    assert found.next_change == datetime(2026, 11, 16, 17, tzinfo=UTC)
    after = at(datetime(2026, 11, 17, 17, tzinfo=UTC), schedule=[{**OFFICE, "min": 4}])
    assert after.next_change == datetime(2026, 11, 23, 7, tzinfo=UTC)


@pytest.mark.parametrize("day", [datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)])
def test_limits_change_at_the_next_change_and_not_before_also_when_clocks_are_set(day: datetime) -> None:
    rules = policy(schedule=[{"from": "02:30", "to": "02:45", "timeZone": "Europe/Berlin", "min": 1}])
    now = day
    for _ in range(6):
        found = effective(rules, size=5, now=now)
        assert found.next_change is not None
        before = effective(rules, size=5, now=found.next_change - timedelta(seconds=1))
        after = effective(rules, size=5, now=found.next_change)
        assert before.minimum == found.minimum != after.minimum
        now = found.next_change


def test_a_used_up_budget_starts_nothing_and_says_until_when() -> None:
    rules: dict[str, Any] = {"min": 2, "warm": 1, "budget": {"nodeHoursPerDay": 40, "timeZone": "Europe/Berlin"}}
    assert at(used=39.9, **rules).minimum.nodes == 2
    found = at(used=40.02, **rules)
    assert (found.minimum.nodes, found.maximum.nodes, found.warm.nodes) == (0, 0, 0)
    assert found.exhausted == (
        "the budget is used up: 40.0 of 40 node-hours today; nodes are started again from 2026-11-17 00:00"
        " Europe/Berlin"
    )
    assert found.room(3) == (0, found.exhausted)
    assert found.next_change == datetime(2026, 11, 16, 23, tzinfo=UTC)


def test_warm_nodes_are_beside_busy_ones_and_within_the_maximum() -> None:
    found = at(min=2, max=6, warm=2)
    assert found.floor(0) == (2, "autoscale.min is 2")
    assert found.floor(3) == (5, "3 with jobs and 2 warm: autoscale.warm is 2")
    assert found.floor(5).nodes == 6
    assert found.floor(6) == (6, "6 with jobs")
    assert found.floor(8).nodes == 8  # more than the maximum may be busy: it was lowered
    assert found.room(4) == (2, "autoscale.max is 6")
    assert found.room(8).nodes == 0


def test_node_hours_are_counted_from_look_to_look() -> None:
    budget = Budget(node_hours_per_day=10)
    usage = accrue(None, budget, on=4, now=MONDAY)
    assert usage == Usage(date(2026, 11, 16), 0.0, MONDAY)
    usage = accrue(usage, budget, on=4, now=MONDAY + timedelta(minutes=30))
    assert usage.node_hours == 2
    assert used_today(usage, budget, usage.at) == 2
    assert used_today(usage, budget, MONDAY + timedelta(days=1)) == 0


def test_a_new_day_begins_with_what_was_used_since_midnight() -> None:
    before = Usage(date(2026, 11, 16), 9.0, datetime(2026, 11, 16, 23, 50, tzinfo=UTC))
    after = accrue(before, Budget(node_hours_per_day=10), on=6, now=datetime(2026, 11, 17, 0, 10, tzinfo=UTC))
    assert (after.day, after.node_hours) == (date(2026, 11, 17), 1.0)


def test_a_clock_that_jumps_adds_at_most_an_hour() -> None:
    usage = Usage(date(2026, 11, 16), 1.0, MONDAY)
    back = accrue(usage, None, on=5, now=MONDAY - timedelta(hours=2))
    assert back.node_hours == 1.0
    ahead = accrue(usage, None, on=5, now=MONDAY + timedelta(hours=9))
    assert ahead.node_hours == 6.0


@pytest.mark.parametrize(
    ("fields", "where", "why"),
    [
        ({"min": 3, "max": 2}, "min", "3 is more than max, 2"),
        ({"idleTime": "500ms"}, "idleTime", "less than a second"),
        ({"budget": {"nodeHoursPerDay": 1, "timeZone": "Mars"}}, "budget.timeZone", "'Mars' is not known"),
        ({"schedule": [{**OFFICE, "timeZone": "../etc/passwd"}]}, "schedule[0].timeZone", "is not known"),
        ({"max": 5, "schedule": [{**OFFICE, "min": 6}]}, "schedule[0].min", "6 is more than max, 5"),
        ({"schedule": [{**OFFICE, "min": 6, "max": 5}]}, "schedule[0].min", "6 is more than max, 5"),
    ],
)
def test_what_cannot_be_applied_is_a_problem(fields: dict[str, Any], where: str, why: str) -> None:
    ((place, text),) = problems(policy(**fields))
    assert place == where
    assert why in text


def test_a_policy_that_works_has_no_problem() -> None:
    rules = policy(min=1, max=5, idleTime="1h30m", schedule=[{**OFFICE, "min": 2}], budget={"nodeHoursPerDay": 24})
    assert (list(problems(rules)), list(remarks(rules, size=5))) == ([], [])


def test_an_unknown_time_zone_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(PolicyError, match="Europe/Berlin"):
        at(schedule=[{**OFFICE, "timeZone": "Mars", "min": 1}])


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"max": 11}, "max"),
        ({"warm": 11}, "warm"),
        ({"schedule": [OFFICE]}, "schedule[0]"),
        ({"schedule": [{**OFFICE, "min": 12}]}, "schedule[0].min"),
        ({"min": 5, "budget": {"nodeHoursPerDay": 100}}, "budget.nodeHoursPerDay"),
    ],
)
def test_what_is_probably_not_meant_is_remarked(fields: dict[str, Any], where: str) -> None:
    assert [place for place, _ in remarks(policy(**fields), size=10)] == [where]


def test_a_node_that_slurm_plans_a_job_on_stays_longer() -> None:
    short, long = at(idleTime="1m"), at(idleTime="30m")
    assert short.patience(planned=False).seconds == 60
    assert short.patience(planned=True) == IdleTime(600, "Slurm plans a job on it")
    assert long.patience(planned=True) == long.idle


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 300),
        ({"idleTime": "1m"}, 600),
        ({"idleTime": "1h"}, 3600),
        ({"idleTime": "1m", "schedule": [{**OFFICE, "idleTime": "20m"}]}, 1200),
        ({"schedule": [{**OFFICE, "idleTime": "1m"}]}, 600),
    ],
)
def test_slurm_is_told_the_longest_idle_time(fields: dict[str, Any], seconds: float) -> None:
    assert longest_idle(policy(**fields), default=300.0) == seconds


def test_slurm_is_told_the_time_of_the_cluster_where_there_is_no_policy() -> None:
    assert longest_idle(None, default=7.0) == 7.0
