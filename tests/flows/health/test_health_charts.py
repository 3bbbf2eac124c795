"""The charts soperatorchecks and soperator-activechecks: rendered by the real helm, taken by a real API server."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

from isthmus.cli.goflags import GoCommand
from isthmus.cli.soperatorchecks import soperatorchecks
from isthmus.kube.client import Client
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.health import HEALTH_POLICIES
from isthmus.model.meta import Key
from isthmus.model.workload import CRON_JOBS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import token_of
from tests.flows.operator.nodesets_bed import CONTROLLER, make_controller
from tests.flows.operator.test_cluster_chart import Helm, helm

__all__ = ["helm"]

ROOT = Path(__file__).parents[3]
PROCESS, CHECKS = ROOT / "charts" / "soperatorchecks", ROOT / "charts" / "soperator-activechecks"
EXAMPLES = ROOT / "examples" / "health"
ORDER = [
    "create-user-soperatorchecks",
    "wait-for-soperatorchecks-srun-ready",
    "wait-for-topology",
    "gpu-checks",
    "ensure-healthy-nodes",
]

Manifest = dict[str, Any]

OF_SOPERATOR = """
checks:
  kubeRbacProxy: {args: [--v=0], resources: {limits: {memory: 128Mi}}}
  manager:
    enableNodeReplacement: false
    enableExtensiveCheck: false
    controllersEnabled: {slurmnodes: true}
    containerSecurityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env: {slurmOperatorWatchNamespaces: '*', maintenanceIgnoreNodeLabels: "slurm.nebius.ai/nodeset=nfs"}
    image: {repository: registry.example/checks, tag: "3"}
    imagePullPolicy: Always
    resources: {limits: {memory: 128Mi}, requests: {cpu: 100m, memory: 64Mi}}
  replicas: 1
  serviceAccount: {annotations: {}}
kubernetesClusterDomain: cluster.local
serviceMonitor: {enabled: true, jobLabel: soperatorchecks, interval: 30s, scrapeTimeout: 28s, additionalLabels: {}}
"""


def rendered(helm: Helm, chart: Path, *words: str, values: str = "") -> list[Manifest]:
    done = helm("template", "one", str(chart), "--namespace=hpc", "--values=-", *words, stdin=values)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found]


def of_kind(found: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {it["metadata"]["name"]: it for it in found if it["kind"] == kind}


def container(found: list[Manifest]) -> Manifest:
    (only,) = of_kind(found, "Deployment")["soperatorchecks"]["spec"]["template"]["spec"]["containers"]
    made: Manifest = only
    return made


def options(found: list[Manifest]) -> dict[str, Any]:
    """Read the arguments as the command does, which refuses what it does not know."""
    app = typer.Typer()
    app.command(cls=GoCommand)(soperatorchecks)
    name, *words = container(found)["args"]
    assert name == "soperatorchecks"
    return dict(get_command(app).make_context(name, words).params)


def rules(found: list[Manifest], role: str = "ClusterRole") -> list[Manifest]:
    return [rule for it in of_kind(found, role).values() for rule in it["rules"]]


@pytest.mark.parametrize("chart", [PROCESS, CHECKS], ids=lambda it: it.name)
def test_lint_has_nothing_to_say(helm: Helm, chart: Path) -> None:
    done = helm("lint", "--strict", str(chart))
    assert done.returncode == 0, done.stdout


def test_the_command_takes_the_flags_that_the_chart_gives(helm: Helm) -> None:
    given = options(rendered(helm, PROCESS))
    assert given["enable_node_replacement"] is False
    assert given["namespaces"] == ""
    manager = "{args: [--not-ready-timeout=5m], env: {slurmOperatorWatchNamespaces: 'a, b'}}"
    values = f"checks: {{replicas: 2, manager: {manager}}}"
    made = rendered(helm, PROCESS, values=values)
    assert options(made)["namespaces"] == "a,b"
    assert options(made)["not_ready_timeout"] == "5m"
    assert set(of_kind(made, "Role")) == {"soperatorchecks", "soperatorchecks-own"}
    locked = container(made)["securityContext"]
    assert locked["readOnlyRootFilesystem"] is True
    assert locked["capabilities"] == {"drop": ["ALL"]}


def test_only_who_allows_it_lets_nodes_be_deleted(helm: Helm) -> None:
    def of_nodes(found: list[Manifest]) -> set[str]:
        return {verb for it in rules(found) if "nodes" in it["resources"] for verb in it["verbs"]}

    assert of_nodes(rendered(helm, PROCESS)) == {"get", "list", "watch"}
    allowed = rendered(helm, PROCESS, "--set=checks.manager.enableNodeReplacement=true")
    assert of_nodes(allowed) == {"get", "list", "watch", "delete"}
    assert options(allowed)["enable_node_replacement"] is True
    assert not [
        it for it in rules(rendered(helm, PROCESS)) if "*" in (*it["verbs"], *it["resources"], *it["apiGroups"])
    ]


def test_values_of_soperator_work_unchanged(helm: Helm) -> None:
    made = rendered(helm, PROCESS, values=OF_SOPERATOR)
    assert container(made)["image"] == "registry.example/checks:3"
    assert options(made)["maintenance_ignore_node_labels"] == "slurm.nebius.ai/nodeset=nfs"
    done = helm("install", "x", str(PROCESS), "--dry-run=client", "--values=-", stdin=OF_SOPERATOR)
    assert "No effect: checks.kubeRbacProxy." in done.stdout
    assert "No effect: checks.manager.controllersEnabled." in done.stdout


@pytest.mark.parametrize(
    ("chart", "words", "told"),
    [
        (PROCESS, "--set=checks.manager.metricPort=1", "metricPort"),
        (PROCESS, "--set=checks.replicas=2,checks.manager.leaderElection=false", "elect no leader"),
        (CHECKS, "--set=healthPolicy.mode=off", "mode"),
        (CHECKS, "--set=healthPolicy.limits.maxUnavailable=120%", "maxUnavailable"),
        (CHECKS, "--set=checks.gpuChecks.schedule=daily", "schedule"),
        (CHECKS, "--set=checks.gpuChecks.maxJobs=1", "maxJobs"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, chart: Path, words: str, told: str) -> None:
    done = helm("template", "x", str(chart), words)
    assert done.returncode != 0
    assert told in done.stderr


def test_checks_come_in_the_order_of_soperator(helm: Helm) -> None:
    made = of_kind(rendered(helm, CHECKS), "ActiveCheck")
    assert list(made) == ORDER
    for name in ORDER:
        after = made[name]["spec"].get("dependsOn", [])
        assert all(ORDER.index(it) < ORDER.index(name) for it in after)
    assert made["gpu-checks"]["spec"]["dependsOn"] == ORDER[:3]
    assert made["gpu-checks"]["spec"]["schedule"] == "0 0,12 * * *"
    assert made["gpu-checks"]["spec"]["slurmJobSpec"]["maxNumberOfJobs"] == 200
    reaction = made["gpu-checks"]["spec"]["failureReactions"]["drainSlurmNode"]
    assert reaction == {"drainReasonPrefix": "[node_problem]"}
    assert [name for name, it in made.items() if "failureReactions" in it["spec"]] == ["gpu-checks"]


def test_a_check_that_is_switched_off_is_waited_for_by_nobody(helm: Helm) -> None:
    off = "--set=checks.waitForTopology.enabled=false,checks.createUserSoperatorChecks.enabled=false"
    found = rendered(helm, CHECKS, off, "--set=healthPolicy.create=false", values="checks: {createUser: {name: x}}")
    made = of_kind(found, "ActiveCheck")
    assert made["gpu-checks"]["spec"]["dependsOn"] == ["wait-for-soperatorchecks-srun-ready"]
    assert "dependsOn" not in made["wait-for-soperatorchecks-srun-ready"]["spec"]
    assert not of_kind(found, "HealthPolicy")
    assert not of_kind(found, "ConfigMap")


async def test_a_real_api_server_takes_checks_policy_and_examples(
    helm: Helm, control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    everything = "--set=checks.dcgmiDiagR3.enabled=true,checks.dcgmiDiagR3.runAfterCreation=true"
    for found in rendered(helm, CHECKS, everything):
        found["metadata"]["namespace"] = namespace
        text = yaml.safe_dump(found)
        control_plane.kubectl("apply", "--validate=strict", "--filename=-", stdin=text)
    assert len((await kube.list(ACTIVE_CHECKS, namespace=namespace)).items) == len(ORDER) + 1
    policy = await kube.get(HEALTH_POLICIES, Key(namespace, "slurm"))
    assert policy.spec.mode == "enforce"
    assert [it.rung for it in policy.spec.ladder] == ["restartPod"], "no machine is touched by itself"
    for file in sorted(EXAMPLES.glob("*.yaml")):
        for found in filter(None, yaml.load_all(file.read_text(), yaml.CSafeLoader)):
            found["metadata"]["namespace"] = namespace
            text = yaml.safe_dump(found)
            control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=text)


async def test_the_process_works_with_the_rights_of_its_account(
    helm: Helm, control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path
) -> None:
    values = "{checks: {manager: {metricsPort: 0}}, networkPolicy: {enabled: false}}"
    home = (f"--namespace={namespace}", f"--set=fullnameOverride={namespace}", "--set=rbac.secretNames={keys}")
    done = helm("upgrade", "--install", "checks", str(PROCESS), *home, "--values=-", stdin=values)
    assert done.returncode == 0, done.stderr
    try:
        await make_controller(kube, namespace)
        wanted = (f"--set=slurmClusterRefName={CONTROLLER}", f"--namespace={namespace}")
        done = helm("upgrade", "--install", "set", str(CHECKS), *wanted)
        assert done.returncode == 0, done.stderr
        kubeconfig = yaml.load(control_plane.kubeconfig.read_text(), yaml.CSafeLoader)
        kubeconfig["users"] = [{"name": "account", "user": {"token": await token_of(kube, namespace, namespace)}}]
        kubeconfig["contexts"][0]["context"] |= {"user": "account", "namespace": namespace}
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        await _run_until_cronjobs(kube, namespace, tmp_path)
        may = partial(may_read, control_plane, namespace)
        assert (may("secret/keys"), may("secret/others"), may("secrets"), may("pods")) == (True, False, False, True)
    finally:
        for release in ("set", "checks"):
            helm("uninstall", release, f"--namespace={namespace}")
    assert "orbidden" not in (tmp_path / "log").read_text()


def may_read(control_plane: ControlPlaneBed, namespace: str, what: str) -> bool:
    account = f"--as=system:serviceaccount:{namespace}:{namespace}"
    words = ("auth", "can-i", "list" if "/" not in what else "get", what, account, f"--namespace={namespace}")
    try:
        return control_plane.kubectl(*words).strip() == "yes"
    except subprocess.CalledProcessError:  # with "no"
        return False


def test_it_reads_no_more_than_it_needs(helm: Helm) -> None:
    """The operator's other caches are not its own: what it has no use for, it may not read."""
    readable = {
        resource for rule in rules(rendered(helm, PROCESS)) for resource in rule["resources"] if "/" not in resource
    }
    assert readable == {
        *("controllers", "nodesets", "restapis", "slurmclusters", "activechecks", "nodehealths", "healthpolicies"),
        *("pods", "services", "podtemplates", "secrets", "configmaps", "serviceaccounts", "roles", "rolebindings"),
        *("jobs", "cronjobs", "events", "nodes", "resourceslices"),
    }


async def _run_until_cronjobs(kube: Client, namespace: str, place: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("isthmus")),
        "soperatorchecks",
        f"--name={namespace}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=127.0.0.1:0",
        f"--kubeconfig={place / 'kubeconfig'}",
    ]
    with (place / "log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=subprocess.STDOUT)
        try:
            async with asyncio.timeout(120):
                while True:
                    found = {it.metadata.name for it in (await kube.list(CRON_JOBS, namespace=namespace)).items}
                    if found >= set(ORDER):
                        return
                    assert process.returncode is None, (place / "log").read_text()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"only {found}: {(place / 'log').read_text()[-4000:]}") from None
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
