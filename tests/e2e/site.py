"""A Slurm cluster that the operator runs, as e2e tests use it: one namespace, its objects, its nodes, its jobs.

    with operator_ground.namespace("tried") as namespace:
        site = Site(operator_ground, namespace)
        site.apply(*keys(), part("Controller", "slurm", **KEYS), part("NodeSet", "w", **OF_SLURM, replicas=2))
        site.ready("controller/slurm", "nodeset.slinky.slurm.net/w")
        job = site.submit("sleep 600", "--mem=10")
        site.until(job, "RUNNING")
        site.eventually(site.states, "both to be busy", holds=lambda it: set(it.values()) == {"mixed"})

What one module alone needs stays a function in that module, which is given the site. People who log in come through
`tests.e2e.ssh`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.bed.api import Object
from tests.bed.commands import Done
from tests.bed.operator_ground import OperatorGround
from tests.bed.waiting import PATIENCE

T = TypeVar("T")

UNFINISHED = frozenset({"", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"})
"""States of a job that has not ended; none at all, where nobody knows of it yet."""


@dataclass(frozen=True)
class Site:
    """A Slurm cluster in a namespace. `slurmctld` is the pod beside whose daemon commands run."""

    ground: OperatorGround
    namespace: str
    slurmctld: str = "slurm-controller-0"

    # Objects

    def kubectl(self, verb: str, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.ground.kubectl(verb, f"--namespace={self.namespace}", *words, stdin=stdin)

    def apply(self, *manifests: Object) -> None:
        """Make all of these at once."""
        self.ground.apply({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, self.namespace)

    def get(self, what: str) -> Object:
        """Read an object, such as nodeset.slinky.slurm.net/w."""
        return self.ground.get(what, self.namespace)

    def patch(self, what: str, change: dict[str, Any]) -> None:
        """Change some fields of an object; None removes one."""
        self.kubectl("patch", what, "--type=merge", f"--patch={json.dumps(change)}")

    def scale(self, what: str, replicas: int) -> None:
        """Want so many of something."""
        self.kubectl("scale", what, f"--replicas={replicas}")

    def ready(self, *whats: str) -> None:
        """Wait until each of these says that it is ready; show why not."""
        for what in whats:
            self.ground.ready(what, self.namespace)

    def condition(self, what: str, type_: str) -> dict[str, str]:
        """Read a condition of an object, empty in all fields as long as it has none."""
        held = self.get(what).get("status", {}).get("conditions", [])
        empty = {"type": type_, "status": "", "reason": "", "message": ""}
        return empty | next((it for it in held if it["type"] == type_), {})

    def pods(self, selector: str = "") -> dict[str, str]:
        """The uid of every pod that is not on its way out."""
        found = self.ground.get("pods", self.namespace, selector=selector)["items"]
        alive = (it["metadata"] for it in found if "deletionTimestamp" not in it["metadata"])
        return {it["name"]: it["uid"] for it in alive}

    def uid(self, pod: str) -> str:
        """Which pod of that name there is."""
        return str(self.get(f"pod/{pod}")["metadata"]["uid"])

    def node_of(self, pod: str) -> str:
        """On which node of Kubernetes a pod is."""
        return str(self.get(f"pod/{pod}")["spec"]["nodeName"])

    def replaced(self, pod: str, before: str) -> None:
        """Wait until there is another pod of that name."""
        self.eventually(lambda: self.pods().get(pod, before), f"another {pod}", holds=lambda it: it != before)

    # Commands

    def exec(self, pod: str, *words: str, stdin: str | None = None) -> str:
        """Run a program in a pod."""
        return self.ground.exec(pod, *words, namespace=self.namespace, stdin=stdin)

    def attempt(self, pod: str, *words: str) -> Done:
        """Run a program in a pod, where it may fail."""
        return self.ground.cluster.api.exec(pod, *words, namespace=self.namespace)

    def run(self, *words: str, where: str = "") -> str:
        """Run a command of Slurm as root, beside slurmctld or in another pod."""
        return self.exec(where or self.slurmctld, *words)

    def login(self, *words: str, user: str = "soperator") -> str:
        """Run a command on the login node, in the user's home."""
        return self.exec("login-0", "su", "-l", "-c", 'exec "$0" "$@"', "--", user, *words)

    # Nodes and jobs of Slurm

    def states(self) -> dict[str, str]:
        """The state of every node, in Slurm's words."""
        listed = self.run("sinfo", "-hN", "-o", "%N %T").split()
        return dict(zip(listed[::2], listed[1::2], strict=True))

    def submit(self, script: str, *options: str) -> str:
        """Submit a script as a job; its id."""
        wanted = ("--parsable", "--output=/dev/null", "--chdir=/tmp", *options, f"--wrap={script}")
        return self.run("sbatch", *wanted).strip()

    def job(self, job: str, *, where: str = "") -> dict[str, str]:
        """Read what slurmctld says of a job: JobState, ExitCode, Restarts …; nothing when it has forgotten it."""
        return dict(
            re.findall(r"(\S+?)=(\S*)", self.run("scontrol", "--oneliner", "show", "job", job, where=where))
        )

    def until(self, job: str, *wanted: str) -> None:
        """Wait until a job is in one of these states."""
        self.eventually(
            lambda: self.job(job),
            f"job {job} to be {' or '.join(wanted)}",
            holds=lambda it: it["JobState"] in wanted,
        )

    def ended(self, job: str) -> dict[str, str]:
        """Wait for a job to end; what slurmctld says of it then."""
        return self.eventually(
            lambda: self.job(job), f"job {job} to end", holds=lambda it: it["JobState"] not in UNFINISHED
        )

    # Waiting

    def eventually(
        self, observe: Callable[[], T], what: str, *, holds: Callable[[T], object] = bool, within: float = PATIENCE
    ) -> T:
        """Wait as `tests.bed.waiting` does; show what is in the namespace when it does not come."""
        return self.ground.eventually(observe, what, holds=holds, within=within, namespace=self.namespace)
