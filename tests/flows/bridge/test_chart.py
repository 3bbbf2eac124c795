"""The chart slurm-bridge: rendered by the real helm, taken by a real API server, its accounts put to work."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from isthmus.bridge import config as bridge_config
from isthmus.bridge.admission import registration
from isthmus.bridge.admission.webhook import OwnCaches
from isthmus.bridge.cache.nodemap import OWNERS
from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.claims import ClaimAllocator, Plan
from isthmus.bridge.scheduler.conditions import NotYet
from isthmus.domain.bridge.podclaims import PodClaims
from isthmus.domain.languages import slurmconf
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.errors import Forbidden
from isthmus.model.base import Kind
from isthmus.model.dra import FINALIZER, RESOURCE_CLAIMS, Allocation
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key, ObjectMeta, OwnerReference, micro_time
from isthmus.model.pod import PODS, Pod
from isthmus.names import CONTROLLERS_LEASE
from isthmus.runtime.certkeeper import SECRETS, Place
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import MUTATING, VALIDATING, WebhookConfiguration
from isthmus.slurm.client import Client as SlurmClient
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import program
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.devices_bed import DRIVER, claiming, make_claim
from tests.flows.kube.conftest import NAMESPACES, make_namespace, token_of
from tests.flows.kube.waiting import running

CHART = Path(__file__).parents[3] / "charts" / "slurm-bridge"
RAW_JOBS: Kind[dict[str, Any]] = Kind(dict[str, Any], "batch/v1", "jobs", "Job")

NOON = "2026-11-18T12:00:00Z"

Manifest = dict[str, Any]

DOCUMENTED = """
replicaCount: 3
image:
  repository: slinky.slurm.net/slurm-bridge
  pullPolicy: IfNotPresent
  tag: "1.0.0"
resources:
  limits: {cpu: 1, memory: 1Gi}
  requests: {cpu: 100m, memory: 128Mi}
config:
  schedulerName: "slurm-bridge"
  slurmRestApi: "http://slurm-controller:6820"
  managedNamespaces: ["batch", "hpc", "ai-workloads"]
  managedNamespaceSelector:
    matchLabels:
      slurm.managed: "true"
  mcsLabel: ""
  partition: "normal"
service:
  type: ClusterIP
  port: 8080
securityContext:
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
rbac:
  create: true
  rules: []
"""

OF_SLURM_BRIDGE = """
scheduler:
  image: {repository: example.org/slurm-bridge-scheduler, tag: "", pullPolicy: Always}
  replicaCount: 1
  leaderElect: false
  pdb: {enabled: true, minAvailable: 1, maxUnavailable: null}
  resources: {requests: {cpu: 1, memory: 1Gi}}
  tolerations: [{key: infra, operator: Exists}]
  verbosity: 4
schedulerConfig: {schedulerName: slurm-bridge-scheduler, mcsLabel: kubernetes, partition: slurm-bridge}
admission:
  enabled: true
  certManager: {enabled: true, duration: 43800h0m0s, renewBefore: 8760h0m0s}
  replicas: 2
  pdb: {enabled: true, minAvailable: 1, maxUnavailable: 1}
  managedNamespaces: [slurm-bridge, ml]
  managedNamespaceSelector: {}
controllers:
  replicas: 2
  leaderElect: true
  pdb: {enabled: true, minAvailable: 1, maxUnavailable: 50%}
  resources: {requests: {cpu: 250m}}
sharedConfig:
  slurmRestApi: http://slurm-restapi.slurm:6820
  slurmJwtSecret: slurm-bridge-token
"""


_RENDERED: dict[tuple[str, tuple[str, ...]], str] = {}


class Helm:
    """The real helm, with a home of its own."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self.home = home
        self._program = program
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
        }

    def run(self, *words: str, values: str = "") -> subprocess.CompletedProcess[str]:
        """Run it; `values` are a values file."""
        given = self.home / "values.yaml"
        given.write_text(values)
        return subprocess.run(
            [self._program, *words, "--values", str(given)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def template(self, values: str = "", *words: str) -> list[Manifest]:
        """Render the chart, once for all tests that give it the same values."""
        if (values, words) not in _RENDERED:
            done = self.run("template", "bridge", str(CHART), "--namespace", "slurm", *words, values=values)
            assert done.returncode == 0, done.stderr
            _RENDERED[values, words] = done.stdout
        return [found for found in yaml.load_all(_RENDERED[values, words], yaml.CSafeLoader) if found]


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return program("helm")


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    return Helm(helm_program, tmp_path)


def only(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [it for it in manifests if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def named(manifests: list[Manifest], kind: str) -> set[str]:
    return {it["metadata"]["name"] for it in manifests if it["kind"] == kind}


def read_config(manifests: list[Manifest], directory: Path, name: str = "slurm-bridge-config") -> Any:
    """Read the ConfigMap as the processes do."""
    path = directory / "config.yaml"
    path.write_text(only(manifests, "ConfigMap", name)["data"]["config.yaml"])
    return bridge_config.load(path, environ={})


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


MONITORED = "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}}"
MONITORS = ("--api-versions", "monitoring.coreos.com/v1")


def scrape_marks(manifests: list[Manifest]) -> list[dict[str, str]]:
    """What pods of each Deployment tell a Prometheus that goes by annotations."""
    templates = [it["spec"]["template"]["metadata"] for it in manifests if it["kind"] == "Deployment"]
    return [
        {key: value for key, value in it["annotations"].items() if key.startswith("prometheus.io/")}
        for it in templates
    ]


def test_every_process_is_scraped_by_annotations_or_by_a_service_monitor_and_not_by_both(helm: Helm) -> None:
    plain = helm.template()
    marks = {"scrape": "true", "port": "8080", "path": "/metrics", "scheme": "http"}
    assert scrape_marks(plain) == 3 * [{f"prometheus.io/{key}": value for key, value in marks.items()}]
    assert not named(plain, "ServiceMonitor")
    assert scrape_marks(helm.template("metrics: {scrapeAnnotations: false}")) == 3 * [{}]
    without = helm.template(MONITORED)
    assert not named(without, "ServiceMonitor"), "there is no such kind"
    assert scrape_marks(without) == scrape_marks(plain)

    monitored = helm.template(MONITORED, *MONITORS)
    assert scrape_marks(monitored) == 3 * [{}]
    monitor = only(monitored, "ServiceMonitor", "slurm-bridge")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    ways = {"port": "metrics", "path": "/metrics", "scheme": "http", "interval": "15s"}
    assert endpoint == {**ways, "honorLabels": True}
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [it for it in monitored if it["kind"] == "Service" and wanted <= it["metadata"]["labels"].items()]
    found = [port["targetPort"] for it in services for port in it["spec"]["ports"] if port["name"] == "metrics"]
    assert found == 3 * ["metrics"]


def test_metrics_over_https_are_scraped_over_https(helm: Helm) -> None:
    secure = "config: {features: {secureMetrics: true}}\n"
    assert scrape_marks(helm.template(secure))[0]["prometheus.io/scheme"] == "https"
    monitor = only(helm.template(secure + MONITORED, *MONITORS), "ServiceMonitor", "slurm-bridge")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})


def test_what_is_made_from_code_is_up_to_date() -> None:
    script = CHART.parents[1] / "scripts" / "chart"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stdout.decode()}run scripts/chart"


_LISTED = {"key": "kubernetes.io/metadata.name", "operator": "In"}


@pytest.mark.parametrize(
    ("values", "managed"),
    [
        (
            DOCUMENTED,
            {"matchLabels": {"slurm.managed": "true"}, "matchExpressions": []},
        ),
        (
            OF_SLURM_BRIDGE,
            {"matchExpressions": [{**_LISTED, "values": ["slurm-bridge", "ml"]}]},
        ),
    ],
    ids=["documented", "slurm-bridge"],
)
def test_the_same_namespaces_are_managed_and_enforced(helm: Helm, values: str, managed: dict[str, Any]) -> None:
    """What the webhooks and the policy do is tested with what the chart makes of them, in test_admission."""
    manifests = helm.template(values, "--set", "config.enforce=true")
    webhooks = only(manifests, "MutatingWebhookConfiguration", "slurm-bridge-admission")["webhooks"]
    never = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "slurm"]}
    managed = managed | {"matchExpressions": [*managed["matchExpressions"], never]}
    assert [it["namespaceSelector"] for it in webhooks] == [{"matchExpressions": [never]}, managed]
    binding = only(manifests, "ValidatingAdmissionPolicyBinding", "slurm-bridge-enforcement")["spec"]
    assert binding["matchResources"]["namespaceSelector"] == managed
    assert not named(helm.template(values), "ValidatingAdmissionPolicy")


def test_the_documented_values_mean_what_they_say(helm: Helm) -> None:
    manifests = helm.template(DOCUMENTED)
    config = read_config(manifests, helm.home)
    assert config.scheduler_name == "slurm-bridge"
    assert config.slurm_rest_api == ("http://slurm-controller:6820",)
    assert (config.partition, config.mcs_label) == ("normal", "")
    assert config.managed_namespace_selector.match_labels == {"slurm.managed": "true"}
    for part in ("scheduler", "controllers", "admission"):
        deployment = only(manifests, "Deployment", f"slurm-bridge-{part}")
        assert deployment["spec"]["replicas"] == 3
        assert (
            deployment["spec"]["template"]["spec"]["containers"][0]["image"]
            == "slinky.slurm.net/slurm-bridge:1.0.0"
        )


def test_values_of_slurm_bridge_work_unchanged(helm: Helm) -> None:
    manifests = helm.template(OF_SLURM_BRIDGE)
    config = read_config(manifests, helm.home)
    assert config.managed_namespaces == ("slurm-bridge", "ml")
    assert (config.partition, config.mcs_label) == ("slurm-bridge", "kubernetes")
    scheduler = only(manifests, "Deployment", "slurm-bridge-scheduler")["spec"]["template"]["spec"]
    (container,) = scheduler["containers"]
    assert container["image"] == "isthmus.local/isthmus:0.2.0"
    assert container["imagePullPolicy"] == "Always"
    assert {"--leader-elect=false", "--v=4"} <= set(container["args"])
    assert scheduler["tolerations"] == [{"key": "infra", "operator": "Exists"}]
    (token,) = [it for it in scheduler["volumes"] if it["name"] == "token"]
    assert token["secret"]["secretName"] == "slurm-bridge-token"
    assert token["secret"]["items"] == [{"key": "auth-token", "path": "auth-token"}]


def test_weakness_36_each_process_has_its_own_resources(helm: Helm) -> None:
    manifests = helm.template(OF_SLURM_BRIDGE)

    def requests(part: str) -> Any:
        spec = only(manifests, "Deployment", f"slurm-bridge-{part}")["spec"]["template"]["spec"]
        return spec["containers"][0]["resources"]["requests"]

    assert requests("scheduler") == {"cpu": 1, "memory": "1Gi"}
    assert requests("controllers") == {"cpu": "250m"}
    assert requests("admission") == {"cpu": "100m", "memory": "128Mi"}


def test_weakness_36_a_budget_says_one_thing_and_blocks_no_drain(helm: Helm) -> None:
    budgets = {
        it["metadata"]["name"]: it["spec"] for it in helm.template(OF_SLURM_BRIDGE) if "Budget" in it["kind"]
    }
    assert set(budgets) == {"slurm-bridge-admission", "slurm-bridge-controllers"}  # the scheduler has one replica
    assert budgets["slurm-bridge-admission"]["maxUnavailable"] == 1
    assert budgets["slurm-bridge-controllers"]["maxUnavailable"] == "50%"
    assert not any("minAvailable" in spec for spec in budgets.values())


def test_weakness_20_there_are_two_of_everything_one_leads_and_readiness_means_something(helm: Helm) -> None:
    manifests = helm.template()
    assert len(named(manifests, "PodDisruptionBudget")) == 3
    for part in ("scheduler", "controllers", "admission"):
        spec = only(manifests, "Deployment", f"slurm-bridge-{part}")["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert spec["replicas"] == 2
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert ("--leader-elect=true" in container["args"]) == (part != "admission")


def test_the_feature_decides_about_elections_of_all_processes(helm: Helm) -> None:
    manifests = helm.template("replicaCount: 1\nconfig: {features: {enableLeaderElection: false}}")
    for part in ("scheduler", "controllers"):
        spec = only(manifests, "Deployment", f"slurm-bridge-{part}")["spec"]["template"]["spec"]
        assert "--leader-elect=false" in spec["containers"][0]["args"]
    assert not read_config(manifests, helm.home).features.enable_leader_election


def test_weakness_20_two_leaders_are_refused(helm: Helm) -> None:
    done = helm.run("template", str(CHART), values="scheduler: {leaderElect: false}")
    assert done.returncode
    assert "set scheduler.leaderElect, or 1 replica" in done.stderr


def test_weakness_34_pods_are_hardened(helm: Helm) -> None:
    deployments = [it for it in helm.template() if it["kind"] == "Deployment"]
    assert len(deployments) == 3
    for deployment in deployments:
        spec = deployment["spec"]["template"]["spec"]
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert spec["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_weakness_34_slurmrestd_is_known_by_an_authority_of_its_own(helm: Helm) -> None:
    objects = helm.template("sharedConfig: {slurmTlsSecret: slurm-ca}")
    assert read_config(objects, helm.home).slurm_tls_directory == Path("/var/run/secrets/slurm-tls")
    (scheduler,) = (
        it for it in objects if (it["kind"], it["metadata"]["name"]) == ("Deployment", "slurm-bridge-scheduler")
    )
    spec = scheduler["spec"]["template"]["spec"]
    assert any(it.get("secret", {}).get("secretName") == "slurm-ca" for it in spec["volumes"])
    mounts = {it["mountPath"] for it in spec["containers"][0]["volumeMounts"]}
    assert "/var/run/secrets/slurm-tls" in mounts


@pytest.mark.parametrize("parts", [{"scheduler", "controllers"}, {"all"}], ids=["apart", "all in one"])
def test_the_completer_runs_beside_who_asks_it_and_nobody_else_reaches_it(helm: Helm, parts: set[str]) -> None:
    completer = "completer: {enabled: true, slurmctld: [ctl-a.example.org, ctl-b]}"
    manifests = helm.template(f"allInOne: {str(parts == {'all'}).lower()}\n{completer}")
    assert read_config(manifests, helm.home).slurm_completer == ("http://127.0.0.1:6821",)
    conf = only(manifests, "ConfigMap", "slurm-bridge-config")["data"]["slurm.conf"]
    hosts = [line.value for line in slurmconf.parse(conf).directives() if line.key == "SlurmctldHost"]
    assert hosts == ["ctl-a.example.org", "ctl-b"]
    asking = [only(manifests, "Deployment", f"slurm-bridge-{part}") for part in parts]
    for deployment in asking:
        main, beside = deployment["spec"]["template"]["spec"]["containers"]
        assert beside["command"] == ["isthmus-complete", "127.0.0.1", "6821"]
        assert beside["securityContext"] == main["securityContext"]
        assert [(it["name"], it["mountPath"]) for it in beside["volumeMounts"]] == [("config", "/etc/slurm")]
    others = [it for it in manifests if it["kind"] == "Deployment" and it not in asking]
    assert all(len(it["spec"]["template"]["spec"]["containers"]) == 1 for it in others)


def test_a_completer_elsewhere_is_a_setting(helm: Helm) -> None:
    config = read_config(helm.template("config: {slurmCompleter: 'http://slurm-completer.slurm:6821'}"), helm.home)
    assert config.slurm_completer == ("http://slurm-completer.slurm:6821",)
    assert read_config(helm.template(), helm.home).slurm_completer == ()


def test_weakness_29_the_taint_is_a_setting(helm: Helm) -> None:
    assert read_config(helm.template(), helm.home).taint is None
    assert read_config(helm.template("config: {taint: NoSchedule}"), helm.home).taint == "NoSchedule"


def test_weakness_37_older_kubernetes_will_do(helm: Helm) -> None:
    assert helm.template("", "--kube-version", "1.30.0")
    done = helm.run("template", str(CHART), "--kube-version", "1.29.0")
    assert "kubeVersion" in done.stderr


def test_a_change_of_the_configuration_restarts_the_processes(helm: Helm) -> None:
    def checksum(values: str) -> str:
        spec = only(helm.template(values), "Deployment", "slurm-bridge-scheduler")["spec"]
        return str(spec["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum("") != checksum("config: {partition: other}")
    assert checksum("") == checksum("scheduler: {verbosity: 2}")


def test_all_in_one(helm: Helm) -> None:
    manifests = helm.template("allInOne: true")
    assert named(manifests, "Deployment") == named(manifests, "ServiceAccount") == {"slurm-bridge-all"}
    (container,) = only(manifests, "Deployment", "slurm-bridge-all")["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["bridge", "all"]
    service = only(manifests, "Service", "slurm-bridge-admission")
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "all"
    bound = [it for it in manifests if it["kind"] == "ClusterRoleBinding"]
    assert len(bound) == 3
    assert all(it["subjects"][0]["name"] == "slurm-bridge-all" for it in bound)


def test_without_admission_nothing_of_it_is_there(helm: Helm) -> None:

    def of_admission(values: str) -> list[str]:
        manifests = helm.template(values)
        return [
            it["metadata"]["name"]
            for it in manifests
            if "Webhook" in it["kind"] or "admission" in it["metadata"]["name"]
        ]

    assert of_admission("")
    assert not of_admission("admission: {enabled: false}")


@pytest.mark.parametrize("values", ["", OF_SLURM_BRIDGE, "allInOne: true\nadmission: {enabled: false}"])
def test_the_commands_take_the_flags_that_the_chart_gives(helm: Helm, values: str) -> None:
    deployments = [it for it in helm.template(values) if it["kind"] == "Deployment"]
    assert deployments
    for deployment in deployments:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        program = Path(sys.executable).with_name(container["command"][0])
        # Help comes last: flags that do not exist are complained about before.
        done = subprocess.run([program, *container["args"], "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("config: {partion: gpu}", "partion"),
        ("config: {slurmRestApi: slurm-restapi}", "slurmRestApi"),
        ("config: {schedulerName: default-scheduler}", "schedulerName"),
        ("config: {taint: never}", "taint"),
        ("config: {managedNamespaces: [kube-system]}", "managedNamespaces"),
        ("config: {managedNamespaces: batch}", "managedNamespaces"),
        ("config: {managedNamespaceSelector: {matchlabels: {a: b}}}", "matchlabels"),
        ("config: {slurmCompleter: slurm-completer}", "slurmCompleter"),
        ("completer: {enabled: true}", "completer.slurmctld"),
        ('completer: {enabled: true, slurmctld: ["a\\nAuthType=none"]}', "slurmctld"),
        ("replicaCount: 0", "replicaCount"),
        ("scheduler: {replicas: 2}", "replicas"),
        ("service: {port: 99999}", "port"),
        ("sharedConfig: {slurmJwtSecret: {key: x}}", "slurmJwtSecret"),
    ],
)
def test_bad_values_are_refused_by_name(helm: Helm, values: str, expected: str) -> None:
    done = helm.run("template", str(CHART), values=values)
    assert done.returncode
    assert expected in done.stderr


# From here on, with an API server.


@pytest.fixture
async def release(client: Client) -> AsyncIterator[str]:
    """A namespace to install into, after which everything of the release is called."""
    name = await make_namespace(client)
    yield name
    await client.delete(NAMESPACES, name)


@pytest.fixture
def installed(
    helm_program: Path, tmp_path: Path, control_plane: ControlPlaneBed, release: str
) -> Iterator[Callable[..., str]]:
    """Install or upgrade the release; all of it is called after its namespace, so that it meets no other test."""
    helm = Helm(helm_program, tmp_path, control_plane.kubeconfig)

    def install(*words: str) -> str:
        own = f"fullnameOverride={release},schedulerConfig.schedulerName=slurm-{release}"
        managed = f"admission.managedNamespaces={{managed-{release}}}"
        done = helm.run(
            "upgrade", "--install", release, str(CHART), "-n", release, "--set", own, "--set", managed, *words
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield install
    done = subprocess.run(
        [helm_program, "uninstall", release, "-n", release, "--ignore-not-found"],
        env=helm._environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "values",
    ["", DOCUMENTED, OF_SLURM_BRIDGE, "allInOne: true", "admission: {enabled: false}", "config: {enforce: true}"],
    ids=["none", "documented", "slurm-bridge", "all-in-one", "no-admission", "enforce"],
)
def test_the_api_server_takes_every_object(
    helm_program: Path, tmp_path: Path, control_plane: ControlPlaneBed, release: str, values: str
) -> None:
    manifests = Helm(helm_program, tmp_path).template(values, "--set", f"namespaceOverride={release}")
    text = yaml.safe_dump_all(manifests)
    applied = control_plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert len(applied.splitlines()) == len(manifests)
    assert all("serverside-applied (server dry run)" in line for line in applied.splitlines())


def account_config(config: Config, token: str) -> Config:
    return Config(config.server, Fixed.token(token), ca=config.ca)


async def test_weakness_21_an_upgrade_keeps_the_certificates(
    installed: Callable[..., str], client: Client, config: Config, release: str
) -> None:
    await asyncio.to_thread(installed)
    place = Place(release, f"{release}-admission")
    token = await token_of(client, release, place.name)

    async def trusted() -> tuple[Any, ...]:
        secret = await client.get(SECRETS, place.secret)
        found: list[WebhookConfiguration] = [
            await client.get(MUTATING, place.name),
            await client.get(VALIDATING, place.name),
        ]
        bundles = tuple(webhook.client_config.ca_bundle for one in found for webhook in one.webhooks)
        return dict(secret.data), bundles

    async with Client(account_config(config, token)) as own, asyncio.timeout(60):
        # With the rights that the chart gives, and no more; the API server takes a moment to know them.
        keeper = registration.certificates(own, place, metrics=Metrics())
        while True:
            with suppress(Forbidden):
                await keeper.refresh()
                if all((await trusted())[1]):
                    break
            await asyncio.sleep(0.05)
    before = await trusted()
    assert before[0]["tls.key"]
    assert len(before[1]) == 3
    assert len({*before[1], before[0]["ca.crt"]}) == 1
    notes = await asyncio.to_thread(installed, "--set", "config.partition=other")
    assert f"schedulerName: slurm-{release}" in notes
    assert await trusted() == before


ADMISSION_NEEDS = [
    ("list", "", "namespaces"),
    ("watch", "", "namespaces"),
    ("list", "isthmus.dev", "bridgepolicies"),
    ("watch", "isthmus.dev", "bridgepolicies"),
    ("get", "resource.k8s.io", "resourceclaims"),
    ("get", "resource.k8s.io", "resourceclaimtemplates"),
    ("get", "batch", "jobs"),
    ("get", "jobset.x-k8s.io", "jobsets"),
    ("get", "trainer.kubeflow.org", "trainjobs"),
    ("get", "apps", "replicasets"),
]
CACHES = [
    (verb, group, resource)
    for verb in ("list", "watch")
    for group, resource in (
        ("", "pods"),
        ("", "nodes"),
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "storageclasses"),
        ("isthmus.dev", "bridgepolicies"),
        ("resource.k8s.io", "resourceslices"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        *((kind.group, kind.plural) for kind in OWNERS),
    )
]
EVENTS = [(verb, "events.k8s.io", "events") for verb in ("create", "patch", "list")]
NEEDS = {
    "admission": ADMISSION_NEEDS,
    "scheduler": [
        *CACHES,
        *EVENTS,
        ("create", "", "pods/binding"),
        ("patch", "", "pods/status"),
        ("patch", "", "persistentvolumeclaims"),
        ("get", "resource.k8s.io", "resourceclaims"),
        ("create", "resource.k8s.io", "resourceclaims"),
        ("patch", "resource.k8s.io", "resourceclaims"),
        ("patch", "resource.k8s.io", "resourceclaims/status"),
        ("patch", "resource.k8s.io", "resourceclaims/binding"),
        ("get", "batch", "jobs"),
        ("get", "scheduling.x-k8s.io", "podgroups"),
        ("get", "scheduling.k8s.io", "podgroups"),
        ("get", "scheduling.k8s.io", "workloads"),
        ("get", "leaderworkerset.x-k8s.io", "leaderworkersets"),
        ("get", "ray.io", "rayclusters"),
        ("get", "kubeflow.org", "mpijobs"),
        ("get", "kubeflow.org", "pytorchjobs"),
        ("get", "trainer.kubeflow.org", "trainjobs"),
        ("get", "batch.volcano.sh", "jobs"),
        ("get", "apps", "statefulsets"),
        ("get", "apps", "deployments"),
    ],
    "controllers": [
        *CACHES,
        *EVENTS,
        ("get", "", "pods"),
        ("delete", "", "pods"),
        ("patch", "", "pods/status"),
        ("patch", "", "nodes"),
        ("patch", "", "nodes/status"),
    ],
}
NOBODY = [
    ("create", "", "pods"),
    ("update", "", "pods"),
    ("patch", "", "pods"),
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("create", "", "secrets"),
    ("create", "", "serviceaccounts/token"),
    ("delete", "", "nodes"),
    ("deletecollection", "", "pods"),
    ("patch", "apps", "deployments"),
    ("patch", "batch", "jobs"),
    ("create", "", "pods/exec"),
    ("patch", "isthmus.dev", "bridgepolicies"),
    ("patch", "slinky.slurm.net", "nodesets"),
    ("list", "apps", "statefulsets"),
    ("list", "ray.io", "rayclusters"),
    ("patch", "batch.volcano.sh", "jobs"),
    ("update", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("impersonate", "", "users"),
    ("delete", "resource.k8s.io", "resourceclaims"),
    ("patch", "resource.k8s.io", "resourceslices"),
]
ONLY = {
    "admission": [
        ("list", "", "pods"),
        ("create", "", "pods/binding"),
        ("delete", "", "pods"),
        ("patch", "", "nodes"),
    ],
    "scheduler": [("delete", "", "pods"), ("patch", "", "nodes"), ("create", "", "pods/eviction")],
    "controllers": [
        ("create", "", "pods/binding"),
        ("get", "batch", "jobs"),
        ("patch", "", "persistentvolumeclaims"),
        ("patch", "resource.k8s.io", "resourceclaims/status"),
    ],
}
"""What one account may not, though another may."""


class Review(msgspec.Struct):
    """A SubjectAccessReview, of which only the verdict is read."""

    status: dict[str, Any]


REVIEWS: Kind[Review] = Kind(
    Review, "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)


async def may(client: Client, user: str, verb: str, group: str, resource: str) -> bool:
    plural, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": sub, "namespace": "elsewhere"}
    groups = ["system:serviceaccounts", "system:authenticated"]
    body = {"metadata": {}, "spec": {"user": user, "groups": groups, "resourceAttributes": asked}}
    return bool((await client.create(REVIEWS, body)).status["allowed"])


async def lacking(client: Client, user: str, needs: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Name what an account may not, though it must, once the API server has had time to know its rights."""
    wrong = needs
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while wrong := [ask for ask in wrong if not await may(client, user, *ask)]:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.05)
    return wrong


async def test_weakness_34_accounts_may_what_they_need_and_no_more(
    installed: Callable[..., str], client: Client, release: str
) -> None:
    await asyncio.to_thread(installed)
    wrong = []
    for part, needs in NEEDS.items():
        user = f"system:serviceaccount:{release}:{release}-{part}"
        wrong += [(part, "must", *ask) for ask in await lacking(client, user, needs)]
        wrong += [(part, "must not", *ask) for ask in [*NOBODY, *ONLY[part]] if await may(client, user, *ask)]
    assert wrong == []


async def test_admission_works_with_the_rights_of_its_account(
    installed: Callable[..., str], client: Client, config: Config, release: str
) -> None:
    await asyncio.to_thread(installed)
    template = {"spec": {"containers": [{"name": "main", "image": "example/none"}], "restartPolicy": "Never"}}
    body = {
        "metadata": {"namespace": release, "name": "train", "annotations": {"a": "b"}},
        "spec": {"suspend": True, "template": template},
    }
    job = await client.create(RAW_JOBS, body)
    owner = OwnerReference("batch/v1", "Job", "train", job["metadata"]["uid"], controller=True)
    member = Pod(ObjectMeta(name="it", namespace=release, owner_references=(owner,)))
    assert not await lacking(client, f"system:serviceaccount:{release}:{release}-admission", ADMISSION_NEEDS)
    token = await token_of(client, release, f"{release}-admission")
    async with Client(account_config(config, token)) as own:
        caches = OwnCaches(own)
        async with running(caches._namespaces), running(caches._policies):
            assert caches.namespaces.get(Key("", release))
        (found,) = await Owners(own).of(member)
        assert found.object.metadata.annotations == {"a": "b"}
        with pytest.raises(Forbidden):
            await own.list(PODS)
        with pytest.raises(Forbidden):
            await own.get(SECRETS, Key(release, "another"))


@pytest.mark.parametrize("part", ["scheduler", "controllers"])
async def test_leaders_hold_their_own_lease_and_no_other(
    installed: Callable[..., str], client: Client, config: Config, release: str, part: str
) -> None:
    await asyncio.to_thread(installed)
    names = [f"slurm-{release}", CONTROLLERS_LEASE]
    name, other = names if part == "scheduler" else reversed(names)
    async with Client(account_config(config, await token_of(client, release, f"{release}-{part}"))) as own:
        async with asyncio.timeout(60):
            while True:  # the API server takes a moment to know the new rights
                with suppress(Forbidden):
                    await own.create(LEASES, {"metadata": {"namespace": release, "name": name}, "spec": {}})
                    break
                await asyncio.sleep(0.05)
        await own.merge_patch(LEASES, Key(release, name), {"spec": {"holderIdentity": "us"}})
        assert (await own.get(LEASES, Key(release, name))).metadata.name == name
        with pytest.raises(Forbidden):
            await own.get(LEASES, Key(release, "another"))
        with pytest.raises(Forbidden):
            await own.merge_patch(LEASES, Key(release, other), {"spec": {"holderIdentity": "us"}})


@pytest.mark.parametrize("part", ["scheduler", "controllers"])
async def test_the_status_of_the_bridge_can_be_read_in_its_pods(  # noqa: PLR0917 - fixtures
    installed: Callable[..., str],
    client: Client,
    config: Config,
    slurm_with_external_nodes: SlurmBed,
    tmp_path: Path,
    release: str,
    part: str,
) -> None:
    await asyncio.to_thread(installed)
    account = f"{release}-{part}"
    scheduler = f"slurm-{release}"
    for name in (scheduler, CONTROLLERS_LEASE):
        spec = {"holderIdentity": "us", "leaseDurationSeconds": 3600, "renewTime": micro_time(datetime.now(UTC))}
        await client.create(LEASES, {"metadata": {"namespace": release, "name": name}, "spec": spec})
    user = f"system:serviceaccount:{release}:{account}"
    assert not await lacking(client, user, CACHES)
    ca = tmp_path / "ca.crt"
    ca.write_text(config.ca or "")
    in_pod = {
        "clusters": [{"name": "it", "cluster": {"server": config.server, "certificate-authority": str(ca)}}],
        "users": [{"name": "it", "user": {"token": await token_of(client, release, account)}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": release}}],
        "current-context": "it",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(in_pod))
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "SLURM_REST_API": slurm_with_external_nodes.rest_url,
        "SLURM_JWT": slurm_with_external_nodes.token("slurm"),
    }
    settings = tmp_path / "config.yaml"
    settings.write_text(f"schedulerName: {scheduler}\n")
    words = [str(Path(sys.executable).with_name("isthmus")), "bridge", "status", f"--config={settings}", "--json"]
    done = await asyncio.to_thread(
        lambda: subprocess.run(words, check=False, capture_output=True, text=True, env=environment, timeout=60)
    )
    told = msgspec.json.decode(done.stdout)
    assert told["troubles"] == {}
    assert {(it["process"], it["lease"], it["alive"]) for it in told["leaders"]} == {
        ("scheduler", f"{release}/{scheduler}", True),
        ("controllers", f"{release}/{CONTROLLERS_LEASE}", True),
    }
    assert done.returncode == 0, done.stderr


async def test_the_scheduler_may_give_devices_and_take_them_back(
    installed: Callable[..., str], client: Client, config: Config, release: str
) -> None:
    """Also devices of which their driver has said something, which the scheduler itself may not write."""
    await asyncio.to_thread(installed)
    user = f"system:serviceaccount:{release}:{release}-scheduler"
    assert not await lacking(client, user, NEEDS["scheduler"])
    key = await make_claim(client, release, "it")
    pod = await client.create(PODS, claiming(release, "it", claim="it", schedulerName="nobody"))
    result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    async with Client(account_config(config, await token_of(client, release, f"{release}-scheduler"))) as own:
        allocator = ClaimAllocator(World(own, SlurmClient(None), cluster="c"))  # type: ignore[arg-type] # it is not asked
        claim = await client.get(RESOURCE_CLAIMS, key)
        open_ = ((claim, msgspec.convert(allocation, Allocation)),)
        await allocator.write(Plan(pod, "n", PodClaims(), open_))
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": NOON}
        said = [{"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": [ready]}]
        await client.merge_patch(RESOURCE_CLAIMS, key, {"status": {"devices": said}}, subresource="status")
        claim = await client.get(RESOURCE_CLAIMS, key)
        assert FINALIZER in claim.metadata.finalizers
        assert [it.uid for it in claim.status.reserved_for] == [pod.metadata.uid]
        assert claim.status.devices
        allocator.world.devices.note(claim)
        await allocator.take_back(pod)
        claim = await client.get(RESOURCE_CLAIMS, key)
        assert (claim.status.allocation, claim.status.reserved_for, claim.status.devices) == (None, (), ())
        # One that is gone before its watch, which does not run here, has shown it is not written again and again.
        await client.merge_patch(RESOURCE_CLAIMS, key, {"metadata": {"finalizers": None}})
        await client.delete(RESOURCE_CLAIMS, key)
        with pytest.raises(NotYet, match="has changed"):
            await allocator.write(Plan(pod, "n", PodClaims(), open_))
        assert allocator.world.devices.claim(key) is None
    await client.delete(PODS, pod.metadata.key, grace=0)
