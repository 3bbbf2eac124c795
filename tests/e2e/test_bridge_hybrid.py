"""The bridge on a Slurm without external nodes: jobs hold a place for pods on the nodes on which slurmd runs.

Pods and native jobs share nodes here, and so they stand in one queue for them.
"""

from collections.abc import Iterator

import pytest

from isthmus import names
from tests.bed.bridge_ground import BridgeGround
from tests.bed.waiting import eventually
from tests.e2e.bridge import EXAMPLES, Bridge, installed, job_id

NAMESPACE = "hybrid"


@pytest.fixture(scope="module")
def bridge(hybrid_ground: BridgeGround) -> Iterator[Bridge]:
    """The bridge in one process, with labels that say on which nodes slurmd runs."""
    nodes = {hybrid_ground.kubernetes_node(name): name for name in ("slurmd-0", "slurmd-1")}
    assert len(nodes) == 2
    for node, name in nodes.items():
        hybrid_ground.kubectl("label", "node", node, f"{names.NODE_NAME_LABEL}={name}")
    with installed(hybrid_ground, NAMESPACE, "allInOne=true", "replicaCount=1") as bridge:
        yield bridge
    hybrid_ground.kubectl("label", "node", *nodes, f"{names.NODE_NAME_LABEL}-")


@pytest.fixture
def quiet(bridge: Bridge) -> Bridge:
    """The bridge with nothing to do; whoever comes next, or `installed`, clears up after the test."""
    bridge.clear()
    return bridge


def test_pods_and_native_jobs_stand_in_one_queue(quiet: Bridge) -> None:
    native = quiet.slurm("sbatch", "--parsable", "--nodes=2", "--exclusive", "--wrap=sleep 300").strip()
    quiet.accounted(native, "RUNNING")
    quiet.run("behind")
    quiet.waits("behind", "Resources")
    quiet.slurm("scancel", native)
    pod = quiet.running("behind")
    slurm_node = pod["metadata"]["annotations"][names.POD_SLURM_NODE_ANNOTATION]
    assert pod["spec"]["nodeName"] == quiet.ground.kubernetes_node(slurm_node)
    assert pod["metadata"]["annotations"][names.POD_NODE_ANNOTATION] == pod["spec"]["nodeName"]
    second = quiet.slurm("sbatch", "--parsable", f"--nodelist={slurm_node}", "--exclusive", "--wrap=true").strip()
    eventually(
        lambda: "".join(quiet.queue(f"--jobs={second}")),
        "the native job to wait",
        holds=lambda it: "(Resources)" in it,
    )
    quiet.kubectl("delete", "pod", "behind")
    quiet.accounted(second, "COMPLETED")


def test_jobs_end_as_their_pods_do(quiet: Bridge) -> None:
    quiet.run("good", command="true")
    quiet.run("bad", command="false")
    good, bad = job_id(quiet.running("good", phase="Succeeded")), job_id(quiet.running("bad", phase="Failed"))
    quiet.accounted(good, "COMPLETED")
    quiet.accounted(bad, "FAILED")


def test_scancel_evicts_the_pod(quiet: Bridge) -> None:
    quiet.run("cancelled")
    quiet.slurm("scancel", job_id(quiet.running("cancelled")))
    quiet.gone("cancelled")


def test_a_gang_starts_together(quiet: Bridge) -> None:
    manifest = (EXAMPLES / "jobset.yaml").read_text().replace("namespace: slurm-bridge", f"namespace: {NAMESPACE}")
    quiet.kubectl("apply", "--filename=-", stdin=manifest)
    quiet.kubectl("wait", "--for=condition=Completed", "jobset/train", "--timeout=240s")
    members = quiet.pods()
    (job,) = {job_id(pod) for pod in members}
    assert len({pod["spec"]["nodeName"] for pod in members}) == len(members) == 2
    quiet.accounted(job, "COMPLETED")
