"""The chart slurm-cluster: rendered and installed by the real helm, its cluster taken by a real API server."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.domain.operator.manifests import common
from isthmus.kube.client import Client
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.meta import Key
from isthmus.model.soperator import SLURM_CLUSTERS, PopulateJail, SlurmCluster
from isthmus.operator.webhook import KINDS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import program
from tests.flows.operator.networkpolicies import Pod, admits

CHART = Path(__file__).parents[3] / "charts" / "slurm-cluster"
EXAMPLES = CHART.parents[1] / "examples" / "operator"

Helm = Callable[..., subprocess.CompletedProcess[str]]

# The shape of a values file for soperator's chart, in its words.
OF_SOPERATOR = """
clusterName: slurm1
cudaVersion: 12.9.0
imagePullPolicy: IfNotPresent
nodeExporter: {podMonitor: {enabled: true}}
healthCheckConfig: null
topology: null
k8sNodeFilters:
  - name: no-gpu
    affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: group, operator: In, values: [a]}]}]}}}
volumeSources:
  - {name: controller-spool, createPVC: true, storageClassName: fast, size: 5Gi}
  - {name: jail, createPVC: false, storageClassName: "", size: "", persistentVolumeClaim: {claimName: jail-pvc}}
populateJail: {k8sNodeFilterName: no-gpu, jailSnapshotVolume: null, overwrite: false}
slurmConfig: {prolog: /opt/slurm_scripts/prolog.sh, maxJobCount: 20000, topologyPlugin: topology/tree}
slurmNodes:
  sssd: {enabled: true, sssdDebugLevel: 3, sssdConfSecretRefName: sssd, resources: {cpu: 200m}}
  accounting:
    enabled: true
    k8sNodeFilterName: no-gpu
    nodeExporter: {enabled: false}
    slurmdbd: {port: 6819, resources: {cpu: 1000m, memory: 3Gi, ephemeralStorage: 10Gi}}
    mariadbOperator: {enabled: true, replicas: 1, storage: {}, resources: {cpu: 1000m, memory: 1Gi}}
  controller:
    k8sNodeFilterName: no-gpu
    rbac: {create: true}
    serviceAccount: {create: true, name: ""}
    slurmctld: {port: 6817, resources: {cpu: 1000m, memory: 3Gi, ephemeralStorage: 20Gi}}
    volumes: {spool: {volumeSourceName: controller-spool}, jail: {volumeSourceName: jail}, customMounts: []}
    openMetrics: {enabled: true, serviceMonitor: {interval: 30s}}
  login:
    size: 2
    sshdServiceType: LoadBalancer
    sshRootPublicKeys: ["ssh-ed25519 AAAA someone"]
    volumes: {jail: {volumeSourceName: jail}, jailSubMounts: []}
  exporter:
    enabled: true
    size: 1
    exporterContainer: null
    collectionInterval: 15s
    podMonitorConfig: {interval: 15s, jobLabel: slurm-exporter, metricRelabelConfigs: [{action: drop, regex: x}]}
    serviceAccount: {create: true, name: slurm1-exporter}
    volumes: {jail: {volumeSourceName: jail}}
  rest: {enabled: false, size: 2, threadCount: 3, maxConnections: 10}
sConfigController:
  node: {k8sNodeFilterName: system, size: 1}
  rbac: {create: true}
  runAsUid: 1001
images: {munge: example.org/munge:1, slurmctld: "example.org/slurmctld:1", populateJail: ""}
slurmScripts: {builtIn: {prolog.sh: {enabled: true}}}
"""


@pytest.fixture(scope="session")
def helm(control_plane: ControlPlaneBed) -> Helm:
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("helm"), *words], check=False, text=True, capture_output=True, env=environment, input=stdin
        )

    return run


def rendered(helm: Helm, *words: str, values: str = "") -> list[dict[str, Any]]:
    done = helm("template", "my-cluster", str(CHART), "--namespace=hpc", "--values=-", *words, stdin=values)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found]


def cluster_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    (manifest,) = (it for it in found if it["kind"] == "SlurmCluster")
    return manifest


async def taken(kube: Client, manifest: dict[str, Any], namespace: str) -> SlurmCluster:
    """Have the API server take a cluster, without making it; an unknown field is refused."""
    made = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    return await kube.create(SLURM_CLUSTERS, made, dry_run=True)


async def test_the_defaults_are_a_whole_cluster(helm: Helm, kube: Client, namespace: str) -> None:
    manifest = cluster_of(rendered(helm))
    assert manifest["metadata"]["name"] == "my-cluster"
    cluster = await taken(kube, manifest, namespace)
    nodes = cluster.spec.slurm_nodes
    assert nodes.worker.size == 2
    assert nodes.accounting.enabled
    assert not nodes.exporter.enabled
    assert (nodes.login.sshd_service_type, nodes.login.sshd_service_node_port) == ("NodePort", 30022)
    assert [user.name for user in cluster.spec.users] == ["soperator"]


async def test_values_of_soperator_s_chart_work(helm: Helm, kube: Client, namespace: str) -> None:
    found = rendered(helm, values=OF_SOPERATOR)
    claim = next(it for it in found if it["kind"] == "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "slurm1-controller-spool"
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    cluster = await taken(kube, cluster_of(found), namespace)
    nodes = cluster.spec.slurm_nodes
    assert nodes.controller.slurmctld.image == "example.org/slurmctld:1"
    assert nodes.controller.sssd_conf_secret_ref_name == "sssd"
    assert cluster.spec.volume_sources[0] == {
        "name": "controller-spool",
        "persistentVolumeClaim": {"claimName": "slurm1-controller-spool"},
    }
    assert nodes.worker.size == 2  # a default cluster has nodes
    assert nodes.exporter.collection_interval == "15s"
    assert nodes.exporter.pod_monitor_config
    assert nodes.exporter.pod_monitor_config.metric_relabel_configs == ({"action": "drop", "regex": "x"},)
    assert nodes.exporter.service_account_name == "", "what soperator's chart would make, nobody makes here"


async def test_the_shared_root_is_on_unless_it_is_turned_off(helm: Helm, kube: Client, namespace: str) -> None:
    def wish(*words: str) -> Any:
        return cluster_of(rendered(helm, *words))

    cluster = await taken(kube, wish(), namespace)
    assert cluster.spec.populate_jail == PopulateJail()
    given = (
        "--set=images.populateJail=root:1",
        "--set=imagePullPolicy=Always",
        "--set=populateJail.priorityClass=p",
    )
    cluster = await taken(kube, wish(*given), namespace)
    assert cluster.spec.populate_jail == PopulateJail(
        image="root:1", image_pull_policy="Always", priority_class="p"
    )
    for off in ("populateJail=null", "populateJail.enabled=false"):
        cluster = await taken(kube, wish(f"--set={off}"), namespace)
        assert cluster.spec.populate_jail == PopulateJail(enabled=False)


@pytest.mark.parametrize("cpu", ["1", "0.5", "500m", "2k"])
async def test_amounts_are_taken_as_helm_reads_them(helm: Helm, kube: Client, namespace: str, cpu: str) -> None:
    manifest = cluster_of(rendered(helm, f"--set=slurmNodes.worker.resources.cpu={cpu}"))
    cluster = await taken(kube, manifest, namespace)
    assert str(cluster.spec.slurm_nodes.worker.resources["cpu"]) == cpu


def test_what_has_no_effect_is_said_after_the_install(helm: Helm) -> None:
    done = helm("install", "x", str(CHART), "--dry-run=client", "--values=-", stdin=OF_SOPERATOR)
    assert "No effect: nodeExporter, cudaVersion, slurmScripts.builtIn, images.munge" in done.stdout


CHECKS = """
slurmScripts:
  checks:
    clock: {enabled: false}
    disk_full: {on_fail: comment}
    mine: {command: "my_check.sh", contexts: [prolog]}
  custom:
    my_check.sh: "#!/bin/sh\\nexit 0\\n"
    gpu.py: "instead of the shipped one"
    nhc.conf: "* || check_hw_eth eth0"
slurmConfig: {epilog: /usr/bin/true}
"""


async def test_checks_are_delivered_to_the_shared_root(helm: Helm, kube: Client, namespace: str) -> None:
    found = {it["kind"]: it for it in rendered(helm)}
    config, jailed = found["ConfigMap"], found["JailedConfig"]
    assert config["metadata"]["name"] == jailed["spec"]["configMap"]["name"] == "my-cluster-slurm-scripts"
    for file in (it for it in (CHART / "files" / "slurm_scripts").glob("**/*") if it.is_file()):
        if file.suffix == ".json":
            assert json.loads(config["data"][file.name]) == json.loads(file.read_text())
        elif "__pycache__" not in file.parts and ".mypy_cache" not in file.parts:
            assert config["data"][file.name] == file.read_text()
    items = {it["path"]: it for it in jailed["spec"]["items"]}
    assert items["/opt/slurm_scripts/prolog.sh"]["mode"] == 0o755
    assert items["/opt/slurm_scripts/checks/gpu.py"]["key"] == "gpu.py"
    assert {it["key"] for it in items.values()} == set(config["data"])
    made = {**jailed, "metadata": {**jailed["metadata"], "namespace": namespace}}
    await kube.create(JAILED_CONFIGS, made, dry_run=True)
    spec = (await taken(kube, found["SlurmCluster"], namespace)).spec
    assert (spec.slurm_config.prolog, spec.slurm_config.epilog) == (
        "/opt/slurm_scripts/prolog.sh",
        "/opt/slurm_scripts/epilog.sh",
    )
    assert spec.health_check_config
    assert spec.health_check_config.health_check_interval == 120
    assert spec.health_check_config.health_check_program == "/opt/slurm_scripts/hc_program.sh"
    assert [it.state for it in spec.health_check_config.health_check_node_state] == ["ANY", "CYCLE"]


def test_checks_are_changed_added_and_turned_off_by_values(helm: Helm) -> None:
    found = {it["kind"]: it for it in rendered(helm, values=CHECKS)}
    data = found["ConfigMap"]["data"]
    checks = {it["name"]: it for it in json.loads(data["checks.json"])}
    assert "clock" not in checks
    assert (checks["disk_full"]["on_fail"], checks["disk_full"]["on_ok"]) == ("comment", "undrain")
    assert checks["mine"] == {"name": "mine", "command": "my_check.sh", "contexts": ["prolog"]}
    items = {it["key"]: it["path"] for it in found["JailedConfig"]["spec"]["items"]}
    assert items["my_check.sh"] == "/opt/slurm_scripts/my_check.sh"
    assert items["nhc.conf"] == "/opt/slurm_scripts/nhc.conf"
    assert items["gpu.py"] == "/opt/slurm_scripts/checks/gpu.py"
    assert data["gpu.py"] == "instead of the shipped one"
    config = found["SlurmCluster"]["spec"]["slurmConfig"]
    assert config == {"prolog": "/opt/slurm_scripts/prolog.sh", "epilog": "/usr/bin/true"}


@pytest.mark.parametrize("off", ["slurmScripts.enabled=false", "populateJail=null", "populateJail.enabled=false"])
def test_without_checks_or_a_shared_root_slurm_runs_no_scripts(helm: Helm, off: str) -> None:
    (manifest,) = rendered(helm, f"--set={off}")
    assert "healthCheckConfig" not in manifest["spec"]
    assert "slurmConfig" not in manifest["spec"]


PROMETHEUS = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}"
OWN = {
    component: Pod("hpc", common.labels(component, "my-cluster", component, cluster="my-cluster"))
    for component in (
        *(
            "controller",
            "worker",
            "login",
            "accounting",
            "restapi",
            "database",
            "exporter",
            "sconfigcontroller",
            "jail",
        ),
        "soperatorchecks",
        "node-configurator",
    )
}
PART_OF = {"app.kubernetes.io/part-of": "isthmus"}
OTHERS = {
    "operator": Pod("isthmus-system", {**PART_OF, "app.kubernetes.io/name": "isthmus-operator"}),
    "bridge": Pod("hpc", {**PART_OF, "app.kubernetes.io/name": "slurm-bridge"}),
    "prometheus": Pod("monitoring", {"app": "prometheus"}),
    "stranger": Pod("hpc", {"app": "web"}),
    "pretender": Pod("elsewhere", {**PART_OF, "app.kubernetes.io/managed-by": "isthmus"}),
}
# Who may reach which port of whom; nobody else may.
MAY: dict[tuple[str, int | str], set[str]] = {
    ("controller", 6817): {*OWN, "prometheus"},
    ("controller", 1): {*OWN, "prometheus"},
    ("controller", 22): set(),
    ("worker", 6818): {*OWN},
    ("worker", 60001): {*OWN},
    ("worker", 22): {*OWN},
    ("login", 22): {*OWN, *OTHERS},
    ("login", 60001): {*OWN},
    ("accounting", 6819): {*OWN},
    ("accounting", 22): set(),
    ("database", 3306): {"accounting"},
    ("restapi", 6820): {*OWN, "operator", "bridge", "prometheus"},
    ("restapi", 6821): {*OWN, "operator", "bridge", "prometheus"},
    ("exporter", "metrics"): {"prometheus"},
    ("exporter", "monitoring"): {"prometheus"},
    ("exporter", 22): set(),
    ("sconfigcontroller", "metrics"): {"prometheus"},
    ("sconfigcontroller", "health"): set(),
    ("node-configurator", 8080): {"prometheus"},
    ("soperatorchecks", 60001): {*OWN},
    ("jail", 22): set(),
}


def policies(helm: Helm, *words: str, values: str) -> list[dict[str, Any]]:
    return [it for it in rendered(helm, *words, values=values) if it["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("told", [True, False], ids=["with Prometheus", "by default"])
def test_each_daemon_can_be_closed_to_all_who_have_no_business_with_it(
    helm: Helm,
    control_plane: ControlPlaneBed,
    namespace: str,
    told: bool,  # noqa: FBT001 - a parameter
) -> None:
    assert policies(helm, values="") == []
    made = policies(helm, values=f"networkPolicy: {{enabled: true{f', from: [{PROMETHEUS}]' if told else ''}}}")
    everybody = {**OWN, **OTHERS}
    for (target, port), may in MAY.items():
        found = {name for name, source in everybody.items() if admits(made, source, OWN[target], port)}
        assert found == (may if told or target == "login" else may - {"prometheus"}), (target, port)
    control_plane.kubectl(
        "apply", f"--namespace={namespace}", "--filename=-", stdin=yaml.safe_dump_all(unplaced(it) for it in made)
    )


def unplaced(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {key: it for key, it in manifest["metadata"].items() if key != "namespace"}}


def test_an_operator_in_another_namespace_is_named(helm: Helm) -> None:
    operator = Pod("ops", PART_OF)
    given = "networkPolicy: {enabled: true, namespaces: [ops]}"
    assert admits(policies(helm, values=given), operator, OWN["restapi"], 6820)
    assert not admits(policies(helm, values="networkPolicy: {enabled: true}"), operator, OWN["restapi"], 6820)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set=slurmNodes.worker.size=-1",), "minimum"),
        (("--set=slurmNodes.wroker.size=3",), "wroker"),
        (("--set=slurmVersion=23.02",), "slurmVersion"),
        (("--set=users[0].name=root;reboot",), "pattern"),
        (("--set=users[0].name=root", "--set=users[0].uid=0"), "uid"),
        (("--set=slurmNodes.controller.resources.memory=lots",), "memory"),
        (("--set=clusterName=Big_One",), "clusterName"),
        (("--set=slurmScripts.checks.clock.on_fail=reboot",), "on_fail"),
        (("--set=slurmScripts.checks.clock.timeuot=3",), "timeuot"),
        (("--set=slurmScripts.custom.a/b=x",), "a/b"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, words: tuple[str, ...], told: str) -> None:
    done = helm("template", "x", str(CHART), *words)
    assert done.returncode != 0
    assert told in done.stderr


async def test_an_upgrade_changes_the_cluster_that_is_there(helm: Helm, kube: Client, namespace: str) -> None:
    def run(*words: str) -> None:
        done = helm(*words, f"--namespace={namespace}")
        assert done.returncode == 0, done.stderr

    run("install", "my-cluster", str(CHART))
    before = await kube.get(SLURM_CLUSTERS, Key(namespace, "my-cluster"))
    run(
        "upgrade",
        "my-cluster",
        str(CHART),
        "--set=slurmNodes.worker.size=10",
        "--set=slurmNodes.controller.resources.memory=2Gi",
    )
    after = await kube.get(SLURM_CLUSTERS, Key(namespace, "my-cluster"))
    assert after.metadata.uid == before.metadata.uid
    assert after.spec.slurm_nodes.worker.size == 10
    assert after.spec.slurm_nodes.controller.resources == {"memory": "2Gi"}
    run("uninstall", "my-cluster")


async def test_the_examples_are_taken(kube: Client, namespace: str) -> None:
    kinds = {(it.api_version, it.name): it for it in (*KINDS, JAILED_CONFIGS)}
    files = [it for it in sorted(EXAMPLES.glob("*.yaml")) if not it.name.startswith("values-")]
    assert files
    for file in files:
        for manifest in yaml.load_all(file.read_text(), yaml.CSafeLoader):
            kind = kinds.get((manifest["apiVersion"], manifest["kind"]))
            if kind:
                made = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
                await kube.create(kind, made, dry_run=True)


async def test_values_among_the_examples_are_taken(helm: Helm, kube: Client, namespace: str) -> None:
    files = sorted(EXAMPLES.glob("values-*.yaml"))
    assert files
    for file in files:
        await taken(kube, cluster_of(rendered(helm, values=file.read_text())), namespace)
