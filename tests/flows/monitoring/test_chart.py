"""The chart isthmus-monitoring: rendered by the real helm, its rules read by the real promtool."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube import crd
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.crd import DEFINITIONS
from isthmus.model.meta import Key
from tests.bed import monitor_kinds
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.promtool import promtool
from tests.flows.bridge.test_chart import Helm, helm_program
from tests.unit.monitoring.expressions import CHART, DASHBOARDS, RULES

__all__ = ["helm_program"]

OPERATED = "--api-versions=monitoring.coreos.com/v1"

Manifest = dict[str, Any]


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    return Helm(helm_program, tmp_path)


def rendered(helm: Helm, *words: str, values: str = "") -> list[Manifest]:
    done = helm.run("template", "monitoring", str(CHART), "--namespace=monitoring", *words, values=values)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found]


def rules_of(manifests: list[Manifest]) -> Manifest:
    (found,) = (it for it in manifests if it["metadata"]["name"] == "isthmus-rules")
    return found


def alert_of(manifests: list[Manifest], name: str) -> Manifest:
    groups = rules_of(manifests)["spec"]["groups"]
    (found,) = (rule for group in groups for rule in group["rules"] if rule.get("alert") == name)
    return dict(found)


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_dashboard_is_found_by_the_sidecar(helm: Helm) -> None:
    boards = [it for it in rendered(helm) if it["metadata"]["name"].startswith("isthmus-dashboard-")]
    assert len(boards) == len(DASHBOARDS) == 7
    for board, file in zip(sorted(boards, key=lambda it: it["metadata"]["name"]), DASHBOARDS, strict=True):
        assert board["kind"] == "ConfigMap"
        assert board["metadata"]["namespace"] == "monitoring"
        assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert board["metadata"]["annotations"] == {"grafana_folder": "Isthmus"}
        ((name, text),) = board["data"].items()
        assert name == f"isthmus-{file.name}"
        assert json.loads(text) == json.loads(file.read_text())


def test_label_folder_and_namespace_are_settings(helm: Helm) -> None:
    values = """
    dashboards:
      namespace: grafana
      labels: {grafana_dashboard: null, dash: "yes"}
      annotations: {grafana_folder: HPC}
    rules: {enabled: false}
    """
    boards = rendered(helm, OPERATED, values=values)
    assert len(boards) == 7
    for board in boards:
        assert board["metadata"]["namespace"] == "grafana"
        assert board["metadata"]["labels"]["dash"] == "yes"
        assert "grafana_dashboard" not in board["metadata"]["labels"]
        assert board["metadata"]["annotations"] == {"grafana_folder": "HPC"}


def test_rules_are_a_prometheusrule_where_its_operator_is_and_a_file_elsewhere(helm: Helm) -> None:
    wanted = yaml.load(RULES.read_text(), yaml.CSafeLoader)
    operated = rules_of(rendered(helm, OPERATED, values="rules: {labels: {release: stack}}"))
    assert (operated["apiVersion"], operated["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert operated["metadata"]["labels"]["release"] == "stack"
    assert operated["spec"] == wanted
    plain = rules_of(rendered(helm))
    assert plain["kind"] == "ConfigMap"
    assert yaml.load(plain["data"]["isthmus.yaml"], yaml.CSafeLoader) == wanted


def test_values_change_the_alerts_and_promtool_takes_them(helm: Helm, tmp_path: Path) -> None:
    values = """
    runbooks: https://docs.example.org/runbooks/
    alerts:
      IsthmusNodesDown: {ratio: 0.25, for: 30m, severity: critical}
      IsthmusCertExpiring: {seconds: 2592000}
      IsthmusJobFailureRatio: {enabled: false}
      IsthmusDrainStuck: {drainedSeconds: 600}
    """
    manifests = rendered(helm, OPERATED, "--set=alerts.IsthmusSubmitErrors.ratio=0.05", values=values)
    down = alert_of(manifests, "IsthmusNodesDown")
    assert "> 0.25 # ratio" in down["expr"]
    assert (down["for"], down["labels"]) == ("30m", {"severity": "critical"})
    assert down["annotations"]["runbook_url"] == "https://docs.example.org/runbooks/IsthmusNodesDown.md"
    assert "< 2592000 # seconds" in alert_of(manifests, "IsthmusCertExpiring")["expr"]
    drain = alert_of(manifests, "IsthmusDrainStuck")["expr"]
    assert "> 86400 # drainingSeconds" in drain
    assert "> 600 # drainedSeconds" in drain
    spec = rules_of(manifests)["spec"]
    assert "IsthmusJobFailureRatio" not in {
        rule.get("alert") for group in spec["groups"] for rule in group["rules"]
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    done = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("alerts.IsthmusNodesDwon.ratio=1", "IsthmusNodesDwon: there is no such alert"),
        ("alerts.IsthmusNodesDown.share=1", "IsthmusNodesDown.share: this alert has no such threshold"),
        ("alerts.IsthmusNodesDown.ratio=many", "ratio"),
        ("alerts.IsthmusNodesDown.for=soon", "for"),
        ("dashboard.enabled=false", "dashboard"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, word: str, told: str) -> None:
    done = helm.run("template", "x", str(CHART), f"--set={word}")
    assert done.returncode != 0
    assert told in done.stderr


async def test_one_upgrade_brings_all_with_and_without_the_kinds_of_prometheus(
    helm_program: Path, control_plane: ControlPlaneBed, config: Config, tmp_path: Path
) -> None:
    helm = Helm(helm_program, tmp_path, kubeconfig=control_plane.kubeconfig)

    def upgrade() -> str:
        words = ("--install", "monitoring", str(CHART), "--namespace=isthmus-boards", "--create-namespace")
        done = helm.run("upgrade", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    definitions = monitor_kinds.files("prometheusrules")
    assert "ConfigMap isthmus-rules" in upgrade()
    async with Client(config) as kube:
        try:
            for file in definitions.values():
                await crd.install(kube, yaml.load(file.read_text(), yaml.CSafeLoader), manager="test")
            assert "PrometheusRule isthmus-rules" in upgrade()
            objects = control_plane.kubectl("get", "configmaps,prometheusrules", "-n=isthmus-boards", "-o=name")
            found = [it for it in objects.split() if "isthmus-" in it]
            assert len(found) == 8
            assert "prometheusrule.monitoring.coreos.com/isthmus-rules" in found
            assert "configmap/isthmus-rules" not in found
        finally:
            control_plane.kubectl("delete", "namespace", "isthmus-boards", "--wait=false")
            for name in definitions:
                await kube.delete(DEFINITIONS, Key("", name))
