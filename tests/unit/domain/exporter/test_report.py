from typing import Any

import pytest

from isthmus.domain.exporter.report import Query, Usage, moment, parse, report
from isthmus.errors import Terminal

NOW = 1_794_960_000.0  # Wednesday, 2026-11-18 00:00 UTC
HOUR = 3600


def usage(**changes: Any) -> Usage:
    usual = Usage(
        user="alice",
        account="physics",
        partition="main",
        qos="normal",
        namespace="",
        kind="slurm",
        state="completed",
        submit=int(NOW) - 2 * HOUR,
        start=int(NOW) - HOUR,
        end=int(NOW),
        elapsed=HOUR,
        cpus=4,
        gpus=2,
        memory=1000,
        cpu_seconds=7200.0,
        max_memory=250,
    )
    return usual._replace(**changes)


def lines(*runs: Usage, by: str = "user") -> dict[str, Any]:
    found = report(runs, Query(since=0, until=NOW, by=by))
    return {line.group: line for line in (*found.lines, found.total)}


def test_hours_are_allocated_and_efficiency_is_of_what_was_measured() -> None:
    found = lines(usage(), usage(cpu_seconds=None, max_memory=None), usage(user="bob", state="failed"))
    alice = found["alice"]
    assert (alice.jobs, alice.cpu_hours, alice.gpu_hours) == (2, 8, 4)
    assert (alice.cpu_efficiency, alice.memory_efficiency) == (0.5, 0.25)
    assert found["bob"].success_rate == 0
    assert found["total"].success_rate == pytest.approx(2 / 3)


def test_what_was_never_measured_is_not_known() -> None:
    pod = usage(kind="pod", namespace="team", cpu_seconds=None, max_memory=None)
    found = lines(pod, by="namespace")["team"]
    assert found.cpu_efficiency is None
    assert found.memory_efficiency is None


def test_a_job_that_never_started_has_no_wait_and_used_nothing() -> None:
    found = lines(usage(start=0, elapsed=0, state="cancelled", cpu_seconds=None))["alice"]
    assert (found.jobs, found.success_rate, found.cpu_hours, found.wait_mean) == (1, 0, 0, None)


def test_a_requeued_run_used_resources_and_is_not_a_job_that_ended() -> None:
    found = lines(usage(state="requeued"), usage())["alice"]
    assert (found.jobs, found.success_rate, found.cpu_hours) == (1, 1, 8)


def test_the_95th_percentile_of_waits_is_a_wait_that_was() -> None:
    found = lines(*(usage(submit=0, start=wait) for wait in range(1, 101)))["alice"]
    assert (found.wait_p95, found.wait_mean) == (95, 50.5)


def test_idle_is_an_allocation_that_lasted_and_used_next_to_nothing() -> None:
    idle, busy = {"cpu_seconds": 4 * 601 * 0.04}, {"cpu_seconds": 4 * 601 * 0.06}
    runs = usage(elapsed=601, **idle), usage(elapsed=601, **busy), usage(elapsed=600, **idle)
    assert lines(*runs)["alice"].idle == 1


def test_a_week_is_named_by_its_monday() -> None:
    assert set(lines(usage(), usage(end=int(NOW) - 4 * 86400), by="week")) == {"2026-11-16", "2026-11-09", "total"}
    assert "2026-11-18" in lines(usage(), by="day")


@pytest.mark.parametrize(
    ("text", "ago"),
    [("0s", 0), ("12h", 12 * HOUR), ("7d", 7 * 86400), ("2w", 14 * 86400), ("2026-11-17", 86400)],
)
def test_times_are_dates_or_how_long_ago(text: str, ago: float) -> None:
    assert moment(text, now=NOW) == NOW - ago


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"by": "colour"}, "a report by 'colour' is not possible"),
        ({"since": "yesterday"}, "'yesterday' is not a valid time"),
        ({"since": "1h", "until": "2h"}, "begin at its end"),
        ({"kind": "vm"}, "there is no kind 'vm'"),
        ({"colour": "red"}, "there is no parameter 'colour'"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, str], problem: str) -> None:
    with pytest.raises(Terminal, match=problem):
        parse(parameters, now=NOW)


def test_without_parameters_a_report_is_of_the_last_week_by_user() -> None:
    assert parse({}, now=NOW) == Query(since=NOW - 7 * 86400, until=NOW, by="user")
