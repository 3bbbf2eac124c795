"""Pods placed by a real Slurm, one by one."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from isthmus import names
from isthmus.bridge.scheduler import submitter
from isthmus.domain.bridge import marker
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.crd import install
from isthmus.model.node import NODES
from isthmus.model.slinky import NODESETS
from isthmus.operator import crds
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import Bridge, make_node, pod, running, until


async def test_a_pod_gets_the_node_that_slurm_gives(bridge: Bridge, namespace: str) -> None:
    key = await bridge.create(pod(namespace, "one"))
    (found,) = await bridge.bound(key)
    job_id = int(found.metadata.labels[names.JOB_ID_LABEL])
    # The cache may know the job's id before it knows its nodes.
    ours = await until(lambda: (it := bridge.world.jobs.get(job_id)) and it.job.nodes and it)
    assert ours.job.nodes == found.metadata.annotations[names.POD_SLURM_NODE_ANNOTATION]
    assert found.spec.node_name == found.metadata.annotations[names.POD_NODE_ANNOTATION]
    assert ours.marker.uids == (found.metadata.uid,)
    assert ours.job.name == "one"
    assert marker.read(ours.job.admin_comment) == ours.marker
    of_pod = {"namespace": namespace, "kind": "Pod"}
    # A binding may be in the cache before it is answered.
    await until(lambda: bridge.counted(names.BIND_SECONDS, "_count") == 1)
    assert bridge.counted(names.POD_WAIT, "_count", **of_pod) == 1
    assert 0 <= bridge.counted(names.POD_WAIT, "_sum", **of_pod) < 60
    assert 0 < bridge.counted(names.BIND_SECONDS, "_sum") < 60
    assert bridge.counted(names.WAITING_GROUPS) == 0
    await until(lambda: bridge.counted(names.BRIDGE_JOBS, state="running") == 1)
    assert bridge.counted(names.BRIDGE_SLURM) == 1
    assert abs(bridge.counted(names.BRIDGE_LAST_CONTACT) - time.time()) < 60
    assert bridge.counted(names.BRIDGE_TOKEN_EXPIRY) > time.time()


async def test_pods_wait_for_one_another_when_slurm_is_full(
    bridge: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(5)]
    await until(lambda: sum(1 for key in keys if (it := bridge.world.pods.get(key)) and it.bound) == 4)
    (waiting,) = [key for key in keys if not (it := bridge.world.pods.get(key)) or not it.bound]
    message = await bridge.told(waiting, "SlurmPending")
    assert "waits because" in message
    assert bridge.counted(names.WAITING_GROUPS, namespace=namespace) == 1
    await until(lambda: bridge.counted(names.BRIDGE_JOBS, state="pending") == 1)
    assert bridge.counted(names.BRIDGE_JOBS, state="running") == 4
    await until(lambda: bridge.counted(names.POD_WAIT, "_count", namespace=namespace) == 4)
    slurm_with_external_nodes.command("true")


@pytest.mark.usefixtures("nodes")
async def test_autoscalers_see_pods_for_which_slurm_has_too_few_nodes_and_no_others(
    config: Config, slurm_with_external_nodes: SlurmBed, namespace: str
) -> None:
    """Cluster Autoscaler and Karpenter make machines for pods that are Unschedulable."""
    async with running(config, slurm_with_external_nodes, nodes_on_demand=True) as bridge:
        not_yet = {f"{names.JOB_ANNOTATIONS}begin": "2126-01-01T00:00:00Z"}
        later = await bridge.create(pod(namespace, "later", annotations=not_yet))
        await bridge.bound(*[await bridge.create(pod(namespace, f"p{it}")) for it in range(4)])
        waiting = await bridge.create(pod(namespace, "waiting"))
        assert "waits because" in await bridge.told(waiting, "Unschedulable")
        assert "BeginTime" in await bridge.told(later, "SlurmPending")


async def test_a_pod_for_which_no_node_is_free_leaves_no_failed_job(
    bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    """It is not asked for at once where that can only fail: accounting would show a failure that no pod had."""
    world = bridge.world
    await until(lambda: all("IDLE" in world.slurm_nodes[name].state for name in nodes))
    placed = await bridge.bound(*[await bridge.create(pod(namespace, f"p{it}")) for it in range(len(nodes))])
    ids = [int(it.metadata.labels[names.JOB_ID_LABEL]) for it in placed]
    await until(lambda: all((ours := world.jobs.get(job_id)) and ours.job.nodes for job_id in ids))
    late = await bridge.create(pod(namespace, "late"))
    await until(lambda: [it for it in world.jobs if it.marker.keys == (late,)])
    known = [(it, marker.read(it.admin_comment)) for it in await world.slurm.jobs()]
    assert [it.job_state for it, found in known if found and found.keys == (late,)] == [("PENDING",)]


async def test_a_pod_beside_a_queue_of_batch_jobs_leaves_no_failed_job(
    bridge: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    """Slurm lets no attempt overtake a batch job that waits, though that could not use the node that is free."""
    world, slurm = bridge.world, slurm_with_external_nodes
    batch = ("sbatch", "--parsable", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    jobs = [slurm.command(*batch).strip() for _ in range(2)]
    try:
        await until(lambda: sorted(world.states.get(job, ("",))[0] for job in jobs) == ["PENDING", "RUNNING"])
        (found,) = await bridge.bound(await bridge.create(pod(namespace, "one")))
        known = [(it, marker.read(it.admin_comment)) for it in await world.slurm.jobs()]
        uids = (found.metadata.uid,)
        assert [it.job_state for it, mark in known if mark and mark.uids == uids] == [("RUNNING",)]
    finally:
        slurm.command("scancel", *jobs)


async def test_a_slurm_that_starts_no_job_at_once_is_asked_for_that_only_once(
    config: Config,
    namespace: str,
    nodes: list[str],
    slurm_bed: Callable[..., SlurmBed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt would leave a failed job in accounting."""
    monkeypatch.setattr(submitter, "_BUSY_SECONDS", 0.0)
    defer = {"SchedulerParameters": "defer,sched_min_interval=10000,bf_interval=1"}
    slurm = slurm_bed("26.05", nodes=0, external_nodes=len(nodes), accounting=False, settings=defer)
    async with running(config, slurm) as bridge:
        for name in ("one", "two"):
            await bridge.bound(await bridge.create(pod(namespace, name)))
            # While another job waits, nobody tries.
            await until(lambda: ("PENDING",) not in bridge.world.states.values())
        states = sorted(it.job_state[0] for it in await bridge.world.slurm.jobs())
    assert states == ["FAILED", "RUNNING", "RUNNING"]


async def test_a_pod_that_claims_to_be_a_worker_redirects_nobody(
    config: Config, client: Client, namespace: str, nodes: list[str], slurm_with_external_nodes: SlurmBed
) -> None:
    for definition in crds.definitions():
        if definition["metadata"]["name"] == f"{NODESETS.plural}.{NODESETS.group}":
            await install(client, definition, manager=names.FIELD_MANAGER)
    spec = {"controllerRef": {"name": "slurm"}, "replicas": 0}
    nodeset = await client.create(NODESETS, {"metadata": {"namespace": namespace, "name": "w"}, "spec": spec})
    owner = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.name,
        "name": "w",
        "uid": nodeset.metadata.uid,
        "controller": True,
    }

    def worker(name: str, node: str, **changed: str) -> dict[str, Any]:
        owners = [{**owner, **changed}]
        return pod(namespace, name, cpu="0", schedulerName="", nodeName=node, ownerReferences=owners)

    host = f"host-{namespace}"
    await make_node(client, host)
    async with running(config, slurm_with_external_nodes) as bridge:
        forged = await bridge.create(worker("e1", "e2", uid="of-another"))
        await bridge.create(worker("w-0", host))
        await until(lambda: bridge.world.map.kube_name("w-0") == host)
        await until(lambda: bridge.world.pods.get(forged))
        assert bridge.world.map.kube_name("e1") == "e1"
        placed = await bridge.bound(*[await bridge.create(pod(namespace, f"p{it}")) for it in range(len(nodes))])
        given = [it.metadata.annotations[names.POD_SLURM_NODE_ANNOTATION] for it in placed]
        assert sorted(given) == nodes
        assert [it.spec.node_name for it in placed] == given
    await client.delete(NODES, host)
    await client.delete(NODESETS, nodeset.metadata.key)
