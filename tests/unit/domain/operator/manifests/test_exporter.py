"""What the exporter of a SlurmCluster is made of, and what follows from each field of `slurmNodes.exporter`."""

from typing import Any

import msgspec
import pytest
import typer
from typer.main import get_command

from isthmus.cli.exporter import exporter as command
from isthmus.cli.goflags import GoCommand
from isthmus.domain.operator.clusterparts import Parts, parts_of
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.base import Kind
from isthmus.model.objects import DEPLOYMENTS, POD_MONITORS, ROLES, SERVICE_ACCOUNTS, SERVICES
from isthmus.model.slinky import TOKENS
from isthmus.model.soperator import SlurmCluster
from isthmus.model.storage import CLAIMS

SETTINGS = Settings(isthmus_image="isthmus:1")
KINDS: tuple[Kind[Any], ...] = (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS, TOKENS, POD_MONITORS)


def parts(
    *, prefix: str = "", monitored: bool = True, exporter: dict[str, Any] | None = None, **spec: Any
) -> Parts:
    nodes = {"exporter": {"enabled": True, **(exporter or {})}, **spec.pop("slurmNodes", {})}
    wanted = {"metadata": {"name": "demo", "namespace": "ns"}, "spec": {"slurmNodes": nodes, **spec}}
    cluster = msgspec.convert(wanted, SlurmCluster)
    return parts_of(cluster, prefix=prefix, settings=SETTINGS, monitored=monitored)


def of_exporter(found: Parts) -> dict[Kind[Any], dict[str, Any]]:
    return {
        it.kind: it.manifest
        for it in found.children
        if it.manifest["metadata"]["labels"]["app.kubernetes.io/component"] == "exporter"
    }


def pod(found: Parts) -> dict[str, Any]:
    spec: dict[str, Any] = of_exporter(found)[DEPLOYMENTS]["spec"]["template"]["spec"]
    return spec


def container(found: Parts) -> dict[str, Any]:
    (only,) = pod(found)["containers"]
    made: dict[str, Any] = only
    return made


def test_it_consists_of_these_and_is_named_as_other_parts_are() -> None:
    found = of_exporter(parts())
    assert set(found) == set(KINDS)
    assert {it["metadata"]["name"] for it in found.values()} == {"slurm-exporter"}
    named = of_exporter(parts(prefix="demo-"))
    assert {it["metadata"]["name"] for it in named.values()} == {"demo-slurm-exporter"}
    assert not of_exporter(parts(exporter={"enabled": False}))


def test_it_has_no_right_in_kubernetes_and_no_power_in_its_pod() -> None:
    found = parts()
    assert not [it for it in found.children if it.kind is ROLES]
    assert pod(found)["automountServiceAccountToken"] is False
    assert of_exporter(found)[SERVICE_ACCOUNTS]["automountServiceAccountToken"] is False
    assert pod(found)["securityContext"]["runAsNonRoot"] is True
    assert pod(found)["securityContext"]["runAsUser"] == pod(found)["securityContext"]["fsGroup"] > 0
    assert container(found)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_its_token_is_a_file_of_a_secret_and_never_an_argument() -> None:
    found = parts()
    token = of_exporter(found)[TOKENS]["spec"]
    (volume,) = (it for it in pod(found)["volumes"] if "secret" in it)
    assert volume["secret"]["secretName"] == token["secretRef"]["name"] == "slurm-exporter-token"
    (mount,) = (it for it in container(found)["volumeMounts"] if it["name"] == volume["name"])
    assert f"--token-file={mount['mountPath']}/{token['secretRef']['key']}" in container(found)["args"]
    assert mount["readOnly"]
    assert token["jwtKeyRef"] == {"name": "demo-jwt-key", "key": "jwt.key"}
    assert "http://demo-restapi.ns.svc:6820" in " ".join(container(found)["args"])


@pytest.mark.parametrize(
    ("spec", "user"),
    [
        ({}, "nobody"),
        ({"customSlurmConfig": "PrivateData=jobs\n"}, "slurm"),
        ({"slurmNodes": {"accounting": {"enabled": True, "slurmdbdConfig": {"privateData": "jobs"}}}}, "slurm"),
        ({"slurmNodes": {"accounting": {"enabled": False, "slurmdbdConfig": {"privateData": "jobs"}}}}, "nobody"),
    ],
)
def test_its_token_can_change_nothing_unless_only_slurms_user_sees_all(spec: dict[str, Any], user: str) -> None:
    assert of_exporter(parts(**spec))[TOKENS]["spec"]["username"] == user


def test_both_ports_are_served_and_scraped_and_health_is_at_the_second() -> None:
    found = of_exporter(parts())
    ports = {it["name"]: it["containerPort"] for it in container(parts())["ports"]}
    assert ports == {"metrics": 8080, "monitoring": 8081}
    assert {it["name"]: it["port"] for it in found[SERVICES]["spec"]["ports"]} == ports
    assert {it["port"] for it in found[POD_MONITORS]["spec"]["podMetricsEndpoints"]} == set(ports)
    for probe in ("readinessProbe", "livenessProbe"):
        assert container(parts())[probe]["httpGet"]["port"] == "monitoring"
    template = found[DEPLOYMENTS]["spec"]["template"]["metadata"]
    assert found[POD_MONITORS]["spec"]["selector"]["matchLabels"].items() <= template["labels"].items()
    assert found[SERVICES]["spec"]["selector"].items() <= template["labels"].items()


def test_annotations_say_what_to_scrape_only_where_there_is_no_podmonitor() -> None:
    def annotations(found: Parts) -> dict[str, str]:
        metadata = of_exporter(found)[DEPLOYMENTS]["spec"]["template"]["metadata"]
        return {key: value for key, value in metadata["annotations"].items() if key.startswith("prometheus.io/")}

    without = parts(monitored=False, exporter={"podMonitorConfig": {"interval": "10s"}})
    assert POD_MONITORS not in of_exporter(without)
    assert annotations(without) == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    why = "slurmNodes.exporter.podMonitorConfig (the definitions of monitoring.coreos.com/v1 are not installed)"
    assert without.ignored == (why,)
    assert annotations(parts()) == {}
    assert parts(monitored=False).ignored == ()


def test_fields_of_the_podmonitor_arrive() -> None:
    config = {
        "jobLabel": "job",
        "interval": "15s",
        "relabelConfig": [{"action": "keep", "regex": "a"}],
        "metricRelabelConfigs": [{"action": "drop", "regex": "b"}],
        "labels": {"release": "prometheus", "app.kubernetes.io/name": "mine"},
    }
    made = of_exporter(parts(exporter={"podMonitorConfig": config}))[POD_MONITORS]
    assert made["metadata"]["labels"]["release"] == "prometheus"
    assert made["metadata"]["labels"]["app.kubernetes.io/name"] == "slurm-exporter"
    assert made["spec"]["jobLabel"] == "job"
    assert made["spec"]["namespaceSelector"] == {"matchNames": ["ns"]}
    for endpoint in made["spec"]["podMetricsEndpoints"]:
        assert endpoint["interval"] == "15s"
        assert endpoint["scrapeTimeout"] == "15s", "Prometheus takes none that is longer than the interval"
        assert endpoint["relabelings"] == [{"action": "keep", "regex": "a"}]
        assert endpoint["metricRelabelings"] == [
            {"action": "labeldrop", "regex": "pod|instance|container"},
            {"action": "drop", "regex": "b"},
        ]
    usual = of_exporter(parts())[POD_MONITORS]["spec"]
    assert usual["jobLabel"] == "slurm-exporter"
    assert {(it["interval"], it["scrapeTimeout"]) for it in usual["podMetricsEndpoints"]} == {("30s", "20s")}


def test_fields_become_flags_and_fields_of_the_pod() -> None:
    found = parts(
        exporter={
            "collectionInterval": "10s",
            "maxCollectorInflight": 2,
            "jobSource": "accounting",
            "accountingJobsLookback": "2h",
            "serviceAccountName": "theirs",
            "k8sNodeFilterName": "cpu",
            "priorityClass": "high",
            "hostUsers": False,
            "customInitContainers": [{"name": "first", "image": "i"}],
            "exporterContainer": {
                "image": "other:1",
                "imagePullSecrets": [{"name": "pull"}],
                "resources": {"memory": "1Gi"},
                "args": ["--per-job-metrics=false"],
                "customEnv": [{"name": "SLURM_EXPORTER_TOP_K", "value": "5"}],
                "port": 9000,
            },
        },
        slurmNodes={"accounting": {"enabled": True}},
        k8sNodeFilters=[{"name": "cpu", "nodeSelector": {"kind": "cpu"}}],
    )
    args = container(found)["args"]
    assert args[-5:] == [
        "--collection-interval=10s",
        "--max-collector-inflight=2",
        "--job-source=accounting",
        "--accounting-jobs-lookback=2h",
        "--per-job-metrics=false",
    ]
    assert "--metrics-bind-address=:9000" in args
    assert container(found)["image"] == "other:1"
    assert container(found)["resources"]["limits"] == {"memory": "1Gi"}
    assert {"name": "SLURM_EXPORTER_TOP_K", "value": "5"} in container(found)["env"]
    assert pod(found)["nodeSelector"] == {"kind": "cpu"}
    assert pod(found)["priorityClassName"] == "high"
    assert pod(found)["hostUsers"] is False
    assert pod(found)["initContainers"] == [{"name": "first", "image": "i"}]
    assert pod(found)["imagePullSecrets"] == [{"name": "pull"}]
    assert (pod(found)["serviceAccountName"], pod(found)["automountServiceAccountToken"]) == ("theirs", True)
    assert SERVICE_ACCOUNTS not in of_exporter(found)
    assert found.problems == found.ignored == ()


def test_the_command_knows_every_flag() -> None:
    app = typer.Typer()
    app.command(cls=GoCommand)(command)
    given = {"collectionInterval": "10s", "maxCollectorInflight": 2, "accountingJobsLookback": "2h"}
    name, *words = container(parts(exporter={**given, "jobSource": "controller"}))["args"]
    assert name == "exporter"
    read = get_command(app).make_context(name, words).params
    assert (read["cluster_name"], read["cluster_namespace"]) == ("demo", "ns")
    assert (read["collection_interval"], read["max_collector_inflight"]) == ("10s", 2)
    assert str(read["data_dir"]) == "/var/lib/isthmus-exporter"


def test_what_cannot_be_done_is_named() -> None:
    found = parts(exporter={"jobSource": "accounting", "size": 3})
    assert "--job-source=accounting" not in container(found)["args"]
    assert found.ignored == (
        "slurmNodes.exporter.jobSource (there is no accounting)",
        "slurmNodes.exporter.size (one is enough)",
    )
    found = parts(exporter={"podMonitorConfig": {"interval": "10s", "scrapeTimeout": "1m"}})
    assert found.problems == ("slurmNodes.exporter.podMonitorConfig.scrapeTimeout: it is longer than interval",)
    found = parts(exporter={"exporterContainer": {"port": 8081}})
    assert found.problems == ("slurmNodes.exporter.exporterContainer.port: 8081 is the port of its own /healthz",)
    assert parts(exporter={"enabled": False, "munge": {"image": "m"}, "size": 3}).ignored == ()


def test_counters_are_kept_where_the_user_says() -> None:
    def data(found: Parts) -> Any:
        (volume,) = (it for it in pod(found)["volumes"] if it["name"] == "data")
        return {key: value for key, value in volume.items() if key != "name"}

    assert data(parts()) == {"emptyDir": {}}
    sources = [{"name": "usage", "persistentVolumeClaim": {"claimName": "mine"}}]
    found = parts(exporter={"dataVolume": {"volumeSourceName": "usage"}}, volumeSources=sources)
    assert data(found) == {"persistentVolumeClaim": {"claimName": "mine"}}
    found = parts(exporter={"dataVolume": {"volumeClaimTemplateSpec": {"storageClassName": "fast"}}})
    assert data(found) == {"persistentVolumeClaim": {"claimName": "slurm-exporter"}}
    (claim,) = (it for it in found.children if it.kind is CLAIMS and it.key.name == "slurm-exporter")
    assert claim.kept, "what was counted outlives the cluster"
    assert claim.manifest["spec"]["storageClassName"] == "fast"
    assert "volumeSources" in " ".join(parts(exporter={"dataVolume": {"volumeSourceName": "none"}}).problems)


def test_none_is_at_work_while_the_cluster_rests() -> None:
    assert of_exporter(parts(maintenance="downscale"))[DEPLOYMENTS]["spec"]["replicas"] == 0
    assert of_exporter(parts(exporter={"size": 0}))[DEPLOYMENTS]["spec"]["replicas"] == 0
    assert of_exporter(parts())[DEPLOYMENTS]["spec"]["replicas"] == 1
