"""Workers that come and go under running jobs: scaled, updated, cordoned, evicted, cut off, their operator killed.

One thing holds in every test: a job that was running ends by itself, with the exit code of its script.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from isthmus import names
from isthmus.local import lifecycle
from tests.bed.operator_ground import NAMESPACE as OPERATORS
from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, apply, keys, part, patch

NAMESPACE = "workers-test"
CONTROLLER = "slurm-controller-0"
WORKERS = "nodeset.slinky.slurm.net/w"
REPLICAS = 3
SLURMD_TIMEOUT = 15


@dataclass(frozen=True)
class Site:
    """A cluster of a few workers."""

    ground: OperatorGround

    def run(self, *words: str) -> str:
        """Run a command of Slurm beside slurmctld."""
        return self.ground.exec(CONTROLLER, *words, namespace=NAMESPACE)

    def submit(self, node: str, script: str, *words: str) -> str:
        """Submit a job for a node; its id."""
        options = ("--parsable", "--output=/dev/null", "--chdir=/tmp", f"--nodelist={node}", *words)
        return self.run("sbatch", *options, f"--wrap={script}").strip()

    def start(self, node: str, *, until: str = "") -> str:
        """Let a job run on a node until it is released, and wait for its script to be there; its id."""
        wait = until or "while [ ! -e /tmp/go ]; do sleep 0.2; done; rm /tmp/go"
        job = self.submit(node, f"{wait}; exit 3")
        self.ground.eventually(lambda: "JobState=PENDING" not in self.job(job), f"job {job} to begin")
        return job

    def release(self, node: str) -> None:
        """Let the job on a node end."""
        self.ground.exec(node, "touch", "/tmp/go", namespace=NAMESPACE)  # noqa: S108 - in the pod

    def job(self, job: str) -> str:
        return self.run("scontrol", "show", "job", job)

    def ended_by_itself(self, job: str) -> None:
        """Make sure that a job came to the end of its script."""
        self.ground.eventually(lambda: "JobState=RUNNING" not in self.job(job), f"job {job} to end")
        told = self.job(job)
        assert "ExitCode=3:0" in told, told
        assert "Restarts=0" in told, told

    def states(self) -> dict[str, str]:
        """Tell the state of every node, in Slurm's words."""
        listed = self.run("sinfo", "-hN", "-o", "%N %T").split()
        return dict(zip(listed[::2], listed[1::2], strict=True))

    def pods(self) -> dict[str, str]:
        """Tell the uid of every worker pod that is not on its way out."""
        listed = json.loads(
            self.ground.kubectl(
                "get", "pods", f"--namespace={NAMESPACE}", "-l", "app.kubernetes.io/name=slurmd", "-o", "json"
            )
        )
        alive = (it["metadata"] for it in listed["items"] if "deletionTimestamp" not in it["metadata"])
        return {meta["name"]: meta["uid"] for meta in alive}

    def node_of(self, pod: str) -> str:
        return str(self.ground.get(f"pod/{pod}", NAMESPACE)["spec"]["nodeName"])

    def scale(self, replicas: int) -> None:
        self.ground.kubectl("scale", WORKERS, f"--namespace={NAMESPACE}", f"--replicas={replicas}")

    def change(self, **spec: Any) -> None:
        patch(self.ground, NAMESPACE, WORKERS, {"spec": spec})

    def settled(self, replicas: int = REPLICAS) -> None:
        """Wait until there are so many workers, all of them idle, and nothing is remembered of others."""
        wanted = {f"w-{number}": "idle" for number in range(replicas)}
        self.ground.eventually(lambda: self.states() == wanted, f"{replicas} idle workers", within=240)
        self.ground.eventually(
            lambda: "victims" not in self.ground.get(WORKERS, NAMESPACE)["status"], "nobody to be chosen to go"
        )
        self.ground.ready(WORKERS, NAMESPACE)

    def all_ready(self, deployment: str, namespace: str) -> bool:
        """Whether a Deployment has as many ready pods as it wants, and has seen them all."""
        found = self.ground.get(f"deployment/{deployment}", namespace)
        selector = ",".join(f"{key}={value}" for key, value in found["spec"]["selector"]["matchLabels"].items())
        listed = json.loads(
            self.ground.kubectl("get", "pods", f"--namespace={namespace}", f"--selector={selector}", "-o", "json")
        )
        ready = [
            it
            for it in listed["items"]
            if any(
                held["type"] == "Ready" and held["status"] == "True" for held in it["status"].get("conditions", [])
            )
        ]
        return len(ready) == len(listed["items"]) == int(found["spec"]["replicas"])

    def evict(self, pod: str) -> str:
        """Ask for an eviction, as `kubectl drain` does; what was said against it."""
        meta = {"name": pod, "namespace": NAMESPACE}
        wish = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        return self.ground.attempt("create", "--raw", path, "-f", "-", stdin=json.dumps(wish)).stderr


@pytest.fixture(scope="module")
def made(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE):
        workers = part(
            "NodeSet",
            "w",
            **OF_SLURM,
            replicas=REPLICAS,
            slurmd={"resources": SMALL},
            updateStrategy={"rollingUpdate": {"maxUnavailable": 1}},
            partition={"enabled": True, "config": "Default=YES MaxTime=INFINITE"},
        )
        apply(
            operator_ground,
            NAMESPACE,
            *keys(),
            part("Controller", "slurm", **KEYS, extraConf=f"SlurmdTimeout={SLURMD_TIMEOUT}"),
            part("RestApi", "slurm", **OF_SLURM),
            workers,
        )
        for what in ("controller/slurm", "restapi/slurm", WORKERS):
            operator_ground.ready(what, NAMESPACE)
        yield Site(operator_ground)
        operator_ground.kubectl("delete", WORKERS, f"--namespace={NAMESPACE}", "--ignore-not-found")


@pytest.fixture
def site(made: Site) -> Iterator[Site]:
    """Three idle workers, before and after each test."""
    made.settled()
    yield made
    made.run("scancel", "--user=root")
    made.scale(REPLICAS)


def test_scale_in_takes_idle_nodes_and_waits_for_jobs(site: Site) -> None:
    job = site.start("w-2")
    site.scale(1)
    site.ground.eventually(lambda: set(site.pods()) == {"w-2"}, "both idle workers to go")
    site.ground.eventually(lambda: set(site.states()) == {"w-2"}, "Slurm to forget them")
    site.scale(0)
    site.ground.eventually(lambda: site.states() == {"w-2": "draining"}, "the busy one to be drained")
    site.scale(2)
    site.ground.eventually(lambda: site.states().get("w-2") in {"mixed", "allocated"}, "it to be wanted again")
    site.ground.eventually(lambda: site.states().get("w-0") == "idle", "another worker")
    site.scale(0)
    site.ground.eventually(lambda: set(site.pods()) == {"w-2"}, "the idle one to go")
    site.release("w-2")
    site.ended_by_itself(job)
    site.ground.eventually(lambda: not site.pods(), "the last one to go after its job")


def test_an_update_waits_for_jobs(site: Site) -> None:
    before = site.pods()
    job = site.start("w-1")
    site.change(slurmd={"env": [{"name": "UPDATED", "value": str(time.time())}]})
    site.ground.eventually(
        lambda: {it: uid for it, uid in site.pods().items() if before[it] == uid} == {"w-1": before["w-1"]},
        "all but the busy one to be replaced",
        within=240,
    )
    site.ground.eventually(lambda: site.states()["w-1"] == "draining", "the busy one to be drained")
    assert "JobState=RUNNING" in site.job(job)
    site.release("w-1")
    site.ended_by_itself(job)
    site.ground.eventually(lambda: site.pods().get("w-1", before["w-1"]) != before["w-1"], "its successor")


def test_a_bad_image_takes_one_worker_and_is_taken_back(site: Site) -> None:
    image = site.ground.get(WORKERS, NAMESPACE)["spec"]["slurmd"].get("image")
    before = site.pods()
    site.change(slurmd={"image": "isthmus.local/none:0"})
    site.ground.eventually(lambda: site.pods() != before and len(site.pods()) == REPLICAS, "one to be replaced")
    kept = {name for name, uid in site.pods().items() if before[name] == uid}
    assert len(kept) == REPLICAS - 1
    job = site.start(min(kept), until="true")
    site.ended_by_itself(job)
    assert {name for name, uid in site.pods().items() if before[name] == uid} == kept
    site.change(slurmd={"image": image})
    site.settled()


def test_a_cordon_drains_and_an_eviction_waits_for_the_job(site: Site) -> None:
    job = site.start("w-0")
    assert "disruption budget" in site.evict("w-0")
    node, before = site.node_of("w-0"), site.pods()["w-0"]
    site.ground.kubectl("cordon", node)
    try:
        site.ground.eventually(lambda: site.states()["w-0"] == "draining", "the cordoned one to be drained")
        assert "disruption budget" in site.evict("w-0")
        site.release("w-0")
        site.ended_by_itself(job)
        site.ground.eventually(lambda: not site.evict("w-0"), "the eviction to pass")
    finally:
        site.ground.kubectl("uncordon", node)
    site.ground.eventually(lambda: site.pods().get("w-0", before) != before, "its successor")


def test_an_administrators_drain_lives_beside_a_cordon(site: Site) -> None:
    node = site.node_of("w-1")
    site.run("scontrol", "update", "nodename=w-1", "state=drain", "reason=ticket 4711")
    site.ground.kubectl("cordon", node)
    site.ground.kubectl("uncordon", node)
    site.ground.eventually(lambda: site.states()["w-0"] == "idle", "others to be idle")
    assert "ticket 4711" in site.run("scontrol", "show", "node", "w-1")
    assert site.states()["w-1"] == "drained"
    site.run("scontrol", "update", "nodename=w-1", "state=undrain")


def test_an_operator_that_is_killed_goes_on_where_it_was(site: Site) -> None:
    job = site.start("w-0")
    site.ground.kubectl(
        "annotate", "pod/w-0", f"--namespace={NAMESPACE}", f"{names.POD_DELETION_COST_ANNOTATION}=-1"
    )
    # When the operator has put the label back, it has seen that, too.
    protected = names.POD_PROTECT_LABEL
    site.ground.kubectl("label", "pod/w-0", f"--namespace={NAMESPACE}", f"{protected}-")
    site.ground.eventually(
        lambda: protected in site.ground.get("pod/w-0", NAMESPACE)["metadata"]["labels"], "it to be protected again"
    )
    site.scale(2)
    site.ground.eventually(lambda: site.states()["w-0"] == "draining", "the cheapest to be drained")
    site.ground.kubectl("annotate", "pod/w-0", f"--namespace={NAMESPACE}", f"{names.POD_DELETION_COST_ANNOTATION}-")
    site.ground.kubectl(
        "delete", "pods", f"--namespace={OPERATORS}", "--all", "--grace-period=0", "--force", "--wait=false"
    )
    site.ground.kubectl("rollout", "status", "deployment/isthmus-operator", f"--namespace={OPERATORS}")
    assert "JobState=RUNNING" in site.job(job)
    site.release("w-0")
    site.ended_by_itself(job)
    site.ground.eventually(lambda: set(site.pods()) == {"w-1", "w-2"}, "the one to go that was chosen")


def _away_from_slurm(site: Site) -> str:
    """Find a worker on whose node slurmctld does not run nor, after this, slurmrestd and the operator.

    An operator that is cut off, too, has a successor when Slurm has given the node up: too late for this test.
    """
    there = site.node_of(CONTROLLER)
    worker = next(pod for pod in sorted(site.pods()) if site.node_of(pod) != there)
    node = site.node_of(worker)
    site.ground.kubectl("cordon", node)
    try:
        for namespace, app, deployment in (
            (NAMESPACE, "slurmrestd", "slurm-restapi"),
            (OPERATORS, "isthmus-operator", "isthmus-operator"),
        ):
            on_node = (f"--selector=app.kubernetes.io/name={app}", f"--field-selector=spec.nodeName={node}")
            site.ground.kubectl("delete", "pods", f"--namespace={namespace}", *on_node)
            # A Deployment says that all is well until it has noticed.
            site.ground.eventually(
                lambda: site.all_ready(deployment, namespace),  # noqa: B023 - now
                f"the pods of {deployment} to be elsewhere",
            )
    finally:
        site.ground.kubectl("uncordon", node)
    site.settled()
    return worker


def test_a_node_that_is_cut_off_loses_no_job_to_us(site: Site) -> None:
    """Slurm gives the node up and puts the job back into the queue; the operator takes no part in it."""
    worker = _away_from_slurm(site)
    # Slurm looks for nodes three times as often as this, and every twentieth time for those that it has given up.
    _give_up_after(site, 6)
    node, before = site.node_of(worker), site.pods()
    job = site.submit(worker, '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600', "--requeue")
    site.ground.eventually(lambda: "JobState=RUNNING" in site.job(job), "the job to run")
    lifecycle.cut_node(site.ground.cluster.name, node)
    try:
        site.scale(2)
        site.ground.eventually(lambda: len(site.pods()) == REPLICAS - 1, "one to go")
        assert site.pods()[worker] == before[worker], "a node that cannot be asked was taken for idle"
        site.ground.eventually(
            lambda: site.states().get(worker, "").startswith("d"), "Slurm to give the node up", within=240
        )
        assert site.pods()[worker] == before[worker]
    finally:
        lifecycle.heal_node(site.ground.cluster.name, node)
    site.ground.eventually(lambda: site.states().get(worker) == "idle", "the node to come back", within=240)
    site.ground.eventually(lambda: "Restarts=1" in site.job(job), "the job to be put back into the queue")
    _give_up_after(site, SLURMD_TIMEOUT)


def _give_up_after(site: Site, seconds: int) -> None:
    """Let Slurm give up nodes that do not answer for so long."""
    patch(site.ground, NAMESPACE, "controller/slurm", {"spec": {"extraConf": f"SlurmdTimeout={seconds}"}})
    taken = re.compile(rf"SlurmdTimeout\s*= {seconds} sec")
    site.ground.eventually(lambda: taken.search(site.run("scontrol", "show", "config")), "the time to be taken")


def test_a_nodeset_that_is_deleted_drains(made: Site) -> None:
    """The last of these tests: nothing is left after it."""
    site = made
    site.settled()
    job = site.start("w-0")
    site.ground.kubectl("delete", WORKERS, f"--namespace={NAMESPACE}", "--wait=false")
    site.ground.eventually(lambda: set(site.pods()) == {"w-0"}, "the idle ones to go")
    assert "JobState=RUNNING" in site.job(job)
    site.release("w-0")
    site.ended_by_itself(job)
    site.ground.kubectl("wait", WORKERS, f"--namespace={NAMESPACE}", "--for=delete", "--timeout=240s")
    site.ground.eventually(lambda: not site.states(), "Slurm to know no worker any more")
