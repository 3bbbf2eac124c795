"""The chart isthmus-operator: rendered by the real helm, taken by a real API server, its account put to work."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from isthmus.inspect import doctor
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config, load
from isthmus.kube.errors import ApiError, Forbidden, NotFound
from isthmus.local.images.recipes import LAYERS
from isthmus.model.base import Kind
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.model.objects import DEPLOYMENTS, STATEFULSETS
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS, NODESETS
from isthmus.model.soperator import SLURM_CLUSTERS
from isthmus.operator import crds, registration
from isthmus.runtime.certkeeper import SECRETS
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import DEFINITIONS, MUTATING, VALIDATING
from tests.bed import operator_webhooks
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.operator_webhooks import Place
from tests.flows.bridge.test_chart import REVIEWS, Helm, helm_program, named, only
from tests.flows.kube.conftest import ACCOUNTS, NAMESPACES, token_of
from tests.flows.operator.conftest import own_control_plane
from tests.flows.operator.test_doctor import leading
from tests.unit.operator.manifests import cluster, slinky

__all__ = ["helm_program"]

CHART = Path(__file__).parents[3] / "charts" / "isthmus-operator"
NAME = "isthmus-operator"
RBAC = "rbac.authorization.k8s.io/v1"
HOME = "isthmus"

Manifest = dict[str, Any]

OF_SLURM_OPERATOR = """
nameOverride: ""
fullnameOverride: ""
namespaceOverride: ""
imagePullSecrets: []
imagePullPolicy: IfNotPresent
priorityClassName: system-cluster-critical
crds: {enabled: true}
operator:
  enabled: true
  replicas: 1
  imagePullPolicy: Always
  image: {repository: registry.example/operator, tag: null, digest: null}
  serviceAccount: {create: true, name: ""}
  nodeSelector: {pool: infra}
  affinity: {}
  tolerations: [{key: infra, operator: Exists}]
  topologySpreadConstraints: []
  podSecurityContext: {}
  resources: {requests: {cpu: 1}}
  securityContext: {}
  pdb: {enabled: false, minAvailable: 1, maxUnavailable: null}
  accountingWorkers: 4
  controllerWorkers: 4
  loginsetWorkers: 4
  nodesetWorkers: 4
  restapiWorkers: 4
  tokenWorkers: 4
  slurmclientWorkers: 2
  logLevel: debug
  healthPort: 8181
  metricsPort: 8180
  metricsSecure: false
  profile: false
  profileAddr: localhost:6060
  leaderElection: true
  namespaces: "slurm, ml"
webhook:
  enabled: true
  podsBinding: false
  replicas: 1
  image: {repository: registry.example/webhook, tag: null, digest: null}
  serviceAccount: {create: true, name: ""}
  timeoutSeconds: 7
  nodeSelector: {}
  validating: {failurePolicy: Fail, matchConditions: [], matchPolicy: Equivalent, namespaceSelector: {}}
  mutating: {failurePolicy: Ignore, matchConditions: [], matchPolicy: Equivalent}
  serverPort: 9444
  logLevel: info
  namespaces: ""
certManager: {enabled: true, secretName: ca, duration: 43800h0m0s, renewBefore: 8760h0m0s}
propagatedNodeConditions: [MemoryPressure, example.org/Broken]
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: extra}}]
"""


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    return Helm(helm_program, tmp_path)


_texts: dict[tuple[str, tuple[str, ...]], str] = {}
"""The chart with values that a test has asked for: it is rendered once with each."""


def rendered(helm: Helm, values: str = "", *words: str) -> list[Manifest]:
    if (values, words) not in _texts:
        done = helm.run("template", "operator", str(CHART), "--namespace", HOME, *words, values=values)
        assert done.returncode == 0, done.stderr
        _texts[values, words] = done.stdout
    # The kinds are long, and the other loader needs half a second for them.
    manifests = yaml.load_all(_texts[values, words], Loader=yaml.CSafeLoader)
    return [found for found in manifests if found]


def pod_of(manifests: list[Manifest]) -> Any:
    return only(manifests, "Deployment", NAME)["spec"]["template"]["spec"]


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("namespaces", [[], ["slurm", "ml"]], ids=["all", "some"])
def test_the_chart_registers_what_the_code_would(helm: Helm, namespaces: list[str]) -> None:
    manifests = rendered(helm, yaml.safe_dump({"operator": {"namespaces": namespaces}}))
    for kind, make in (("Validating", operator_webhooks.validating), ("Mutating", operator_webhooks.mutating)):
        found = only(manifests, f"{kind}WebhookConfiguration", operator_webhooks.NAME)
        assert found["webhooks"] == make(Place(HOME), namespaces=namespaces)["webhooks"]


def test_the_chart_has_the_kinds_of_the_code(helm: Helm) -> None:
    manifests = rendered(helm)
    for wanted in crds.definitions(conversion=Place(HOME).conversion):
        found = only(manifests, "CustomResourceDefinition", wanted["metadata"]["name"])
        assert found["spec"] == wanted["spec"]
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_without_webhooks_only_what_is_stored_is_served(helm: Helm) -> None:
    manifests = rendered(helm, "webhook: {enabled: false}")
    for wanted in crds.definitions():
        found = only(manifests, "CustomResourceDefinition", wanted["metadata"]["name"])["spec"]
        assert found["versions"] == wanted["spec"]["versions"]
    assert not [it for it in manifests if "Webhook" in it["kind"] or it["metadata"]["name"].endswith("webhook")]
    assert "--webhook-bind-address=0" in pod_of(manifests)["containers"][0]["args"]


def test_without_kinds_there_are_none(helm: Helm) -> None:
    assert not named(rendered(helm, "crds: {enabled: false}"), "CustomResourceDefinition")


def test_values_of_slurm_operator_work_unchanged(helm: Helm) -> None:
    manifests = rendered(helm, OF_SLURM_OPERATOR)
    pod = pod_of(manifests)
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/operator:0.2.0"
    assert container["imagePullPolicy"] == "Always"
    assert {
        "--namespaces=slurm,ml",
        "--leader-elect=true",
        "--metrics-bind-address=:8180",
        "--health-probe-bind-address=:8181",
        "--webhook-bind-address=:9444",
        "--propagated-node-conditions=MemoryPressure,example.org/Broken",
        "--v=debug",
    } <= set(container["args"])
    assert pod["nodeSelector"] == {"pool": "infra"}
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert container["resources"]["requests"]["cpu"] == 1
    assert (
        only(manifests, "ValidatingWebhookConfiguration", operator_webhooks.NAME)["webhooks"][0]["timeoutSeconds"]
        == 7
    )
    assert not named(manifests, "PodDisruptionBudget")
    assert "extra" in named(manifests, "ConfigMap")


@pytest.mark.parametrize("values", ["", OF_SLURM_OPERATOR, "operator: {metricsPort: 0}\nwebhook: {enabled: false}"])
def test_the_command_takes_the_flags_that_the_chart_gives(helm: Helm, values: str) -> None:
    (container,) = pod_of(rendered(helm, values))["containers"]
    program = Path(sys.executable).with_name(container["command"][0])
    # Help comes last: flags that do not exist are complained about before.
    done = subprocess.run([program, *container["args"], "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_takes_the_names_of_soperator(helm: Helm) -> None:
    manifests = rendered(helm, "soperatorNames: true")
    deployment = only(manifests, "Deployment", "soperator-manager")["spec"]["template"]
    (container,) = deployment["spec"]["containers"]
    assert (container["name"], container["command"]) == ("manager", ["slurm_operator"])
    assert deployment["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "manager"
    assert "usr/local/bin/slurm_operator" in LAYERS["isthmus"].files  # of the image that it runs


def test_the_pod_is_hardened_and_there_are_two(helm: Helm) -> None:
    manifests = rendered(helm)
    pod = pod_of(manifests)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert only(manifests, "Deployment", NAME)["spec"]["replicas"] == 2
    assert only(manifests, "PodDisruptionBudget", NAME)["spec"]["maxUnavailable"] == 1


def scrape_marks(manifests: list[Manifest]) -> dict[str, str]:
    marks = only(manifests, "Deployment", NAME)["spec"]["template"]["metadata"]["annotations"]
    return {key: value for key, value in marks.items() if key.startswith("prometheus.io/")}


def test_it_is_scraped_by_annotations_or_by_a_service_monitor_and_not_by_both(helm: Helm) -> None:
    plain = rendered(helm)
    marks = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "prometheus.io/path": "/metrics"}
    assert scrape_marks(plain) == marks
    assert not named(plain, "ServiceMonitor")
    wanted = "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}, scrapeTimeout: 10s}}"
    assert scrape_marks(rendered(helm, wanted)) == marks, "there is no such kind"
    monitors = ("--api-versions", "monitoring.coreos.com/v1")
    monitored = rendered(helm, wanted, *monitors)
    assert not scrape_marks(monitored)
    monitor = only(monitored, "ServiceMonitor", NAME)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    ways = {"port": "metrics", "path": "/metrics", "interval": "30s", "scrapeTimeout": "10s"}
    assert endpoint == {**ways, "honorLabels": True}
    labels = only(monitored, "Service", f"{NAME}-metrics")["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    silent = rendered(helm, wanted + "\noperator: {metricsPort: 0}", *monitors)
    assert not named(silent, "ServiceMonitor")
    assert not scrape_marks(silent)


def test_two_leaders_are_refused(helm: Helm) -> None:
    done = helm.run("template", str(CHART), values="operator: {leaderElection: false}")
    assert "set operator.leaderElection, or 1 replica" in done.stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("operator: {replica: 2}", "replica"),
        ("operator: {replicas: 0}", "replicas"),
        ("operator: {namespaces: [Not_A_Name]}", "namespaces"),
        ("operator: {namespaces: 'a;b'}", "namespaces"),
        ("operator: {logLevel: loud}", "logLevel"),
        ("operator: {metricsPort: 99999}", "metricsPort"),
        ("operator: {image: {digest: abc}}", "digest"),
        ("webhook: {timeoutSeconds: 60}", "timeoutSeconds"),
        ("webhook: {validating: {failurePolicy: Maybe}}", "failurePolicy"),
        ("images: {slurm: 'a b'}", "slurm"),
        ("images: {slurmd: a}", "slurmd"),
        ("crd: {enabled: true}", "crd"),
        ("propagatedNodeConditions: ['a,b']", "propagatedNodeConditions"),
    ],
)
def test_bad_values_are_refused_by_name(helm: Helm, values: str, expected: str) -> None:
    done = helm.run("template", str(CHART), values=values)
    assert done.returncode
    assert expected in done.stderr


# From here on, with an API server.


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[ControlPlaneBed]:
    """The kinds belong to the release here."""
    with own_control_plane(request, "chart") as bed:
        yield bed


@pytest.fixture
def config(bed: ControlPlaneBed) -> Config:
    return load(bed.kubeconfig)


@pytest.fixture
async def client(config: Config) -> AsyncIterator[Client]:
    async with Client(config) as client:
        for name in (HOME, "slurm", "other"):
            await client.apply(NAMESPACES, {"metadata": {"name": name}}, manager="test")
        yield client


class Release:
    """The chart, installed."""

    def __init__(self, helm: Helm, client: Client) -> None:
        self._helm = helm
        self._client = client

    async def install(self, values: str = "") -> str:
        """Install or upgrade it, and wait until the API server goes by its rights and webhooks."""
        words = ("upgrade", "--install", "operator", str(CHART), "-n", HOME)
        done = await asyncio.to_thread(self._helm.run, *words, values=values)
        assert done.returncode == 0, done.stderr
        await _authorizer_has_heard(self._client)
        if not (yaml.safe_load(values) or {}).get("webhook", {}).get("enabled", True):
            await _until_nobody_is_asked(self._client)
        return done.stdout

    async def uninstall(self) -> None:
        """Take it away."""
        command = [str(self._helm._program), "uninstall", "operator", "-n", HOME, "--ignore-not-found"]

        def run() -> None:
            subprocess.run(command, env=self._helm._environment, check=True, capture_output=True)

        await asyncio.to_thread(run)


async def _authorizer_has_heard(client: Client) -> None:
    """Wait until the API server goes by all rights as they are now: by the newest of each kind, and so by all."""
    name = f"probe-{uuid4().hex[:8]}"
    rules = [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}]
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    for wide, namespace in (("Cluster", ""), ("", HOME)):
        role: Kind[Any] = Kind(dict[str, Any], RBAC, f"{wide}roles".lower(), f"{wide}Role", namespaced=not wide)
        binding: Kind[Any] = Kind(
            dict[str, Any], RBAC, f"{wide}rolebindings".lower(), f"{wide}RoleBinding", namespaced=not wide
        )
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        given = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{wide}Role", "name": name}
        await client.create(role, {"metadata": metadata, "rules": rules})
        await client.create(binding, {"metadata": metadata, "roleRef": given, "subjects": subjects})
        asked = {"verb": "get", "group": "", "resource": name, "namespace": namespace}
        review = {"metadata": {}, "spec": {"user": name, "resourceAttributes": asked}}
        async with asyncio.timeout(60):
            while not (await client.create(REVIEWS, review)).status["allowed"]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        await client.delete(binding, Key(namespace, name))
        await client.delete(role, Key(namespace, name))


async def _until_nobody_is_asked(client: Client) -> None:
    """Wait until the API server takes objects without asking at a webhook."""
    probe = slinky("Controller", "probe")
    probe["metadata"]["namespace"] = "slurm"
    async with asyncio.timeout(60):
        while True:
            with suppress(ApiError):
                await client.create(CONTROLLERS, probe, dry_run=True)
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def release(
    helm_program: Path, tmp_path: Path, bed: ControlPlaneBed, client: Client
) -> AsyncIterator[Release]:
    installed = Release(Helm(helm_program, tmp_path, bed.kubeconfig), client)
    yield installed
    await installed.uninstall()


async def account(client: Client, config: Config) -> Config:
    token = await token_of(client, HOME, NAME)
    return Config(config.server, Fixed.token(token), ca=config.ca)


async def test_the_operator_keeps_its_certificates_with_the_rights_of_its_account(
    release: Release, client: Client, config: Config
) -> None:
    await release.install()
    place = Place(HOME)
    async with Client(await account(client, config)) as own:
        await registration.certificates(own, place, metrics=Metrics()).refresh()

    async def trusted() -> list[str]:
        configurations = [await client.get(kind, place.name) for kind in (MUTATING, VALIDATING)]
        bundles = [it.client_config.ca_bundle for found in configurations for it in found.webhooks]
        for name in crds.converted():
            webhook = (await client.get(DEFINITIONS, name)).spec.conversion.webhook
            assert webhook
            assert webhook.client_config
            bundles.append(webhook.client_config.ca_bundle)
        return bundles

    secret = (await client.get(SECRETS, place.secret)).data
    before = await trusted()
    assert secret["tls.key"]
    assert before == [secret["ca.crt"]] * 6
    notes = await release.install("operator: {logLevel: debug, profile: false}\ncertManager: {enabled: true}")
    assert "No effect: operator.profile" in notes
    assert "No effect: certManager" in notes
    # No upgrade undoes it.
    assert await trusted() == before
    assert (await client.get(SECRETS, place.secret)).data == secret


async def test_webhooks_can_be_switched_off_and_on(release: Release, client: Client, config: Config) -> None:
    await release.install()
    async with Client(await account(client, config)) as own:
        await registration.certificates(own, Place(HOME), metrics=Metrics()).refresh()
    await release.install("webhook: {enabled: false}")
    made = await client.create(NODESETS, {"metadata": {"name": "workers", "namespace": "slurm"}, "spec": {}})
    await release.install()
    await client.delete(NODESETS, made.metadata.key)


async def test_the_doctor_names_kinds_that_are_old_and_those_that_are_missing(
    release: Release, client: Client
) -> None:
    await release.install("webhook: {enabled: false}")

    async def found() -> list[tuple[str, str]]:
        report = await doctor.examine(client, namespace="slurm", now=time.time())
        return [(it.area, it.what) for it in report.findings]

    async with leading(client, "slurm"):
        assert await found() == []
        field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/refresh"
        await client.json_patch(DEFINITIONS, "tokens.slinky.slurm.net", [{"op": "remove", "path": field}])
        older = "tokens.slinky.slurm.net is older than this program: it lacks spec.refresh"
        assert await found() == [("kinds", older)]
        await client.delete(DEFINITIONS, "tokens.slinky.slurm.net")
        await eventually_absent(client, "tokens.slinky.slurm.net")
        assert await found() == [("kinds", "Kubernetes does not know tokens.slinky.slurm.net")]
    await release.install("webhook: {enabled: false}")  # it is the next one's to take over


async def eventually_absent(client: Client, kind: str) -> None:
    async with asyncio.timeout(60):
        with suppress(NotFound):
            while True:
                await client.get(DEFINITIONS, kind)
                await asyncio.sleep(0.05)


async def test_the_kinds_and_clusters_stay_when_the_operator_goes(release: Release, client: Client) -> None:
    await release.install("webhook: {enabled: false}")
    kept = slinky("Controller", "kept")
    kept["metadata"]["namespace"] = "slurm"
    await client.create(CONTROLLERS, kept)
    await release.uninstall()
    assert (await client.get(CONTROLLERS, Key("slurm", "kept"))).metadata.name == "kept"
    await release.install()  # and it comes back to them
    await client.delete(CONTROLLERS, Key("slurm", "kept"))


WRITTEN = [
    *(
        ("slinky.slurm.net", it)
        for it in ("controllers", "nodesets", "loginsets", "accountings", "restapis", "tokens")
    ),
    *(
        ("", it)
        for it in ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts")
    ),
    *(("rbac.authorization.k8s.io", it) for it in ("roles", "rolebindings")),
    *(("apps", it) for it in ("statefulsets", "deployments", "daemonsets")),
    ("batch", "jobs"),
    ("policy", "poddisruptionbudgets"),
    ("discovery.k8s.io", "endpointslices"),
    *(("monitoring.coreos.com", it) for it in ("podmonitors", "servicemonitors")),
]
IN_ITS_NAMESPACES = [
    *((verb, *it) for it in WRITTEN for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(("patch", "slinky.slurm.net", f"{it}/status") for it in ("controllers", "nodesets", "loginsets", "tokens")),
    # To delete one is for its owner, who may ask for it in a way that ours takes the place of.
    *((verb, "slurm.nebius.ai", "slurmclusters") for verb in ("get", "list", "watch", "patch", "delete")),
    *((verb, "slurm.nebius.ai", "nodesets") for verb in ("get", "list", "watch", "patch")),
    *((verb, "slurm.nebius.ai", "jailedconfigs") for verb in ("get", "list", "watch")),
    *((verb, "slurm.nebius.ai", "nodeconfigurators") for verb in ("get", "list", "watch")),
    ("patch", "slurm.nebius.ai", "slurmclusters/status"),
    ("patch", "slurm.nebius.ai", "jailedconfigs/status"),
    ("patch", "slurm.nebius.ai", "nodeconfigurators/status"),
    ("update", "slurm.nebius.ai", "nodeconfigurators/finalizers"),
    ("update", "slinky.slurm.net", "nodesets/finalizers"),
    ("patch", "", "pods/status"),
    ("list", "", "events"),
    ("create", "events.k8s.io", "events"),
    ("patch", "events.k8s.io", "events"),
    ("get", "", "namespaces"),
]
EVERYWHERE = [("list", "", "nodes"), ("watch", "", "nodes")]
NEVER = [
    ("create", "", "pods/exec"),
    ("create", "", "pods/eviction"),
    ("create", "", "pods/binding"),
    ("patch", "", "nodes"),
    ("delete", "", "nodes"),
    ("list", "", "namespaces"),
    ("create", "", "namespaces"),
    ("create", "", "serviceaccounts/token"),
    # It can give others what it may itself, and no more.
    ("escalate", "rbac.authorization.k8s.io", "roles"),
    ("bind", "rbac.authorization.k8s.io", "roles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "slurm.nebius.ai", "slurmclusters"),
    ("delete", "slurm.nebius.ai", "nodesets"),
    ("patch", "slurm.nebius.ai", "jailedconfigs"),
    ("patch", "slurm.nebius.ai", "nodeconfigurators"),
    ("deletecollection", "", "pods"),
    ("watch", "", "events"),
    ("delete", "", "events"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
    *(
        (verb, "admissionregistration.k8s.io", f"{it}webhookconfigurations")
        for verb in ("create", "patch")
        for it in ("mutating", "validating")
    ),
    ("impersonate", "", "users"),
]


async def may(client: Client, namespace: str, verb: str, group: str, resource: str) -> bool:
    plural, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": sub, "namespace": namespace}
    user = f"system:serviceaccount:{HOME}:{NAME}"
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": asked}
    return bool((await client.create(REVIEWS, {"metadata": {}, "spec": spec})).status["allowed"])


async def test_the_account_may_what_it_needs_and_no_more(release: Release, client: Client) -> None:
    await release.install()
    wrong = [("must", *ask) for ask in [*IN_ITS_NAMESPACES, *EVERYWHERE] if not await may(client, "other", *ask)]
    wrong += [("must not", *ask) for ask in NEVER if await may(client, "other", *ask)]
    assert wrong == []


async def test_with_namespaces_rights_end_at_their_borders(release: Release, client: Client) -> None:
    await release.install("operator: {namespaces: [slurm]}")
    wrong = [("must", *ask) for ask in [*IN_ITS_NAMESPACES, *EVERYWHERE] if not await may(client, "slurm", *ask)]
    wrong += [("must not", *ask) for ask in NEVER if await may(client, "slurm", *ask)]
    wrong += [("must not elsewhere", *ask) for ask in IN_ITS_NAMESPACES if await may(client, "other", *ask)]
    wrong += [("must not at home", *ask) for ask in IN_ITS_NAMESPACES if await may(client, HOME, *ask)]
    assert wrong == []


@pytest.fixture
def kubeconfig(bed: ControlPlaneBed, tmp_path: Path) -> Callable[[str], Path]:
    """Write a kubeconfig for a token, as a pod in the operator's namespace would have it."""

    def write(token: str) -> Path:
        given = yaml.safe_load(bed.kubeconfig.read_text())
        given["users"] = [{"name": "account", "user": {"token": token}}]
        context = given["contexts"][0]["context"]
        context |= {"user": "account", "namespace": HOME}
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(given))
        return path

    return write


@pytest.mark.parametrize("namespaces", [[], ["slurm"]], ids=["all", "some"])
async def test_the_process_makes_a_whole_cluster_with_the_rights_of_its_account(
    release: Release,
    client: Client,
    *,
    helm: Helm,
    kubeconfig: Callable[[str], Path],
    tmp_path: Path,
    namespaces: list[str],
) -> None:
    values = yaml.safe_dump(
        {
            # Nobody could reach a webhook of a Service here.
            "webhook": {"enabled": False},
            "operator": {"namespaces": namespaces, "metricsPort": 0},
        }
    )
    await release.install(values)
    await client.apply(ACCOUNTS, {"metadata": {"name": "default", "namespace": "slurm"}}, manager="test")
    (container,) = pod_of(rendered(helm, values))["containers"]
    flags = [it for it in container["args"] if not it.startswith("--health-probe")]
    command = [
        Path(sys.executable).with_name(container["command"][0]),
        *flags,
        "--health-probe-bind-address=127.0.0.1:0",
    ]
    log = tmp_path / "log"
    given = kubeconfig(await token_of(client, HOME, NAME))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, f"--kubeconfig={given}", stdout=output, stderr=subprocess.STDOUT
        )
        try:
            made = cluster("one", slurmNodes={"worker": {"size": 2}, "accounting": {"enabled": True}})
            made["metadata"]["namespace"] = "slurm"
            await client.create(SLURM_CLUSTERS, made)
            await until(
                client, "statefulsets", STATEFULSETS, {"controller", "login", "one-accounting", "one-mariadb"}
            )
            await until(client, "deployments", DEPLOYMENTS, {"one-restapi"})
            await until(client, "pods", PODS, {"worker-0", "worker-1"})
            await client.delete(SLURM_CLUSTERS, Key("slurm", "one"))
            await until(client, "clusters", SLURM_CLUSTERS, set())
            await until(client, "workers", PODS, set())
        finally:
            process.terminate()
            await process.wait()
    assert "orbidden" not in log.read_text()


async def until(client: Client, what: str, kind: Kind[Any], names: set[str]) -> None:
    """Wait until there are exactly these objects of a kind."""
    found: set[str] = set()
    try:
        async with asyncio.timeout(120):
            while True:
                found = {it.metadata.name for it in (await client.list(kind, namespace="slurm")).items}
                if found == names:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}: there are {found}, not {names}") from None


async def test_the_account_holds_its_own_lease_and_no_other(
    release: Release, client: Client, config: Config
) -> None:
    await release.install("operator: {namespaces: [slurm]}")
    await client.delete_all(LEASES, namespace=HOME)  # of processes before
    async with Client(await account(client, config)) as own:
        await own.create(LEASES, {"metadata": {"namespace": HOME, "name": NAME}, "spec": {}})
        await own.merge_patch(LEASES, Key(HOME, NAME), {"spec": {"holderIdentity": "us"}})
        with pytest.raises(Forbidden):
            await own.get(LEASES, Key(HOME, "another"))
        with pytest.raises(Forbidden):
            await own.get(SECRETS, Key(HOME, "another"))
