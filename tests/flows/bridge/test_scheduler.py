"""Pods placed by a real Slurm, one by one."""

from isthmus import names
from isthmus.domain.bridge import marker
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import Bridge, pod, until


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


async def test_pods_wait_for_one_another_when_slurm_is_full(
    bridge: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(5)]
    await until(lambda: sum(1 for key in keys if (it := bridge.world.pods.get(key)) and it.bound) == 4)
    (waiting,) = [key for key in keys if not (it := bridge.world.pods.get(key)) or not it.bound]
    message = await bridge.told(waiting, "SlurmPending")
    assert "waits because" in message
    slurm_with_external_nodes.command("true")
