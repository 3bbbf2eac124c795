"""The ground on which the operator is tested end to end: the local cluster, with the operator installed by helm.

    def test_a_cluster_comes_up(operator_ground: OperatorGround) -> None:
        with operator_ground.namespace("one") as namespace:
            operator_ground.apply(CLUSTER, namespace)
            operator_ground.ready("slurmcluster/one", namespace)
            operator_ground.exec("login-0", "sinfo", namespace=namespace)

The operator is there once per run. A test makes what it needs in a namespace of its own, and removes it.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.bed.api import Object
from tests.bed.cluster import ClusterBed
from tests.bed.commands import CommandError, Done, attempt
from tests.bed.programs import program
from tests.bed.waiting import PATIENCE, eventually

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
EXAMPLES = ROOT / "examples" / "operator"
NAMESPACE = "isthmus-system"


@dataclass(frozen=True)
class OperatorGround:
    """A cluster with the operator in it."""

    cluster: ClusterBed

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.cluster.kubeconfig

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; a failure shows what it said."""
        return self.cluster.kubectl(*words, stdin=stdin)

    def attempt(self, *words: str, stdin: str | None = None) -> Done:
        """Run kubectl where it may fail, and see what it says."""
        return self.cluster.attempt(*words, stdin=stdin)

    def apply(self, manifest: str | dict[str, Any], namespace: str) -> None:
        """Make objects from YAML, or from a manifest."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=text)

    def get(self, what: str, namespace: str, *, selector: str = "") -> Object:
        """Read an object, such as nodeset/worker, or a list, such as pods."""
        return self.cluster.get(what, namespace, selector=selector)

    def exec(self, pod: str, *words: str, namespace: str, stdin: str | None = None) -> str:
        """Run a program in a pod; a failure shows what it said."""
        return self.cluster.exec(pod, *words, namespace=namespace, stdin=stdin)

    def ready(self, what: str, namespace: str, *, within: int = 240) -> None:
        """Wait until an object says that it is ready; show why not."""
        done = self.attempt(
            "wait", what, f"--namespace={namespace}", "--for=condition=Ready", f"--timeout={within}s"
        )
        assert done.returncode == 0, f"{what} is not ready: {done.stderr}\n{self.story(namespace)}"

    def eventually(
        self,
        observe: Callable[[], T],
        what: str,
        *,
        holds: Callable[[T], object] = bool,
        within: float = PATIENCE,
        namespace: str = "",
    ) -> T:
        """Wait as `tests.bed.waiting` does; show what is in that namespace when it does not come."""
        try:
            return eventually(observe, what, holds=holds, within=within)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(namespace)}" if namespace else str(error)) from None

    def story(self, namespace: str) -> str:
        """Tell all that helps to see what went wrong in a namespace."""
        kinds = "slurmclusters,controllers,nodesets.slinky.slurm.net,loginsets,accountings,restapis,pods"
        questions = (
            ("get", kinds, "-o", "wide", f"--namespace={namespace}"),
            ("get", "events", "--sort-by=.metadata.creationTimestamp", f"--namespace={namespace}"),
            ("logs", f"--namespace={NAMESPACE}", "deployment/isthmus-operator", "--tail=60"),
            *(
                ("logs", f"--namespace={namespace}", f"--selector=app.kubernetes.io/component={it}", "--tail=40")
                for it in ("controller", "worker")
            ),
            ("exec", f"--namespace={namespace}", "login-0", "--", "scontrol", "show", "nodes"),
        )
        return "\n".join(self.attempt(*words).stdout for words in questions)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace that goes at the end, with all that is in it."""
        self.cluster.make_namespace(name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    def helm(self, *words: str) -> str:
        """Run helm."""
        done = attempt(program("helm"), *words, env={**os.environ, "KUBECONFIG": str(self.kubeconfig)})
        if done.returncode:
            raise CommandError(f"helm {' '.join(words)}: {done.stderr}\n{self.story(NAMESPACE)}")
        return done.stdout


@pytest.fixture(scope="session")
def operator_ground(cluster: ClusterBed) -> Iterator[OperatorGround]:
    """The cluster, with the operator running."""
    ground = OperatorGround(cluster)
    chart = str(CHARTS / "isthmus-operator")
    ground.helm("install", "isthmus-operator", chart, f"--namespace={NAMESPACE}", "--create-namespace", "--wait")
    # Its pods are ready before the API server finds them.
    probe = {"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "metadata": {"name": "x"}, "spec": {}}
    tried = ("create", "--namespace=default", "--dry-run=server", "--filename=-")
    eventually(lambda: ground.kubectl(*tried, stdin=json.dumps(probe)), "the operator's webhooks to be found")
    yield ground
    ground.helm("uninstall", "isthmus-operator", f"--namespace={NAMESPACE}", "--wait")
