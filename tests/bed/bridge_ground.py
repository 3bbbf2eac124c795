"""The ground on which the bridge is tested end to end: the local cluster, the real controllers of JobSet and
LeaderWorkerSet, the PodGroup kind, and the Slurm of `examples/slurm-for-bridge.yaml`, ready to place pods.

    def test_a_job_is_placed(bridge_ground: BridgeGround) -> None:
        bridge_ground.slurm("squeue")
        bridge_ground.kubectl("get", "pods")
        … bridge_ground.rest_url, bridge_ground.token, bridge_ground.kubeconfig …

`bridge_ground` has Slurm 26.05, where Kubernetes nodes become external nodes, and `hybrid_ground` has 24.11, where
pods go to the nodes on which slurmd pods run. Both stand on the one cluster of the run, in namespaces of their own,
and go with it: a test cancels its jobs and deletes its pods and the Slurm nodes that it made.

`tests.e2e.bridge` puts the bridge itself on such ground.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from isthmus.local import crds, workloads
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import ClusterBed

EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm-for-bridge.yaml"
PARTITION = "slurm-bridge"
HYBRID = "24.11"
"""The version without external nodes."""

_PORT = 6820
_LIFESPAN = 86400
# Four daemons wait for one another, and the kubelet gives each of them two minutes to start.
_READY = "--timeout=600s"


@dataclass(frozen=True)
class BridgeGround:
    """A cluster with a Slurm in it, and how to reach both from the host."""

    cluster: ClusterBed
    namespace: str
    version: str
    rest_url: str
    token: str = field(repr=False)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.cluster.kubeconfig

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; a failure shows what it said."""
        return self.cluster.kubectl(*words, stdin=stdin)

    def slurm(self, *words: str) -> str:
        """Run a program where slurmctld runs: `slurm("sacct", "-P")`."""
        return self.cluster.exec("slurmctld-0", *words, namespace=self.namespace)

    def kubernetes_node(self, slurm_node: str) -> str:
        """The Kubernetes node on which the slurmd of a Slurm node runs."""
        return str(self.cluster.get(f"pod/{slurm_node}", self.namespace)["spec"]["nodeName"])


def manifest(version: str, namespace: str) -> str:
    """The example for another version or namespace, as its comments say how to change it."""
    text = EXAMPLE.read_text().replace("slurm:26.05", f"slurm:{version}")
    if version == HYBRID:
        # Pods go to the nodes of slurmd, which are as large as their machines and hold nothing for themselves.
        text = text.replace("CPUs=2 RealMemory=512 ", "")
        text = "".join(line for line in text.splitlines(keepends=True) if "resources: {limits" not in line)
    text = text.replace("namespace: slurm}", f"namespace: {namespace}}}")
    return text.replace("slurmd.slurm.svc", f"slurmd.{namespace}.svc")


def install_slurm(cluster: ClusterBed, version: str, *, namespace: str) -> BridgeGround:
    """Make keys, bring up Slurm, wait until jobs can run there, and mint the bridge's token."""
    there = f"--namespace={namespace}"
    keys = {"slurm.key": 1024, "jwt.key": 32, "database-password": 24}
    for document in (
        {"kind": "Namespace", "metadata": {"name": namespace}},
        _secret("slurm-keys", namespace, {name: secrets.token_hex(size // 2) for name, size in keys.items()}),
    ):
        cluster.apply(json.dumps({"apiVersion": "v1", **document}))
    cluster.apply(manifest(version, namespace))
    cluster.kubectl("rollout", "status", there, "statefulset/slurmd", _READY)
    cluster.kubectl("rollout", "status", there, "deployment/slurmrestd", _READY)
    address = cluster.kubectl("get", "service", there, "slurm-restapi", "-o", "jsonpath={.spec.clusterIP}")
    minted = cluster.exec(
        "slurmctld-0", "scontrol", "token", "username=slurm", f"lifespan={_LIFESPAN}", namespace=namespace
    )
    token = minted.strip().removeprefix("SLURM_JWT=")
    cluster.apply(
        json.dumps({"apiVersion": "v1", **_secret("slurm-bridge-token", namespace, {"auth-token": token})})
    )
    return BridgeGround(cluster, namespace, version, f"http://{address}:{_PORT}", token)


def _secret(name: str, namespace: str, content: dict[str, str]) -> dict[str, object]:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": content}


def remove_slurm(ground: BridgeGround) -> None:
    """Remove a Slurm and all its volumes, without waiting for it."""
    ground.kubectl("delete", "namespace", ground.namespace, "--wait=false")


@pytest.fixture(scope="session")
def workload_addons(cluster: ClusterBed) -> ClusterBed:
    """The cluster, with JobSet, LeaderWorkerSet and PodGroup."""
    workloads.install(cluster.cluster, [workloads.ADDONS[name] for name in crds.DEFINITIONS], PlainProgress())
    return cluster


@pytest.fixture(scope="session")
def bridge_ground(workload_addons: ClusterBed) -> Iterator[BridgeGround]:
    """Slurm 26.05 in the cluster, for external nodes and jobs."""
    ground = install_slurm(workload_addons, "26.05", namespace="slurm")
    yield ground
    remove_slurm(ground)


@pytest.fixture(scope="session")
def hybrid_ground(workload_addons: ClusterBed) -> Iterator[BridgeGround]:
    """Slurm 24.11 in the cluster, for placeholder jobs on nodes that have a slurmd."""
    ground = install_slurm(workload_addons, HYBRID, namespace="slurm-hybrid")
    yield ground
    remove_slurm(ground)
