"""Rules and dashboards, read by the real promtool: each alert fires from its cause and ends with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.bed.commands import Done
from tests.bed.promtool import promtool
from tests.flows.monitoring.cases import CASES, HEALTHY, QUIET
from tests.unit.monitoring import expressions
from tests.unit.monitoring.expressions import RULES

FIRING = 'count(ALERTS{{alertname="{alert}",alertstate="firing",severity="{severity}"}})'


def test_the_rules_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    done = promtool(tmp_path, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_expression_of_a_dashboard_is_taken(tmp_path: Path) -> None:
    asked = list(expressions.of_dashboards())
    rules = [{"record": f"board:{number}", "expr": expr} for number, (_, expr) in enumerate(asked)]
    (tmp_path / "boards.yaml").write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    done = promtool(tmp_path, "check", "rules", "--lint=none", "boards.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(asked)} rules found" in done.stdout


def test_each_alert_fires_from_its_cause_and_ends_with_it(tmp_path: Path) -> None:
    assert {it.alert for it in CASES} == {it["alert"] for it in expressions.alerts()}
    tests = [
        _test(
            f"{case.alert} ({case.severity})",
            case.series,
            case.interval,
            _expect(FIRING.format(alert=case.alert, severity=case.severity), case.fires, value=1),
            _expect(FIRING.format(alert=case.alert, severity=case.severity), case.resolved, value=None),
            alert=case.alert,
        )
        for case in CASES
    ]
    _played(tmp_path, tests)


def test_what_only_looks_like_trouble_makes_no_alert(tmp_path: Path) -> None:
    tests = []
    for case in QUIET:
        alert = f'count(ALERTS{{alertname="{case.alert}"}})'
        never = [_expect(alert, minute, value=None) for minute in range(0, case.until, 5)]
        tests.append(_test(f"{case.alert}: {case.why}", case.series, "1m", *never, alert=case.alert))
    _played(tmp_path, tests)


def test_an_ordinary_day_makes_no_alert(tmp_path: Path) -> None:
    never = [_expect("count(ALERTS) by (alertname)", minute, value=None) for minute in range(0, 240, 5)]
    _played(tmp_path, [_test("healthy", HEALTHY, "1m", *never)])


def test_a_board_shows_no_jobs_only_while_slurm_answers(tmp_path: Path) -> None:
    asked = dict(expressions.of_dashboards())
    boards = ("overview: Running jobs", "overview: Pending jobs", "queue: Pending jobs", "nodes: Out")
    up = 'isthmus_slurm_up{namespace="hpc"}'
    tests = [
        _test(f"{board}, {values}", {up: values}, "1m", _expect(asked[board], 10, value=value))
        for board in boards
        for values, value in (("1x20", 0), ("0x20", None), ("_x20", None))
    ]
    _played(tmp_path, tests)


def test_a_test_of_rules_can_fail(tmp_path: Path) -> None:
    done = _run(tmp_path, [_test("healthy", HEALTHY, "1m", _expect("count(ALERTS)", 60, value=1))])
    assert done.returncode != 0


class Played(NamedTuple):
    """A test of promtool. One of an alert is played with that alone: thirty others take many times as long."""

    alert: str
    interval: str
    test: dict[str, Any]


def _test(name: str, series: dict[str, str], interval: str, *expected: dict[str, Any], alert: str = "") -> Played:
    test = {
        "name": name,
        "interval": interval,
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": list(expected),
    }
    return Played(alert, interval, test)


def _expect(expr: str, minute: int, *, value: float | None) -> dict[str, Any]:
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}


def _run(directory: Path, tests: Sequence[Played]) -> Done:
    files = []
    for number, (alert, interval) in enumerate(sorted({(it.alert, it.interval) for it in tests})):
        rules = f"rules-{number}.yaml"
        (directory / rules).write_text(yaml.dump(_rules(alert), Dumper=yaml.CSafeDumper))
        chosen = [it.test for it in tests if (it.alert, it.interval) == (alert, interval)]
        played = {"rule_files": [rules], "evaluation_interval": interval, "tests": chosen}
        files.append(f"tests-{number}.yaml")
        (directory / files[-1]).write_text(yaml.dump(played, Dumper=yaml.CSafeDumper, sort_keys=False))
    return promtool(directory, "test", "rules", *files)


def _rules(alert: str) -> dict[str, Any]:
    """Return all rules, or one alert and what is recorded for it."""
    groups = yaml.load(RULES.read_text(), yaml.CSafeLoader)["groups"]
    if alert:
        for group in groups:
            group["rules"] = [it for it in group["rules"] if it.get("alert", alert) == alert]
    return {"groups": groups}


def _played(directory: Path, tests: Sequence[Played]) -> None:
    done = _run(directory, tests)
    assert done.returncode == 0, done.stdout + done.stderr
