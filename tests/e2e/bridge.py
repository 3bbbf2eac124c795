"""The bridge, installed by helm and the chart, and what people do with it."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from isthmus import names
from tests.bed.bridge_ground import BridgeGround
from tests.bed.commands import attempt, checked
from tests.bed.programs import program
from tests.bed.waiting import eventually
from tests.e2e.command import isthmus
from tests.e2e.pods import TOOLS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "bridge"
SOON = 60.0
_CHART = ROOT / "charts" / "slurm-bridge"
_ACCOUNT = ("state", "exitcode", "comment", "nodelist", "partition")

T = TypeVar("T")
Pod = dict[str, Any]


def soon(observe: Callable[[], T], what: str, *, holds: Callable[[T], object] = bool) -> T:
    """Wait for what should take a second or two."""
    return eventually(observe, what, holds=holds, within=SOON)


def job_id(pod: Pod) -> str:
    """The Slurm job of a pod; empty as long as it has none."""
    return str(pod["metadata"].get("labels", {}).get(names.JOB_ID_LABEL, ""))


@dataclass(frozen=True)
class Bridge:
    """The bridge on its ground, and the namespace whose pods it places."""

    ground: BridgeGround
    namespace: str

    @property
    def workers(self) -> list[str]:
        """The names of the nodes that take pods."""
        return self.ground.cluster.workers

    def slurm(self, *words: str) -> str:
        """Run a program where slurmctld runs."""
        return self.ground.slurm(*words)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace whose pods Slurm places."""
        return self.ground.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def isthmus(self, *words: str) -> str:
        """Run our command as an administrator with a token for Slurm does."""
        ground = self.ground
        reach = {"SLURM_REST_API": ground.rest_url, "SLURM_JWT": ground.token, "KUBECONFIG": str(ground.kubeconfig)}
        return checked(isthmus(*words, **reach))

    # Both sides

    def pods(self, *named: str) -> list[Pod]:
        """Read these pods, or all of them."""
        if named:
            return [self.ground.cluster.get(f"pod/{name}", self.namespace) for name in named]
        return self.objects("pods")

    def objects(self, *kinds: str) -> list[dict[str, Any]]:
        """Read all objects of these kinds."""
        return [it for kind in kinds for it in self.ground.cluster.get(kind, self.namespace)["items"]]

    def queue(self, *words: str) -> list[str]:
        """The lines that squeue prints, without its heading."""
        return self.slurm("squeue", "--noheader", *words).splitlines()

    def account(self, job: str) -> dict[str, str]:
        """What accounting says of a job."""
        told = self.slurm("sacct", "-X", "-P", "-n", f"--jobs={job}", f"--format={','.join(_ACCOUNT)}").strip()
        return dict(zip(_ACCOUNT, told.split("|"), strict=True)) if told else dict.fromkeys(_ACCOUNT, "")

    def accounted(self, job: str, state: str) -> None:
        """Wait until accounting says that a job is in this state."""
        eventually(
            lambda: self.account(job),
            f"job {job} to be accounted for as {state}",
            holds=lambda it: it["state"].startswith(state),
        )

    def external_nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes of Slurm that stand for nodes of Kubernetes."""
        shown = json.loads(self.slurm("scontrol", "show", "nodes", "--json"))["nodes"]
        return {node["name"]: node for node in shown if node["name"] in self.workers}

    # Pods

    def run(self, name: str, *, command: str = "sleep infinity", **asked: str) -> None:
        """Create a pod that asks for something of Slurm; it shares its node unless it asks otherwise."""
        asked = {"exclusive": "false"} | asked
        container = {
            "name": "main",
            "image": TOOLS,
            "command": ["sh", "-c", f"exec {command}"],
            "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
        }
        annotations = {names.JOB_ANNOTATIONS + key: value for key, value in asked.items()}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        self.kubectl("apply", "--filename=-", stdin=json.dumps(document))

    def running(self, name: str, *, phase: str = "Running") -> Pod:
        """Wait until a pod runs, or has ended; return it."""
        self.kubectl("wait", f"--for=jsonpath={{.status.phase}}={phase}", f"pod/{name}", "--timeout=180s")
        return self.pods(name)[0]

    def waits(self, name: str, reason: str) -> None:
        """Wait until a pod is told that Slurm has this reason to let it wait."""

        def told(pod: Pod) -> bool:
            since = pod["metadata"]["creationTimestamp"]
            return any(
                f"({reason})" in it.get("message", "") and it["lastTransitionTime"] == since
                for it in pod["status"].get("conditions", [])
                if it.get("reason") == "SlurmPending"
            )

        soon(lambda: self.pods(name)[0], f"pod {name} to know that Slurm says {reason}", holds=told)

    def gone(self, name: str) -> None:
        """Wait until there is no such pod any more."""
        self.kubectl("wait", "--for=delete", f"pod/{name}", f"--timeout={SOON:g}s")

    def clear(self) -> None:
        """Delete all that could have pods, and wait until Slurm knows."""
        self.kubectl("delete", "jobsets,lws,deployments,statefulsets,jobs,pods", "--all", "--timeout=180s")
        # What belonged to these goes after them, and until then may make a pod for one that was deleted.
        eventually(
            lambda: [it["metadata"]["name"] for it in self.objects("replicasets", "statefulsets", "jobs", "pods")],
            "all pods to go, and whoever makes them",
            holds=lambda it: not it,
        )
        self.slurm("scancel", "--me")
        eventually(self.queue, "a queue without jobs", holds=lambda it: not it)


@contextmanager
def installed(ground: BridgeGround, namespace: str, *values: str) -> Iterator[Bridge]:
    """Install the bridge for the pods of a namespace; remove it, and all that it made, at the end."""
    bridge = Bridge(ground, namespace)
    ground.cluster.make_namespace(namespace)
    told = [f"config.slurmRestApi={ground.rest_url}", f"config.managedNamespaces={{{namespace}}}", *values]
    _helm(ground, "install", str(_CHART), "--wait", "--timeout=300s", *(f"--set={value}" for value in told))
    # Its pods are ready before the API server finds them.
    tried = ("run", "tried", f"--image={TOOLS}", "--dry-run=server", "-o", "jsonpath={.spec.schedulerName}")
    eventually(
        lambda: bridge.kubectl(*tried),
        "the bridge's webhooks to be found",
        holds=lambda it: it == names.SCHEDULER_NAME,
    )
    try:
        yield bridge
    finally:
        bridge.clear()
        ground.kubectl("label", "nodes", "--all", f"{names.EXTERNAL_NODE_LABEL}-")
        eventually(bridge.external_nodes, "external nodes to go", holds=lambda it: not it)
        _helm(ground, "uninstall", "--wait")
        ground.kubectl("delete", "lease", f"--namespace={ground.namespace}", "--all")
        ground.kubectl("delete", "namespace", namespace, "--wait=false")


def _helm(ground: BridgeGround, verb: str, *words: str) -> None:
    words = (verb, "slurm-bridge", f"--namespace={ground.namespace}", *words)
    done = attempt(program("helm"), *words, env={**os.environ, "KUBECONFIG": str(ground.kubeconfig)})
    assert done.returncode == 0, f"helm {verb}: {done.stderr}\n{ground.kubectl('get', 'pods', '-A', '-o', 'wide')}"
