"""The whole local cluster, once per run: real nodes, real pods."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path

import pytest

from isthmus.local import lifecycle
from isthmus.local.cluster import Cluster
from isthmus.local.progress import PlainProgress
from tests.bed import logs
from tests.bed.api import Api, Object
from tests.bed.commands import Done, attempt, checked
from tests.bed.prepare import prepare
from tests.bed.programs import given
from tests.bed.waiting import PATIENCE

_GUARD = Path(__file__).parents[2] / "scripts" / "guard"


class ClusterBed:
    """A running cluster and ways to use it from a test."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = cluster.settings.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.cluster.plane.admin

    @property
    def workers(self) -> list[str]:
        """The names of the worker nodes."""
        return [node.name for node in self.cluster.nodes[1:]]

    @cached_property
    def api(self) -> Api:
        """The API server, asked from this process: what tests do again and again while they wait."""
        return Api(self.kubeconfig)

    def close(self) -> None:
        """End the connections to the API server."""
        if opened := self.__dict__.pop("api", None):
            opened.close()

    def attempt(self, *words: str, stdin: str | None = None) -> Done:
        """Run kubectl as administrator where it may fail, and see what it says."""
        return attempt(*self.cluster.kubectl, *words, stdin=stdin)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; a failure shows what it said."""
        done = self.attempt(*words, stdin=stdin)
        return checked(Done(["kubectl", *words], done.returncode, done.stdout, done.stderr))

    def apply(self, manifest: str) -> None:
        """Make objects from YAML."""
        self.kubectl("apply", "--filename=-", stdin=manifest)

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and wait until it takes pods: that is when the account is there that they run under."""
        self.kubectl("create", "namespace", name)
        account = ("serviceaccount/default", f"--namespace={name}")
        self.kubectl("wait", *account, "--for=create", f"--timeout={PATIENCE:g}s")

    def get(self, what: str, namespace: str = "", *, selector: str = "") -> Object:
        """Read an object, such as pod/web, or a list, such as pods."""
        return self.api.get(what, namespace, selector=selector)

    def exec(self, pod: str, *words: str, namespace: str = "default", stdin: str | None = None) -> str:
        """Run a program in a pod; a failure shows what it said."""
        return checked(self.api.exec(pod, *words, namespace=namespace, stdin=stdin))

    def node_ready(self, name: str) -> str:
        """What the Ready condition of a node says: True, False or Unknown; nothing before anybody has said so."""
        held = self.get(f"node/{name}")["status"].get("conditions", [])
        return next((str(it["status"]) for it in held if it["type"] == "Ready"), "")


def make_cluster(name: str, *, workers: int) -> ClusterBed:
    """Bring up a cluster that goes away with this process, however that ends."""
    subprocess.run(["setsid", "--fork", _GUARD, str(os.getpid()), name], check=True)
    return ClusterBed(lifecycle.up(name, workers=workers, publish=[], given=given(), progress=PlainProgress()))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterBed]:
    """One cluster with three workers for all tests; a test puts back what it breaks."""
    name = f"test-{os.getpid()}"
    prepare(PlainProgress())  # every image of the store is in every node from its first start
    try:
        bed = make_cluster(name, workers=3)
        with closing(bed), ExitStack() as shown:
            for node in bed.cluster.nodes:
                shown.enter_context(logs.shown(request.config, name=node.name, directory=node.machine.logs))
            yield bed
    finally:
        lifecycle.down(name, PlainProgress())


@pytest.fixture
def namespace(cluster: ClusterBed, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, removed with all that is in it."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    cluster.make_namespace(name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
