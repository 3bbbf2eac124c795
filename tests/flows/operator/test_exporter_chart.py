"""The chart slurm-exporter: rendered by the real helm, taken by a real API server with the kinds of Prometheus."""

from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

from isthmus.cli.exporter import exporter
from isthmus.kube import crd
from isthmus.kube.client import Client
from isthmus.kube.crd import DEFINITIONS
from isthmus.model.meta import Key
from tests.bed import monitor_kinds
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.operator.test_cluster_chart import Helm, helm

__all__ = ["helm"]

CHART = Path(__file__).parents[3] / "charts" / "slurm-exporter"
NEEDED = ("--set=slurmApiServer=http://slurmrestd:6820", "--set=token.existingSecret=slurm-token")

Manifest = dict[str, Any]


def rendered(helm: Helm, *words: str, values: str = "") -> dict[str, Manifest]:
    done = helm("template", "one", str(CHART), "--namespace=hpc", "--values=-", *NEEDED, *words, stdin=values)
    assert done.returncode == 0, done.stderr
    return {found["kind"]: found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found}


def pod(found: dict[str, Manifest]) -> Manifest:
    spec: Manifest = found["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(found: dict[str, Manifest]) -> Manifest:
    (only,) = pod(found)["containers"]
    made: Manifest = only
    return made


def options(found: dict[str, Manifest]) -> dict[str, Any]:
    """Read the arguments as the command does, which refuses what it does not know."""
    app = typer.Typer()
    app.command()(exporter)
    name, *words = container(found)["args"]
    assert name == "exporter"
    return dict(get_command(app).make_context("exporter", words).params)


def test_the_defaults_are_those_of_the_command(helm: Helm) -> None:
    made = rendered(helm)
    assert set(made) == {"Deployment", "Service", "ServiceAccount"}
    app = typer.Typer()
    app.command()(exporter)
    usual = get_command(app).make_context("exporter", []).params
    given = options(made)
    different = {name for name in given if given[name] != usual[name]}
    assert different == {"slurm_api_server", "token_file", "data_dir"}
    (secret,) = (it["secret"] for it in pod(made)["volumes"] if "secret" in it)
    assert secret["secretName"] == "slurm-token"
    assert "slurm-token" not in " ".join(container(made)["args"])
    annotations = made["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "8080"


def test_it_has_no_right_and_no_power(helm: Helm) -> None:
    made = rendered(helm)
    assert pod(made)["automountServiceAccountToken"] is False
    assert pod(made)["securityContext"]["runAsNonRoot"] is True
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }


ALL = """
slurmApiServer: [http://a:6820, "http://b:6820"]
clusterName: big
user: nobody
collectionInterval: 10s
maxCollectorInflight: 2
jobSource: accounting
accountingJobsLookback: 2h
metricSet: vpenso
perJobMetrics: false
maxSeriesPerFamily: 7
topK: 3
usage: {maxAge: 7d, maxSize: 1GB}
logLevel: debug
extraArgs: [--log-format=json]
extraEnv: [{name: A, value: b}]
nodeSelector: {kind: cpu}
tolerations: [{key: a, operator: Exists}]
persistence: {enabled: true, size: 2Gi, storageClassName: fast}
networkPolicy: {enabled: true, from: [{namespaceSelector: {}}]}
"""


def test_every_value_arrives(helm: Helm) -> None:
    made = rendered(helm, values=ALL)
    given = options(made)
    assert given["metric_set"] == "vpenso"
    assert given["per_job_metrics"] is False
    assert (given["max_series_per_family"], given["top_k"], given["max_collector_inflight"]) == (7, 3, 2)
    assert (given["collection_interval"], given["job_source"]) == ("10s", "accounting")
    assert (given["accounting_jobs_lookback"], given["cluster_name"], given["user"]) == ("2h", "big", "nobody")
    assert (given["usage_max_age"], given["usage_max_size"]) == ("7d", "1GB")
    assert (given["log_level"], given["log_format"]) == ("debug", "json")
    assert container(made)["env"] == [{"name": "A", "value": "b"}]
    assert pod(made)["nodeSelector"] == {"kind": "cpu"}
    claim = made["PersistentVolumeClaim"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["metadata"]["name"] in str(pod(made)["volumes"])
    (rule,) = made["NetworkPolicy"]["spec"]["ingress"]
    assert [it["port"] for it in rule["ports"]] == ["metrics", "monitoring"]


def test_several_servers_can_be_named(helm: Helm) -> None:
    done = helm("template", "one", str(CHART), NEEDED[1], "--values=-", stdin=ALL)
    assert done.returncode == 0, done.stderr
    made = {found["kind"]: found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found}
    assert options(made)["slurm_api_server"] == ["http://a:6820", "http://b:6820"]


async def test_a_real_api_server_takes_it_with_either_monitor(
    helm: Helm, control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    definitions = monitor_kinds.files("podmonitors", "servicemonitors")
    try:
        for file in definitions.values():
            await crd.install(kube, yaml.load(file.read_text(), yaml.CSafeLoader), manager="test")
        for kind in ("podMonitor", "serviceMonitor"):
            values = (
                f"{ALL}\n{kind}: {{enabled: true, labels: {{release: p}}, relabelings: [{{action: labelmap}}]}}"
            )
            made = rendered(helm, f"--set=namespaceOverride={namespace}", values=values)
            name = f"{kind[0].upper()}{kind[1:]}"
            assert made[name]["metadata"]["labels"]["release"] == "p"
            wanted = made[name]["spec"]["selector"]["matchLabels"].items()
            target = made["Service"]["metadata"] if kind == "serviceMonitor" else _template(made)
            assert wanted <= target["labels"].items()
            assert "prometheus.io/scrape" not in _template(made)["annotations"]
            text = yaml.safe_dump_all(made.values())
            control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=text)
    finally:
        for it in definitions:
            await kube.delete(DEFINITIONS, Key("", it))


def _template(found: dict[str, Manifest]) -> Manifest:
    metadata: Manifest = found["Deployment"]["spec"]["template"]["metadata"]
    return metadata


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((NEEDED[1],), "slurmApiServer is not set"),
        ((NEEDED[0],), "token.existingSecret is not set"),
        ((*NEEDED, "--set=podMonitor.enabled=true", "--set=serviceMonitor.enabled=true"), "choose one"),
        ((*NEEDED, "--set=slurmApiServer=slurmrestd:6820"), "slurmApiServer"),
        ((*NEEDED, "--set=metricSet=all"), "metricSet"),
        ((*NEEDED, "--set=topK=0"), "topK"),
        ((*NEEDED, "--set=perJobMetric=false"), "perJobMetric"),
        ((*NEEDED, "--set=token.key=../x"), "key"),
        ((*NEEDED, "--set=collectionInterval=often"), "collectionInterval"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, words: tuple[str, ...], told: str) -> None:
    done = helm("template", "x", str(CHART), *words)
    assert done.returncode != 0
    assert told in done.stderr


def test_it_is_said_what_is_lost_and_how_it_is_scraped(helm: Helm) -> None:
    def notes(*words: str) -> str:
        return helm("install", "x", str(CHART), "--dry-run=client", *NEEDED, *words).stdout

    assert "lost with the pod" in notes()
    assert "annotations prometheus.io/scrape" in notes()
    assert "lost with the pod" not in notes("--set=persistence.enabled=true")
    assert "PodMonitor x" in notes("--set=podMonitor.enabled=true")
