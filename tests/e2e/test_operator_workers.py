"""Workers that come and go under running jobs: scaled, updated, cordoned, evicted, cut off, their operator killed.

One thing holds in every test: a job that was running ends by itself, with the exit code of its script.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from isthmus import names
from isthmus.local import lifecycle
from tests.bed.operator_ground import NAMESPACE as OPERATORS
from tests.bed.operator_ground import OperatorGround
from tests.bed.waiting import PATIENCE
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part
from tests.e2e.site import Site

NAMESPACE = "workers-test"
WORKERS = "nodeset.slinky.slurm.net/w"
REPLICAS = 3


def start(site: Site, node: str, *, until: str = "") -> str:
    """Let a job run on a node until it is released, and wait for it to begin; its id."""
    wait = until or "while [ ! -e /tmp/go ]; do sleep 0.2; done; rm /tmp/go"
    job = site.submit(f"{wait}; exit 3", f"--nodelist={node}")
    site.eventually(lambda: site.job(job), f"job {job} to begin", holds=lambda it: it["JobState"] != "PENDING")
    return job


def release(site: Site, node: str) -> None:
    """Let the job on a node end."""
    site.exec(node, "touch", "/tmp/go")  # noqa: S108 - in the pod


def ended_by_itself(site: Site, job: str) -> None:
    """Make sure that a job came to the end of its script."""
    told = site.ended(job)
    assert (told["ExitCode"], told["Restarts"]) == ("3:0", "0"), told


def workers(site: Site) -> dict[str, str]:
    """The uid of every worker pod that is not on its way out."""
    return site.pods("app.kubernetes.io/name=slurmd")


def workers_are(site: Site, *names: str) -> None:
    """Wait until there are these workers and no others."""
    site.eventually(lambda: workers(site), f"the pods {names} alone", holds=lambda it: set(it) == set(names))


def state_is(site: Site, node: str, *wanted: str, within: float = PATIENCE) -> None:
    """Wait until Slurm says that a node is in one of these states."""
    what = f"{node} to be {' or '.join(wanted)}"
    site.eventually(site.states, what, holds=lambda it: it.get(node, "") in wanted, within=within)


def settled(site: Site) -> None:
    """Wait until all workers are idle, and nothing is remembered of others."""
    wanted = {f"w-{number}": "idle" for number in range(REPLICAS)}
    site.eventually(site.states, f"{REPLICAS} idle workers", holds=lambda it: it == wanted, within=240)
    site.eventually(
        lambda: site.get(WORKERS)["status"], "nobody to be chosen to go", holds=lambda it: "victims" not in it
    )
    site.ready(WORKERS)


def all_ready(site: Site, deployment: str, namespace: str) -> None:
    """Wait until a Deployment has as many ready pods as it wants, and no others."""
    found = site.ground.get(f"deployment/{deployment}", namespace)["spec"]
    selector = ",".join(f"{key}={value}" for key, value in found["selector"]["matchLabels"].items())

    def ready() -> dict[str, bool]:
        return {
            it["metadata"]["name"]: any(
                held["type"] == "Ready" and held["status"] == "True" for held in it["status"].get("conditions", [])
            )
            for it in site.ground.get("pods", namespace, selector=selector)["items"]
        }

    site.eventually(
        ready,
        f"the pods of {deployment} to be elsewhere",
        holds=lambda it: all(it.values()) and len(it) == int(found["replicas"]),
    )


def evict(site: Site, pod: str) -> str:
    """Ask for an eviction, as `kubectl drain` does; what was said against it."""
    meta = {"name": pod, "namespace": site.namespace}
    wish = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{site.namespace}/pods/{pod}/eviction"
    return site.ground.attempt("create", "--raw", path, "-f", "-", stdin=json.dumps(wish)).stderr


@contextmanager
def cordoned(site: Site, *nodes: str) -> Iterator[None]:
    """Cordon nodes, one after the other, and take that back in the same order."""
    for node in nodes:
        site.ground.kubectl("cordon", node)
    try:
        yield
    finally:
        for node in nodes:
            site.ground.kubectl("uncordon", node)


@pytest.fixture(scope="module")
def made(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE) as namespace:
        nodeset = part(
            "NodeSet",
            "w",
            **OF_SLURM,
            replicas=REPLICAS,
            slurmd={"resources": SMALL},
            updateStrategy={"rollingUpdate": {"maxUnavailable": 1}},
            partition={"enabled": True, "config": "Default=YES MaxTime=INFINITE"},
        )
        made = Site(operator_ground, namespace)
        made.apply(
            *keys(),
            part("Controller", "slurm", **KEYS, extraConf="SlurmdTimeout=15"),
            part("RestApi", "slurm", **OF_SLURM),
            nodeset,
        )
        made.ready("controller/slurm", "restapi/slurm", WORKERS)
        yield made
        made.kubectl("delete", WORKERS, "--ignore-not-found")


@pytest.fixture
def site(made: Site) -> Iterator[Site]:
    """Three idle workers, before each test."""
    settled(made)
    yield made
    made.run("scancel", "--user=root")
    made.scale(WORKERS, REPLICAS)


def test_scale_in_takes_idle_nodes_and_waits_for_jobs(site: Site) -> None:
    job = start(site, "w-2")
    site.scale(WORKERS, 1)
    workers_are(site, "w-2")
    site.eventually(site.states, "Slurm to forget both", holds=lambda it: set(it) == {"w-2"})
    site.scale(WORKERS, 0)
    site.eventually(site.states, "the busy one to be drained", holds=lambda it: it == {"w-2": "draining"})
    site.scale(WORKERS, 2)
    state_is(site, "w-2", "mixed", "allocated")  # it is wanted again
    state_is(site, "w-0", "idle")
    site.scale(WORKERS, 0)
    workers_are(site, "w-2")
    release(site, "w-2")
    ended_by_itself(site, job)
    workers_are(site)


def test_an_update_waits_for_jobs(site: Site) -> None:
    before = workers(site)
    job = start(site, "w-1")
    site.patch(WORKERS, {"spec": {"slurmd": {"env": [{"name": "UPDATED", "value": str(time.time())}]}}})
    site.eventually(
        lambda: {it: uid for it, uid in workers(site).items() if before[it] == uid},
        "all but the busy one to be replaced",
        holds=lambda it: it == {"w-1": before["w-1"]},
        within=240,
    )
    state_is(site, "w-1", "draining")
    assert site.job(job)["JobState"] == "RUNNING"
    release(site, "w-1")
    ended_by_itself(site, job)
    site.replaced("w-1", before["w-1"])


def test_a_bad_image_takes_one_worker_and_is_taken_back(site: Site) -> None:
    image = site.get(WORKERS)["spec"]["slurmd"].get("image")
    before = workers(site)
    site.patch(WORKERS, {"spec": {"slurmd": {"image": "isthmus.local/none:0"}}})
    site.eventually(
        lambda: workers(site), "one to be replaced", holds=lambda it: it != before and len(it) == REPLICAS
    )
    kept = {name for name, uid in workers(site).items() if before[name] == uid}
    assert len(kept) == REPLICAS - 1
    job = start(site, min(kept), until="true")
    ended_by_itself(site, job)
    assert {name for name, uid in workers(site).items() if before[name] == uid} == kept
    site.patch(WORKERS, {"spec": {"slurmd": {"image": image}}})
    settled(site)


def test_a_cordon_drains_and_an_eviction_waits_for_the_job(site: Site) -> None:
    job = start(site, "w-0")
    assert "disruption budget" in evict(site, "w-0")
    before = site.uid("w-0")
    with cordoned(site, site.node_of("w-0")):
        state_is(site, "w-0", "draining")
        assert "disruption budget" in evict(site, "w-0")
        release(site, "w-0")
        ended_by_itself(site, job)
        site.eventually(lambda: evict(site, "w-0"), "the eviction to pass", holds=lambda it: not it)
    site.replaced("w-0", before)


def test_an_administrators_drain_lives_beside_a_cordon(site: Site) -> None:
    """Of w-1 nothing is to be seen. So w-2 is cordoned and uncordoned after it: what is decided for the one is
    decided for the other at the same time, or was before."""

    def reason(node: str) -> str:
        return site.run("scontrol", "show", "node", node).partition("Reason=")[2]

    site.run("scontrol", "update", "nodename=w-1", "state=drain", "reason=ticket 4711")
    with cordoned(site, site.node_of("w-1"), site.node_of("w-2")):
        state_is(site, "w-2", "drained")
        assert "was cordoned" in reason("w-2")
        assert reason("w-1").startswith("ticket 4711")
    state_is(site, "w-2", "idle")
    assert site.states() == {"w-0": "idle", "w-1": "drained", "w-2": "idle"}
    assert reason("w-1").startswith("ticket 4711")
    site.run("scontrol", "update", "nodename=w-1", "state=undrain")


def test_an_operator_that_is_killed_goes_on_where_it_was(site: Site) -> None:
    job = start(site, "w-0")
    site.kubectl("annotate", "pod/w-0", f"{names.POD_DELETION_COST_ANNOTATION}=-1")
    # When the operator has put the label back, it has seen that, too.
    protected = names.POD_PROTECT_LABEL
    site.kubectl("label", "pod/w-0", f"{protected}-")
    site.eventually(
        lambda: site.get("pod/w-0")["metadata"]["labels"],
        "it to be protected again",
        holds=lambda it: protected in it,
    )
    site.scale(WORKERS, 2)
    state_is(site, "w-0", "draining")
    site.kubectl("annotate", "pod/w-0", f"{names.POD_DELETION_COST_ANNOTATION}-")
    killed = Site(site.ground, OPERATORS).pods()
    assert killed
    site.ground.kubectl(
        "delete", "pods", f"--namespace={OPERATORS}", "--all", "--grace-period=0", "--force", "--wait=false"
    )
    all_ready(site, "isthmus-operator", OPERATORS)
    assert not set(killed.values()) & set(Site(site.ground, OPERATORS).pods().values())
    assert site.job(job)["JobState"] == "RUNNING"
    release(site, "w-0")
    ended_by_itself(site, job)
    workers_are(site, "w-1", "w-2")


def _away_from_slurm(site: Site) -> str:
    """Find a worker on whose node slurmctld does not run nor, after this, slurmrestd and the operator.

    An operator that is cut off, too, has a successor when Slurm has given the node up: too late for this test.
    """
    there = site.node_of(site.slurmctld)
    worker = next(pod for pod in sorted(workers(site)) if site.node_of(pod) != there)
    node = site.node_of(worker)
    with cordoned(site, node):
        for namespace, app, deployment in (
            (site.namespace, "slurmrestd", "slurm-restapi"),
            (OPERATORS, "isthmus-operator", "isthmus-operator"),
        ):
            on_node = (f"--selector=app.kubernetes.io/name={app}", f"--field-selector=spec.nodeName={node}")
            site.ground.kubectl("delete", "pods", f"--namespace={namespace}", *on_node)
            # A Deployment says that all is well until it has noticed.
            all_ready(site, deployment, namespace)
    settled(site)
    return worker


def test_a_node_that_is_cut_off_loses_no_job_to_us(site: Site) -> None:
    """Slurm gives the node up and puts the job back into the queue; the operator takes no part in it."""
    worker = _away_from_slurm(site)
    node, before = site.node_of(worker), workers(site)
    script = '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    job = site.submit(script, f"--nodelist={worker}", "--requeue")
    site.until(job, "RUNNING")
    lifecycle.cut_node(site.ground.cluster.name, node)
    try:
        site.scale(WORKERS, 2)
        site.eventually(lambda: workers(site), "one to go", holds=lambda it: len(it) == REPLICAS - 1)
        assert workers(site)[worker] == before[worker], "a node that cannot be asked was taken for idle"
        site.eventually(
            site.states,
            "Slurm to give the node up",
            holds=lambda it: it.get(worker, "").startswith("d"),
            within=240,
        )
        assert workers(site)[worker] == before[worker]
    finally:
        lifecycle.heal_node(site.ground.cluster.name, node)
    state_is(site, worker, "idle", within=240)
    site.eventually(
        lambda: site.job(job), "the job to be put back into the queue", holds=lambda it: it["Restarts"] == "1"
    )


def test_a_nodeset_that_is_deleted_drains(made: Site) -> None:
    """The last of these tests: nothing is left after it."""
    site = made
    settled(site)
    job = start(site, "w-0")
    site.kubectl("delete", WORKERS, "--wait=false")
    workers_are(site, "w-0")
    assert site.job(job)["JobState"] == "RUNNING"
    release(site, "w-0")
    ended_by_itself(site, job)
    site.kubectl("wait", WORKERS, "--for=delete", "--timeout=240s")
    site.eventually(site.states, "Slurm to know no worker any more", holds=lambda it: not it)
