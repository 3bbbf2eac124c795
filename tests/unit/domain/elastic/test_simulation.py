"""What the simulator does to a few jobs, moment by moment."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from isthmus.domain.elastic.comparison import KEDA, POLICY, POWER_SAVING, STATIC, compare, figures
from isthmus.domain.elastic.picture import draw
from isthmus.domain.elastic.scalers import Elastic, Keda, PowerSaving, Static
from isthmus.domain.elastic.simulation import Machine, Outcome, Scaler, simulate
from isthmus.domain.elastic.traces import Job, Trace
from isthmus.model.elastic import Autoscale

MONDAY = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
MACHINE = Machine(boots=(60.0,), stop=30.0)
HOUR = 3600.0


def job(name: str, submit: float, nodes: int = 1, runtime: float = 600.0, limit: float = 0.0) -> Job:
    return Job(name, MONDAY + submit, nodes, runtime, max(limit, runtime))


def play(scaler: Scaler, *jobs: Job, size: int = 4) -> Outcome:
    return simulate(Trace(jobs), size=size, scaler=scaler, machine=MACHINE)


def policy(**fields: Any) -> Elastic:
    return Elastic(msgspec.convert(fields, Autoscale))


def starts(outcome: Outcome) -> dict[str, float]:
    return {it.job.name: it.start - MONDAY for it in outcome.records}


def test_a_static_cluster_starts_at_once_and_costs_all_the_time() -> None:
    found = play(Static(), job("a", 0, 2), job("b", 100, 2))
    assert starts(found) == {"a": 0, "b": 100}
    assert found.spent.total == 4 * 700
    assert (found.spent.busy, found.boots) == (4 * 600, 0)


def test_nodes_that_are_off_start_for_the_job_that_gets_them() -> None:
    found = play(PowerSaving(), job("a", 0, 3))
    (record,) = found.records
    assert (record.queued, record.booted) == (0, 60)
    assert (found.boots, found.spent.starting, found.spent.busy) == (3, 180, 1800)


def test_a_node_is_used_again_before_its_idle_time_and_started_anew_after_it() -> None:
    soon = play(PowerSaving(300), job("a", 0), job("b", 900))
    assert (starts(soon)["b"], soon.boots) == (900, 1)
    late = play(PowerSaving(300), job("a", 0), job("b", 2000))
    assert (starts(late)["b"], late.boots) == (2060, 2)
    assert late.spent.idle == 300


def test_a_gang_waits_for_its_last_node_and_that_is_counted() -> None:
    found = play(PowerSaving(300), job("a", 0), job("b", 700, 3))
    assert starts(found)["b"] == 760
    assert found.spent.partial == 60


def test_jobs_start_in_order_and_backfill_does_not_delay_the_first() -> None:
    found = play(
        Static(),
        job("long", 0, 3, 1000),
        job("wide", 10, 4, 100),
        job("short", 20, 1, 200, 400),
        job("too long", 30, 1, 100, 2000),
    )
    assert starts(found) == {"long": 0, "short": 30, "wide": 1000, "too long": 1100}


def test_priority_goes_before_time() -> None:
    early = job("early", 1, 4)
    late = msgspec.structs.replace(job("late", 2, 4), priority=10)
    assert starts(play(Static(), job("first", 0, 4), early, late)) == {"first": 0, "late": 600, "early": 1200}


def test_warm_nodes_take_a_job_at_once_and_are_replaced() -> None:
    found = play(policy(warm=1, idleTime="1m"), job("a", 0), job("b", 100), job("c", 110))
    assert starts(found) == {"a": 0, "b": 100, "c": 160}


def test_the_minimum_is_never_released() -> None:
    found = play(policy(min=2, idleTime="10s"), job("a", 0), job("b", 5000, 2))
    assert starts(found)["b"] == 5000
    assert (found.boots, found.peak) == (0, 2)


def test_the_maximum_holds_and_jobs_wait_for_it() -> None:
    found = play(policy(max=2), job("a", 0, 2), job("b", 10, 2))
    assert starts(found) == {"a": 60, "b": 660}
    assert found.peak == 2


def test_a_job_that_never_fits_is_told_and_does_not_hold_up_others() -> None:
    found = play(policy(max=2), job("a", 0, 9), job("b", 10, 3), job("c", 20))
    assert [it.name for it in found.unstarted] == ["a", "b"]
    assert "c" in starts(found)


def test_limits_follow_the_schedule() -> None:
    night = policy(max=4, schedule=[{"from": "00:00", "to": "08:00", "max": 1}])
    found = play(night, job("a", 0, 2), job("b", 9 * HOUR))
    assert starts(found)["a"] == 8 * HOUR + 60
    morning = policy(idleTime="30s", schedule=[{"from": "08:00", "to": "18:00", "warm": 2}])
    found = play(morning, job("a", HOUR), job("b", 8.5 * HOUR, 2))
    assert starts(found)["b"] == 8.5 * HOUR


def test_no_node_is_started_when_the_budget_is_used_up() -> None:
    rules = policy(idleTime="10s", budget={"nodeHoursPerDay": 2})
    found = play(rules, job("a", 0, 2, HOUR), job("b", 2 * HOUR), job("c", 25 * HOUR))
    assert starts(found)["b"] == 24 * HOUR + 60  # of the next day
    assert starts(found)["a"] == 60


def test_nodes_that_waiting_jobs_need_stay_longer() -> None:
    jobs = (job("long", 0, 1, 500), job("short", 0, 2, 100), job("gang", 10, 4, 100))
    kept = play(policy(idleTime="1m"), *jobs)
    assert starts(kept)["gang"] == 620  # of its four nodes, one is started
    plain = play(PowerSaving(60), *jobs)
    assert plain.boots > kept.boots


def test_the_recipe_of_keda_never_runs_a_gang_that_waits_alone() -> None:
    found = play(Keda(), job("a", 0, 3), job("b", 60))
    assert [it.name for it in found.unstarted] == ["a"]
    assert "b" in starts(found)


def test_a_comparison_has_all_ways_and_a_picture() -> None:
    trace = Trace((job("a", 0, 2), job("b", 1000), job("c", 90000, 3)))
    found = compare(trace, Autoscale(warm=1), size=4, machine=MACHINE)
    assert list(found) == [POLICY, POWER_SAVING, KEDA, STATIC]
    figure, outcome = found[POLICY]
    assert figure == figures(POLICY, outcome)
    assert figure.wait.mean == (0 + figure.boot.mean * 3 + figure.queue.mean * 3) / 3
    picture = draw(found, size=4)
    assert picture.startswith("<svg ")
    assert "never started" in picture


def test_a_warm_node_that_nobody_used_is_thrash() -> None:
    rules = policy(idleTime="1m", schedule=[{"from": "01:00", "to": "02:00", "warm": 1}])
    found = play(rules, job("a", 0), job("b", 5 * HOUR))
    assert found.thrashed == 1
    assert found.spent.unused == 60 + HOUR - 60 + 30
