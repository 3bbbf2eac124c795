"""The dashboards and rules ask for metrics that exist, and everything made from code is up to date."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.domain.exporter.catalog import NODE_STATE
from tests.unit.monitoring import expressions
from tests.unit.monitoring.expressions import CHART, DASHBOARDS, ROOT, RUNBOOKS

OF_TARGETS = {"namespace", "pod", "job", "le"}
OF_KUBELET = {
    name: {"namespace", "persistentvolumeclaim"}
    for name in (
        "kubelet_volume_stats_available_bytes",
        "kubelet_volume_stats_capacity_bytes",
        "kubelet_volume_stats_inodes",
        "kubelet_volume_stats_inodes_free",
    )
}
OF_PROMETHEUS = {"ALERTS": {"alertname", "alertstate", "severity", "partition", "node", "host", "user"}}


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Every metric that there is, with its labels; a histogram by its series."""
    code: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "metrics"))
    known = {**OF_KUBELET, **OF_PROMETHEUS}
    for row in (*code["exporter"](), *code["of_processes"]()):
        suffixes = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
        known.update({f"{row.name}{suffix}": set(row.labels) for suffix in suffixes})
    for rule in expressions.rules():
        if "record" in rule:
            known[rule["record"]] = set().union(*(known[it] for it in expressions.metrics(rule["expr"])))
    return known


@pytest.mark.parametrize("script", ["dashboards", "metrics"])
def test_what_is_made_from_code_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_that_is_asked_for_exists(labels: dict[str, set[str]]) -> None:
    unknown = {
        where: missing
        for where, expr in expressions.everything()
        if (missing := expressions.metrics(expr) - labels.keys())
    }
    assert not unknown


def test_every_expression_asks_for_a_metric() -> None:
    assert all(expressions.metrics(expr) for _, expr in expressions.everything())


def test_every_label_that_is_asked_for_exists(labels: dict[str, set[str]]) -> None:
    unknown: list[tuple[str, str]] = []
    for where, expr in expressions.everything():
        there = OF_TARGETS.union(*(labels[it] for it in expressions.metrics(expr)))
        unknown += [(where, label) for label in expressions.kept(expr) - there]
        unknown += [
            (where, f"{metric}: {label}")
            for metric, label in expressions.matched(expr)
            if label not in labels[metric] | OF_TARGETS
        ]
    assert not unknown


def test_metrics_of_an_expression_are_found() -> None:
    expr = 'sum by (a) (rate(x_total{b="y_total"}[5m])) / on (a) group_left (c) max by (a) (z) > bool 1 # seconds'
    assert expressions.metrics(expr) == {"x_total", "z"}
    assert list(expressions.matched(expr)) == [("x_total", "b")]
    assert expressions.kept(expr) == {"a", "c"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda it: it.stem)
def test_a_dashboard_is_whole(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == f"isthmus-{path.stem}"
    assert board["refresh"] == "30s"
    (link,) = board["links"]
    assert link["tags"][0] in board["tags"]
    panels = board["panels"]
    assert panels[0]["type"] == "stat"
    assert len({it["title"] for it in panels}) == len(panels)
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    variables = {it["name"] for it in board["templating"]["list"]}
    used = set(re.findall(r"\$(namespace|partition|datasource)\b", json.dumps(panels)))
    assert used <= variables


def test_panels_do_not_overlap() -> None:
    for path in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in expressions.panels(path):
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells


def test_the_states_of_nodes_are_named_as_the_metric_names_them() -> None:
    (panel,) = (it for it in expressions.panels(CHART / "files/dashboards/nodes.json") if "timeline" in it["type"])
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    shown = {number: it["text"] for number, it in mapping["options"].items()}
    assert len(shown) == 16
    assert all(f"{number} {text}" in NODE_STATE.help for number, text in shown.items())


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    named = {it["alert"]: it["annotations"]["runbook_url"] for it in expressions.alerts()}
    assert set(named) == {it.stem for it in RUNBOOKS.glob("Isthmus*.md")}
    assert all((ROOT / path).is_file() for path in named.values())


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("Isthmus*.md")), ids=lambda it: it.stem)
def test_a_runbook_answers_the_same_questions(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == [
        "Impact",
        "Diagnosis",
        "Mitigation",
        "False alarms",
    ]
    assert f"({path.name})" in (RUNBOOKS / "README.md").read_text()


def test_every_alert_has_a_severity_and_says_what_is_wrong() -> None:
    for alert in expressions.alerts():
        assert alert["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_the_values_are_those_of_the_rules() -> None:
    values = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)["alerts"]
    for alert in expressions.alerts():
        settings = values[alert["alert"]]
        assert settings.get("for") == alert.get("for")
        assert settings.get("severity", alert["labels"]["severity"]) == alert["labels"]["severity"]
        for number, name in re.findall(r"([-+.0-9eE]+) # (\w+)", alert["expr"]):
            assert settings[name] == float(number), f"{alert['alert']}.{name}"
    assert set(values) == {it["alert"] for it in expressions.alerts()}
