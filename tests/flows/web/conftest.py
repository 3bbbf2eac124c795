"""The page on a real API server and a real Slurm, as a process of its own, and people with different rights."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from playwright.sync_api import Browser

from isthmus import names
from isthmus.bridge import policies
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.crd import install
from isthmus.model.health import NODE_HEALTHS
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.operator import crds
from tests.bed.browser import Watched, running
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import program
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.webpage import serving
from tests.flows.bridge.conftest import make_node, pod
from tests.flows.bridge.test_chart import Helm
from tests.flows.kube.conftest import make_namespace

HOSTILE = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
_SLURM_RULES = {
    "viewer": [("jobs", ["list"]), ("nodes", ["list"])],
    "operator": [
        ("jobs", ["list", "cancel", "hold", "release", "requeue"]),
        ("nodes", ["list", "drain", "resume"]),
    ],
    "alice": [("jobs", ["list", "cancel", "hold", "release", "requeue"])],
    "bob": [],
    "stranger": [],
}
_KUBE_RULES = {"viewer": ["pods"], "operator": ["pods"], "alice": [], "bob": [], "stranger": []}
_NODES = ("e1", "e2")
_RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
_SLURM_USERS = {"operator": "root", "alice": "alice", "bob": "bob"}


class Site:
    """One page, its Slurm and its people."""

    def __init__(self, url: str, plane: ControlPlaneBed, slurm: SlurmBed, namespace: str) -> None:
        self.url = url
        self.plane = plane
        self.slurm = slurm
        self.namespace = namespace
        self._tokens: dict[str, str] = {}

    def token(self, who: str) -> str:
        if who not in self._tokens:
            words = ("create", "token", who, f"--namespace={self.namespace}", "--duration=2h")
            self._tokens[who] = self.plane.kubectl(*words).strip()
        return self._tokens[who]

    def submit(self, *words: str, user: str = "alice", script: str = "sleep 3600") -> str:
        return self.slurm.submit(*words, script=script, user=user)

    def state(self, job: str) -> str:
        return self.slurm.command("squeue", "-ho", "%T", "-t", "all", "-j", job).strip()


@pytest.fixture(scope="module")
def site(control_plane: ControlPlaneBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("web")
    with SlurmBed(VERSIONS[0], nodes=1, external_nodes=3) as slurm:
        namespace = asyncio.run(_furnish(control_plane))
        users = {f"system:serviceaccount:{namespace}:{who}": name for who, name in _SLURM_USERS.items()}
        (home / "users.yaml").write_text(yaml.safe_dump(users))
        more = (f"--users={home / 'users.yaml'}", f"--slurm-jwt-key={slurm.jwt_key}", "--name=tried")
        kubeconfig = _as_installed(control_plane, namespace, home)
        with serving(
            kubeconfig, rest_url=slurm.rest_url, token=slurm.token("slurm"), log=home / "web.log", more=more
        ) as url:
            yield Site(url, control_plane, slurm, namespace)
        asyncio.run(_clear(control_plane, namespace))


def _as_installed(plane: ControlPlaneBed, namespace: str, home: Path) -> Path:
    """Give the process the account and the rights that the chart gives it, and no others."""
    name = f"{namespace}-web"
    rendered = Helm(program("helm"), home).template(f"web: {{enabled: true}}\nfullnameOverride: {namespace}")
    ours = [it for it in rendered if it["metadata"]["name"] == name and it["kind"] in _RIGHTS]
    for it in ours:
        it["metadata"].pop("namespace", None)
        for subject in it.get("subjects", ()):
            subject["namespace"] = namespace
    plane.kubectl(
        "apply", f"--namespace={namespace}", "--filename=-", stdin="---\n".join(map(yaml.safe_dump, ours))
    )
    token = plane.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=2h").strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _furnish(plane: ControlPlaneBed) -> str:
    """Make people, nodes of both worlds, and pods."""
    async with Client(load(plane.kubeconfig)) as client:
        await install(client, policies.crd(), manager=names.FIELD_MANAGER)
        health = next(it for it in crds.definitions() if it["spec"]["names"]["kind"] == NODE_HEALTHS.name)
        await install(client, health, manager=names.FIELD_MANAGER)
        namespace = await make_namespace(client)
        for name in _NODES:
            await make_node(client, name, labels={"topology.kubernetes.io/rack": "rack-7"})
        await client.create(PODS, pod(namespace, "waits"))
        await client.create(PODS, pod(namespace, "placed", cpu="2", nodeName="e1"))
    plane.kubectl("apply", "--filename=-", stdin="---\n".join(yaml.safe_dump(it) for it in _people(namespace)))
    return namespace


async def _clear(plane: ControlPlaneBed, namespace: str) -> None:
    """Leave nothing that a bridge of other tests on this control plane would place, or place pods on."""
    async with Client(load(plane.kubeconfig)) as client:
        await client.delete_all(PODS, namespace=namespace, grace=0)
        for name in _NODES:
            await client.delete(NODES, name)


def _people(namespace: str) -> Iterator[dict[str, object]]:
    for who, rules in _SLURM_RULES.items():
        named = {"name": f"{namespace}-{who}"}
        subject = {"kind": "ServiceAccount", "name": who, "namespace": namespace}
        allowed = [{"apiGroups": ["web.isthmus.dev"], "resources": [it], "verbs": verbs} for it, verbs in rules]
        if _KUBE_RULES[who]:
            allowed.append({"apiGroups": [""], "resources": _KUBE_RULES[who], "verbs": ["list", "get"]})
        if who == "operator":
            allowed.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": named["name"]}
        rbac = "rbac.authorization.k8s.io/v1"
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": who, "namespace": namespace}}
        yield {"apiVersion": rbac, "kind": "ClusterRole", "metadata": named, "rules": allowed}
        yield {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": role,
            "subjects": [subject],
        }


Enter = Callable[..., Watched]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as started:
        yield started


@pytest.fixture
def fresh(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Open a page without any session."""
    contexts = []

    def open_(**options: object) -> Watched:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})  # type: ignore[arg-type]  # as Playwright takes them
        contexts.append(context)
        return Watched(context.new_page())

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def enter(site: Site, fresh: Callable[..., Watched]) -> Enter:
    """Log in as somebody, and look at a view."""

    def log_in(who: str, view: str = "", **options: object) -> Watched:
        watched = fresh(**options)
        page = watched.page
        page.goto(f"{site.url}/#/{view}")
        page.get_by_label("Kubernetes token").fill(site.token(who))
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("navigation").wait_for()
        return watched

    return log_in


@pytest.fixture
def unique() -> str:
    return f"job-{uuid4().hex[:8]}"
