"""The whole local cluster, once per run: real nodes, real pods."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from isthmus.local import binaries, lifecycle
from isthmus.local.cluster import Cluster
from isthmus.local.progress import PlainProgress
from tests.bed import logs
from tests.bed.prepare import prepare

_GUARD = Path(__file__).parents[2] / "scripts" / "guard"
_PATIENCE = 180


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

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; a failure shows what it said."""
        done = subprocess.run(
            [*self.cluster.kubectl, *words], check=False, text=True, input=stdin, capture_output=True
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, manifest: str) -> None:
        """Make objects from YAML."""
        self.kubectl("apply", "--filename=-", stdin=manifest)

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and wait until it takes pods: that is when the account is there that they run under."""
        self.kubectl("create", "namespace", name)
        account = ("serviceaccount/default", f"--namespace={name}")
        self.kubectl("wait", *account, "--for=create", f"--timeout={_PATIENCE}s")

    def exec(self, pod: str, *words: str, namespace: str = "default") -> str:
        """Run a program in a pod."""
        return self.kubectl("exec", f"--namespace={namespace}", pod, "--", *words)

    def node_ready(self, name: str) -> str:
        """What the Ready condition of a node says: True, False or Unknown."""
        return self.kubectl(
            "get", "node", name, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        ).strip()


def eventually(condition: Callable[[], object], what: str, *, within: float = _PATIENCE) -> None:
    """Wait for a condition; say what was waited for when it does not come.

    A condition that cannot be asked for is not met: whoever has to answer may be away for a moment, or know only a
    part of the answer.
    """
    deadline = time.monotonic() + within
    while True:
        trouble = ""
        try:
            if condition():
                return
        except (AssertionError, LookupError, ValueError, OSError, subprocess.TimeoutExpired) as error:
            trouble = f"\nat last: {type(error).__name__}: {error}"
        assert time.monotonic() < deadline, f"not within {within} s: {what}{trouble}"
        time.sleep(0.2)


def make_cluster(name: str, *, workers: int) -> ClusterBed:
    """Bring up a cluster that goes away with this process, however that ends."""
    subprocess.run(["setsid", "--fork", _GUARD, str(os.getpid()), name], check=True)
    return ClusterBed(
        lifecycle.up(
            name, workers=workers, publish=[], given=binaries.given_by_environment(), progress=PlainProgress()
        )
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterBed]:
    """One cluster with three workers for all tests; a test puts back what it breaks."""
    name = f"test-{os.getpid()}"
    prepare(PlainProgress())  # every image of the store is in every node from its first start
    try:
        bed = make_cluster(name, workers=3)
        with ExitStack() as shown:
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
