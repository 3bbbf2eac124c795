"""What a node is in Slurm when others hold part of it, on a real API server and a real Slurm."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge import held
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.crd import install
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.slinky import NODESETS
from isthmus.operator import crds
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import pod, until
from tests.flows.bridge.nodes_bed import EXTERNAL, Nodes, bed, make_kube_node, name, running_nodes

__all__ = ["bed", "name"]

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
async def nodes(config: Config, name: str, namespace: str, bed: SlurmBed) -> AsyncIterator[Nodes]:
    del name, namespace
    async with running_nodes(config, bed, grace=1.0, feature_labels=(ZONE,)) as running:
        yield running


@pytest.fixture
async def nodeset(client: Client, namespace: str) -> dict[str, Any]:
    """What a worker pod says of the NodeSet that owns it; there before anybody looks for such."""
    (made,) = [it for it in crds.definitions() if it["metadata"]["name"] == "nodesets.slinky.slurm.net"]
    await install(client, made, manager=names.FIELD_MANAGER)
    body = {"metadata": {"namespace": namespace, "name": "n"}, "spec": {"controllerRef": {"name": "slurm"}}}
    found = await client.create(NODESETS, body)
    return {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.name,
        "name": "n",
        "uid": found.metadata.uid,
        "controller": True,
    }


async def others(nodes: Nodes, namespace: str, node: str, name: str = "daemon", **asked: Any) -> Key:
    """Put a pod on a node that Slurm did not place there, and wait until the bridge has seen it."""
    body = pod(namespace, name, schedulerName="somebody-else", nodeName=node, **asked)
    key = (await nodes.kube.create(PODS, body)).metadata.key
    await until(lambda: nodes.world.pods.get(key))
    return key


async def test_a_node_is_registered_without_what_others_hold(nodes: Nodes, namespace: str, name: str) -> None:
    await make_kube_node(nodes.kube, name, labels={})
    await others(nodes, namespace, name, cpu="300m", memory="95Mi")
    await nodes.kube.merge_patch(NODES, name, {"metadata": {"labels": EXTERNAL}})
    await nodes.registered(name, cpus=3, real_memory=900)
    assert nodes.did("register") == 1


async def test_a_daemon_that_comes_resizes_an_idle_node_and_drains_no_busy_one(
    nodes: Nodes, namespace: str, name: str
) -> None:
    await make_kube_node(nodes.kube, name, cpu="64", memory="64000Mi")
    await nodes.registered(name, cpus=64)
    first = await others(nodes, namespace, name, cpu="200m")
    await nodes.registered(name, cpus=63, real_memory=64000 - 640)
    job = await nodes.busy(name)
    await others(nodes, namespace, name, name="second", cpu="1500m", memory="640Mi")
    await nodes.settled()
    assert "DRAIN" not in (await nodes.world.slurm.node(name)).state
    await nodes.world.slurm.cancel_job(job)
    await nodes.registered(name, cpus=62, real_memory=64000 - 2 * 640)
    # It goes, but another may take its place: that there is more is believed later.
    await nodes.kube.delete(PODS, first, grace=0)
    await until(lambda: nodes.world.pods.get(first) is None)
    await nodes.settled()
    assert nodes.did("register") == 3


async def test_much_less_room_drains_a_busy_node_until_it_has_its_size(
    nodes: Nodes, namespace: str, name: str
) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name, cpus=4)
    job = await nodes.busy(name)
    await others(nodes, namespace, name, cpu="2")
    await nodes.in_state(name, "MIXED", "DRAIN")
    await nodes.world.slurm.cancel_job(job)
    await nodes.registered(name, cpus=2)
    await nodes.in_state(name, "IDLE", without="DRAIN")


async def test_a_node_grows_when_others_have_been_gone_for_a_while(
    nodes: Nodes, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "PATIENCE", 0.3)
    await make_kube_node(nodes.kube, name)
    key = await others(nodes, namespace, name, cpu="2")
    await nodes.registered(name, cpus=2)
    await nodes.kube.delete(PODS, key, grace=0)
    await nodes.registered(name, cpus=4)


async def test_a_machine_is_counted_once_beside_its_worker(
    nodeset: dict[str, Any], nodes: Nodes, namespace: str, name: str, bed: SlurmBed
) -> None:
    """The worker's slurmd gives Slurm all CPUs of the machine, whatever its pod requests."""
    worker = await nodes.in_state("n1", "IDLE")
    cpus = int(worker.cpus)
    await make_kube_node(nodes.kube, name, cpu=str(cpus + 3), memory="1000000Mi")
    await nodes.registered(name, cpus=cpus + 3)
    body: dict[str, Any] = {"hostname": "n1", "ownerReferences": [nodeset]}
    key = await others(nodes, namespace, name, name="n1", cpu="100m", **body)
    memory = 1000000 - -(-int(nodes.world.slurm_nodes["n1"].real_memory) // 10000) * 10000
    await nodes.registered(name, cpus=3, real_memory=memory)
    # With less than the worker has, nothing is left: it is refused, with what to do.
    status = {"allocatable": {"cpu": str(cpus)}}
    await nodes.kube.merge_patch(NODES, name, {"status": status}, subresource="status")
    await nodes.gone(name)
    await nodes.told(name, "CannotRegister")
    assert "n1" in bed.command("sinfo", "-h", "-N", "-o", "%N")
    await nodes.kube.delete(PODS, key, grace=0)


async def test_labels_that_were_chosen_are_features_in_slurm(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name, labels={**EXTERNAL, ZONE: "east-1"})
    await nodes.registered(name, features=("east-1",))
    await nodes.kube.merge_patch(NODES, name, {"metadata": {"labels": {ZONE: "west"}}})
    await nodes.registered(name, features=("west",))
    await nodes.busy(name, constraints="west")


async def test_slurm_changes_the_size_of_no_node_in_place(nodes: Nodes, name: str, bed: SlurmBed) -> None:
    """The reason for making nodes anew: see docs/decisions. When this fails, there may be a better way."""
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    for setting in ("CPUs=2", "RealMemory=500", "CoreSpecCount=1", "MemSpecLimit=100"):
        said = bed.command("sh", "-c", f"scontrol update nodename={name} {setting} 2>&1 || true")
        assert "Update of this parameter is not supported" in said
    shown = bed.scontrol("show", "--oneliner", "node", name).split()
    assert {"CPUTot=4", "CPUEfctv=4", "RealMemory=1000"} <= set(shown)
