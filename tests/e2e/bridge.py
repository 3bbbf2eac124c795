"""The bridge, installed by helm and the chart, and what people do with it."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus import names
from isthmus.local import binaries
from isthmus.local.progress import PlainProgress
from tests.bed.bridge_ground import BridgeGround
from tests.bed.cluster import eventually
from tests.e2e.pods import TOOLS
from tests.e2e.test_command_line import ISTHMUS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "bridge"
SOON = 60.0
_CHART = ROOT / "charts" / "slurm-bridge"
_ACCOUNT = ("state", "exitcode", "comment", "nodelist", "partition")

Pod = dict[str, Any]


def soon(condition: Callable[[], object], what: str) -> None:
    """Wait for what should take a second or two."""
    eventually(condition, what, within=SOON)


def job_id(pod: Pod) -> str:
    """Tell the Slurm job of a pod; empty as long as it has none."""
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
        done = subprocess.run(
            [ISTHMUS, *words], check=False, capture_output=True, text=True, timeout=180, env={**os.environ, **reach}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # Both sides

    def pods(self, *named: str) -> list[Pod]:
        """Read these pods, or all of them."""
        found = json.loads(self.kubectl("get", "pods", *named, "-o", "json"))
        return list(found.get("items", [found]))

    def queue(self, *words: str) -> list[str]:
        """The lines that squeue prints, without its heading."""
        return self.slurm("squeue", "--noheader", *words).splitlines()

    def account(self, job: str) -> dict[str, str]:
        """What accounting says of a job."""
        told = self.slurm("sacct", "-X", "-P", "-n", f"--jobs={job}", f"--format={','.join(_ACCOUNT)}").strip()
        return dict(zip(_ACCOUNT, told.split("|"), strict=True)) if told else dict.fromkeys(_ACCOUNT, "")

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

        def told() -> bool:
            pod = self.pods(name)[0]
            since = pod["metadata"]["creationTimestamp"]
            return any(
                f"({reason})" in it.get("message", "") and it["lastTransitionTime"] == since
                for it in pod["status"].get("conditions", [])
                if it.get("reason") == "SlurmPending"
            )

        soon(told, f"pod {name} to know that Slurm says {reason}")

    def gone(self, name: str) -> bool:
        """Whether there is no such pod."""
        return f"pod/{name}" not in self.kubectl("get", "pods", "-o", "name").split()

    def clear(self) -> None:
        """Delete all that could have pods, and wait until Slurm knows."""
        self.kubectl("delete", "jobsets,lws,deployments,statefulsets,jobs,pods", "--all", "--timeout=180s")
        # What belonged to these goes after them, and until then may make a pod for one that was deleted.
        rest = ("get", "replicasets,statefulsets,jobs,pods", "-o", "name")
        eventually(lambda: not self.kubectl(*rest).strip(), "all pods to go, and whoever makes them")
        self.slurm("scancel", "--me")
        eventually(lambda: not self.queue(), "a queue without jobs")


@contextmanager
def installed(ground: BridgeGround, namespace: str, *values: str) -> Iterator[Bridge]:
    """Install the bridge for the pods of a namespace; remove it, and all that it made, at the end."""
    bridge = Bridge(ground, namespace)
    ground.cluster.make_namespace(namespace)
    told = [f"config.slurmRestApi={ground.rest_url}", f"config.managedNamespaces={{{namespace}}}", *values]
    _helm(ground, "install", str(_CHART), "--wait", "--timeout=300s", *(f"--set={value}" for value in told))
    # Its pods are ready before the API server finds them.
    tried = ("run", "tried", f"--image={TOOLS}", "--dry-run=server", "-o", "jsonpath={.spec.schedulerName}")
    eventually(lambda: bridge.kubectl(*tried) == names.SCHEDULER_NAME, "the bridge's webhooks to be found")
    try:
        yield bridge
    finally:
        bridge.clear()
        ground.kubectl("label", "nodes", "--all", f"{names.EXTERNAL_NODE_LABEL}-")
        eventually(lambda: not bridge.external_nodes(), "external nodes to go")
        _helm(ground, "uninstall", "--wait")
        ground.kubectl("delete", "lease", f"--namespace={ground.namespace}", "--all")
        ground.kubectl("delete", "namespace", namespace, "--wait=false")


def _helm(ground: BridgeGround, verb: str, *words: str) -> None:
    program = binaries.ensure(("helm",), PlainProgress(), given=binaries.given_by_environment())["helm"]
    done = subprocess.run(
        [program, verb, "slurm-bridge", f"--namespace={ground.namespace}", *words],
        env={**os.environ, "KUBECONFIG": str(ground.kubeconfig)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"helm {verb}: {done.stderr}\n{ground.kubectl('get', 'pods', '-A', '-o', 'wide')}"
