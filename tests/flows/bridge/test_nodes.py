"""Nodes of a real API server and of a real Slurm, kept in step both ways."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from isthmus import names
from isthmus.bridge import policies
from isthmus.bridge.nodes.actions import NodeActions
from isthmus.domain.bridge import noderecord
from isthmus.domain.bridge.noderules import Delete, Drain, Undrain
from isthmus.errors import Wait
from isthmus.kube.client import Client
from isthmus.kube.config import Config, load
from isthmus.kube.crd import install
from isthmus.kube.recorder import Recorder
from isthmus.model.node import NODES
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import NodeChange
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import until
from tests.flows.bridge.nodes_bed import (
    EXTERNAL,
    Nodes,
    bed,
    make_kube_node,
    make_many,
    mark_of,
    name,
    ready_condition,
    resize,
    running_nodes,
    time_registration,
)
from tests.flows.slurm.helpers import QUICK

__all__ = ["bed", "name"]

pytestmark = pytest.mark.long

TTL = "node.alpha.kubernetes.io/ttl"
CORDONED = "slurm-bridge: Corresponding Kubernetes node ({}) is unschedulable"


@pytest.fixture
async def nodes(config: Config, name: str, bed: SlurmBed) -> AsyncIterator[Nodes]:
    """A controller, which is gone before the node is removed: otherwise it might make the node anew."""
    del name
    async with running_nodes(config, bed, grace=1.0) as running:
        yield running


# Registration


async def test_a_labelled_node_becomes_an_external_node_of_its_size(nodes: Nodes, name: str) -> None:
    await make_kube_node(
        nodes.kube,
        name,
        annotations={names.NODE_PARTITIONS_ANNOTATION: "main"},
        address="198.18.0.77",
        gpu="2",
        cpu="3900m",
    )
    made = await nodes.registered(name)
    assert {"IDLE", "EXTERNAL"} <= set(made.state)
    assert (made.cpus, made.gres, made.features) == (3, "gpu:2", ("main",))
    assert (made.address, made.hostname, made.reason) == ("198.18.0.77", name, "")
    assert noderecord.cluster_of(made) == nodes.world.cluster
    await nodes.told(name, "SlurmNodeRegistered")
    await nodes.settled()
    assert nodes.mismatched == 0
    await nodes.busy(name, tres_per_node="gres/gpu:2")


async def test_weakness_30_memory_is_what_kubernetes_can_give_and_not_what_is_built_in(
    nodes: Nodes, name: str
) -> None:
    await make_kube_node(nodes.kube, name, memory="1073741823")
    assert (await nodes.registered(name)).real_memory == 1023


async def test_a_node_has_the_name_that_its_label_gives_it(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name, labels={**EXTERNAL, names.NODE_NAME_LABEL: f"s{name}"})
    made = await nodes.registered(f"s{name}")
    assert made.hostname == name
    await nodes.kube.delete(NODES, name)
    await nodes.gone(f"s{name}")


async def test_an_unknown_partition_is_told_and_mended_by_correcting_it(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name, annotations={names.NODE_PARTITIONS_ANNOTATION: "nowhere"})
    await nodes.told(name, "UnknownPartition")
    assert nodes.slurm(name) is None
    await until(lambda: nodes.mismatched == 1)
    await nodes.kube.merge_patch(NODES, name, annotation(names.NODE_PARTITIONS_ANNOTATION, "main"))
    assert (await nodes.registered(name)).features == ("main",)
    await until(lambda: nodes.mismatched == 0)


async def test_what_slurm_refuses_is_told_and_others_are_registered(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name, annotations={names.NODE_TOPOLOGY_ANNOTATION: "nowhere:s1"})
    await nodes.told(name, "RefusedBySlurm")
    assert nodes.slurm(name) is None
    await until(lambda: nodes.mismatched == 1)
    await nodes.kube.merge_patch(NODES, name, annotation(names.NODE_TOPOLOGY_ANNOTATION, None))
    await nodes.registered(name)


async def test_features_and_address_change_in_place_while_a_job_runs(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    await nodes.busy(name)
    await nodes.world.slurm.update_node(name, NodeChange(features=("theirs",), features_act=("theirs",)))
    await nodes.kube.merge_patch(NODES, name, annotation(names.NODE_PARTITIONS_ANNOTATION, "main"))
    addresses = {"addresses": [{"type": "InternalIP", "address": "198.18.0.99"}]}
    await nodes.kube.merge_patch(NODES, name, {"status": addresses}, subresource="status")
    await nodes.registered(name, address="198.18.0.99")
    await until(lambda: set(now.features) == {"theirs", "main"} if (now := nodes.slurm(name)) else False)
    await nodes.kube.merge_patch(NODES, name, annotation(names.NODE_PARTITIONS_ANNOTATION, None))
    await until(lambda: now.features == ("theirs",) if (now := nodes.slurm(name)) else False)
    assert "MIXED" in (await nodes.world.slurm.node(name)).state


async def test_a_lost_answer_makes_no_second_node_and_no_node_without_an_owner(
    config: Config, client: Client, bed: SlurmBed, faults: Faults, name: str
) -> None:
    async with faults.in_front_of(bed.rest_url) as proxy:
        proxy.lose_answer(method="POST", path="*/new/node*", times=1)
        proxy.respond(500, method="POST", path="*/nodes*", times=1)
        async with running_nodes(config, proxy.url, key=bed.jwt_key) as nodes:
            await make_kube_node(client, name)
            made = await nodes.registered(name)
            assert noderecord.cluster_of(made) == nodes.world.cluster
            await client.delete(NODES, name)
            await nodes.gone(name)


# Size


async def test_a_resized_idle_node_is_made_anew(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name, cpus=4)
    await resize(nodes.kube, name, cpu="6", gpu="1")
    made = await nodes.registered(name, cpus=6)
    assert made.gres == "gpu:1"
    await nodes.in_state(name, "IDLE", without="DRAIN")


async def test_weakness_16_a_resized_busy_node_stays_drained_until_its_job_ends(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    job = await nodes.busy(name)
    await resize(nodes.kube, name, cpu="6")
    draining = await nodes.in_state(name, "MIXED", "DRAIN")
    assert "has changed its size" in draining.reason
    await nodes.settled()
    assert nodes.did("undrain") == 0
    assert nodes.mismatched == 1
    assert (await nodes.world.slurm.node(name)).cpus == 4
    await nodes.world.slurm.cancel_job(job)
    await nodes.registered(name, cpus=6)
    await nodes.in_state(name, "IDLE", without="DRAIN")
    assert nodes.did("undrain") == 0
    await until(lambda: nodes.mismatched == 0)


async def test_weakness_16_gres_that_slurm_does_not_know_are_no_reason_to_make_a_node_for_ever(
    config: Config, client: Client, bed: SlurmBed, name: str
) -> None:
    async with running_nodes(config, bed, gres={"nvidia.com/gpu": "unheardof"}) as nodes:
        await make_kube_node(client, name, gpu="2")
        assert (await nodes.registered(name)).gres == ""
        await nodes.settled()
        assert (nodes.did("register"), nodes.did("delete")) == (1, 0)
        assert nodes.mismatched == 1


# Going


@pytest.mark.parametrize("how", ["node deleted", "label removed"])
async def test_weakness_16_a_node_that_leaves_kubernetes_leaves_slurm_when_its_job_ends(
    nodes: Nodes, name: str, how: str
) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    job = await nodes.busy(name)
    if how == "node deleted":
        await nodes.kube.delete(NODES, name)
    else:
        await nodes.kube.merge_patch(NODES, name, {"metadata": {"labels": {names.EXTERNAL_NODE_LABEL: None}}})
    draining = await nodes.in_state(name, "MIXED", "DRAIN")
    assert draining.reason == f"slurm-bridge: removing external node {name}"
    await nodes.world.slurm.cancel_job(job)
    await nodes.gone(name)


async def test_weakness_16_a_node_deleted_while_nobody_looked_leaves_slurm_too(
    config: Config, client: Client, bed: SlurmBed, name: str
) -> None:
    async with running_nodes(config, bed) as nodes:
        await make_kube_node(client, name)
        await nodes.registered(name)
    await client.delete(NODES, name)
    async with running_nodes(config, bed) as nodes:
        await nodes.gone(name)


async def test_two_clusters_on_one_slurm_leave_each_others_nodes_alone(
    nodes: Nodes, bed: SlurmBed, own_control_plane: ControlPlaneBed, name: str
) -> None:
    other_config = load(own_control_plane.kubeconfig)
    async with Client(other_config) as other_client:
        await install(other_client, policies.crd(), manager=names.FIELD_MANAGER)
        async with running_nodes(other_config, bed) as other:
            await make_kube_node(nodes.kube, name, address="198.18.0.1")
            await nodes.registered(name)
            await make_kube_node(other.kube, name, address="198.18.0.2")
            await other.told(name, "NameTaken")
            await other.cordon(name)
            await other.kube.delete(NODES, name)
            mine = f"other-{name}"
            await make_kube_node(other.kube, mine, address="198.18.0.3")
            made = await other.registered(mine)
            assert noderecord.cluster_of(made) == other.world.cluster != nodes.world.cluster
            await nodes.settled()
            await other.settled()
            kept = await nodes.world.slurm.node(name)
            assert (noderecord.cluster_of(kept), kept.address) == (nodes.world.cluster, "198.18.0.1")
            assert "DRAIN" not in kept.state
            await other.kube.delete(NODES, mine)
            await other.gone(mine)


# Drain and cordon


async def test_a_cordon_drains_and_its_end_resumes(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    await nodes.cordon(name)
    drained = await nodes.in_state(name, "DRAIN")
    assert drained.reason == CORDONED.format(name)
    await nodes.cordon(name, shut=False)
    await nodes.in_state(name, "IDLE", without="DRAIN")
    assert not mark_of(nodes.node(name) or pytest.fail("gone"))


async def test_a_machine_that_an_autoscaler_removes_is_drained_first_and_resumed_if_it_stays(
    nodes: Nodes, name: str
) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    job = await nodes.busy(name)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    await nodes.kube.merge_patch(NODES, name, {"spec": {"taints": [taint]}})
    drained = await nodes.in_state(name, "DRAIN")
    assert drained.reason == (
        f"slurm-bridge: Corresponding Kubernetes node ({name}) is being removed by Cluster Autoscaler"
    )
    assert {"ALLOCATED", "MIXED"} & set(drained.state), "its job goes on"
    await nodes.kube.merge_patch(NODES, name, {"spec": {"taints": None}})
    await nodes.in_state(name, without="DRAIN")
    await nodes.world.slurm.cancel_job(job)


async def test_jobs_that_come_and_go_do_not_hold_up_a_drain(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    slurm = nodes.world.slurm
    # What the last list of nodes showed, and what is so no more.
    busy = _in_use(await slurm.node(name))
    recorder = Recorder(nodes.kube, controller="test", instance="test")
    actions = NodeActions(nodes.kube, slurm, recorder=recorder, metrics=Metrics())
    assert await actions.act(None, busy, [Drain(name, "bad disk")]) is None
    drained = await slurm.node(name)
    assert "DRAIN" in drained.state
    with pytest.raises(Wait):  # which was drained meanwhile, and not by the reader
        await actions.act(None, busy, [Undrain(name)])
    with pytest.raises(Wait):  # only what is known to be idle may go
        await actions.act(None, _in_use(drained), [Delete(name)])
    await actions.act(None, drained, [Undrain(name)])


def _in_use(node: SlurmNode) -> SlurmNode:
    assert "IDLE" in node.state
    return msgspec.structs.replace(node, state=tuple("MIXED" if it == "IDLE" else it for it in node.state))


async def test_a_drain_in_slurm_cordons_and_its_end_uncordons(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    for state in ("DRAIN", "DOWN", "FAIL"):
        await nodes.tell(name, state, "bad disk")
        cordoned = await nodes.cordoned(name, mark="by slurm: bad disk")
        assert "in Slurm" in mark_of(cordoned)
        await nodes.tell(name, "RESUME")
        await nodes.open(name)
    await nodes.settled()
    assert nodes.did("drain") == 0
    assert nodes.did("cordon") == nodes.did("uncordon") == 3
    await nodes.told(name, "CordonedForSlurm")


async def test_a_drain_of_somebody_else_survives_cordon_and_uncordon(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    await nodes.cordon(name)
    await nodes.in_state(name, "DRAIN")
    await nodes.tell(name, "DRAIN", "bad disk")
    await nodes.cordon(name, shut=False)
    # The administrator's word now counts in Kubernetes, too.
    await nodes.cordoned(name, mark="bad disk")
    assert (await nodes.world.slurm.node(name)).reason == "bad disk"
    # Who opens the node nevertheless is obeyed.
    await nodes.cordon(name, shut=False)
    await until(lambda: "by hand" in mark_of(node) if (node := nodes.node(name)) else False)
    await nodes.settled()
    node = nodes.node(name)
    assert node
    assert not node.spec.unschedulable
    await nodes.tell(name, "RESUME")
    await nodes.open(name)


async def test_a_cordon_of_people_is_not_lifted_when_slurm_resumes(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name)
    await nodes.registered(name)
    await nodes.cordon(name)
    await nodes.in_state(name, "DRAIN")
    await nodes.tell(name, "RESUME")
    # Kubernetes still does not want it used.
    await until(lambda: nodes.did("drain") == 2)
    await nodes.settled()
    assert (await nodes.world.slurm.node(name)).reason == CORDONED.format(name)
    node = nodes.node(name)
    assert node
    assert node.spec.unschedulable


async def test_weakness_16_a_node_that_is_not_ready_is_drained_and_taken_back(nodes: Nodes, name: str) -> None:
    await make_kube_node(nodes.kube, name, ready="False")
    await nodes.settled()
    assert nodes.slurm(name) is None
    await nodes.kube.merge_patch(NODES, name, {"status": ready_condition("True")}, subresource="status")
    await nodes.registered(name)
    await nodes.kube.merge_patch(NODES, name, {"status": ready_condition("Unknown")}, subresource="status")
    drained = await nodes.in_state(name, "DRAIN")
    assert drained.reason.endswith("is not ready")
    await nodes.kube.merge_patch(NODES, name, {"status": ready_condition("True")}, subresource="status")
    await nodes.in_state(name, "IDLE", without="DRAIN")


async def test_what_happens_while_slurmctld_is_away_is_done_when_it_is_back(
    config: Config, client: Client, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings=QUICK)
    made = [f"r{uuid4().hex[:6]}-{number}" for number in range(3)]
    async with running_nodes(config, bed) as nodes:
        for name in made:
            await make_kube_node(client, name)
            await nodes.registered(name)
        await nodes.tell(made[2], "DRAIN", "bad disk")
        await nodes.cordoned(made[2], mark="bad disk")
        await asyncio.to_thread(bed.stop, "slurmctld")
        await until(lambda: not nodes.world.in_touch)
        await nodes.cordon(made[0])
        await client.delete(NODES, made[1])
        await asyncio.to_thread(bed.start, "slurmctld")
        await nodes.in_state(made[0], "DRAIN")
        await nodes.gone(made[1])
        await nodes.settled()
        still = await nodes.cordoned(made[2], mark="bad disk")
        assert still.spec.unschedulable
        assert nodes.did("register") == 3
    for name in (made[0], made[2]):
        await client.delete(NODES, name)


async def test_a_node_with_a_slurmd_is_followed_but_never_made_or_deleted(
    config: Config, client: Client, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed("24.11", nodes=2, accounting=False)
    kube_name = f"hybrid-{uuid4().hex[:6]}"
    async with running_nodes(config, bed) as nodes:
        await make_kube_node(client, kube_name, labels={names.NODE_NAME_LABEL: "n1"})
        await nodes.cordon(kube_name)
        drained = await nodes.in_state("n1", "DRAIN")
        assert drained.reason == CORDONED.format(kube_name)
        await nodes.cordon(kube_name, shut=False)
        await nodes.in_state("n1", "IDLE", without="DRAIN")
        await nodes.tell("n1", "DRAIN", "bad disk")
        await nodes.cordoned(kube_name, mark="bad disk")
        await nodes.tell("n1", "RESUME")
        await nodes.open(kube_name)
        # Slurm 24.11 cannot have external nodes.
        await make_kube_node(client, f"{kube_name}-x")
        await nodes.told(f"{kube_name}-x", "CannotRegister")
        await client.delete(NODES, f"{kube_name}-x")
        await client.delete(NODES, kube_name)
        await nodes.settled()
        assert {"n1", "n2"} <= set(nodes.world.slurm_nodes)
        assert (nodes.did("register"), nodes.did("delete"), nodes.did("update")) == (0, 0, 0)


# Cost


async def test_weakness_07_heartbeats_cause_no_requests(
    config: Config, client: Client, bed: SlurmBed, faults: Faults, name: str
) -> None:
    async with (
        faults.in_front_of(bed.rest_url) as proxy,
        running_nodes(config, proxy.url, key=bed.jwt_key) as nodes,
    ):
        await make_kube_node(client, name)
        await nodes.registered(name)
        stranger = f"{name}-stranger"  # Slurm does not know it, and nobody asks Slurm about it.
        await make_kube_node(client, stranger, labels={})
        await nodes.told(name, "SlurmNodeRegistered")
        # A controller of Kubernetes annotates new nodes when it gets round to it.
        await until(lambda: all(TTL in annotations_of(nodes, which) for which in (name, stranger)))
        await nodes.settled()
        await until(lambda: not len(nodes.sync.controller.queue))
        wakes = nodes.sync.controller._metrics.results["success"]._value
        before = (len(nodes.writes), proxy.count(method="POST"), proxy.count(path="*/node/*"), wakes.get())
        for beat in range(5):
            heartbeat: dict[str, Any] = ready_condition("True")
            heartbeat["conditions"][0]["lastHeartbeatTime"] = f"2026-01-01T00:00:0{beat}Z"
            del heartbeat["conditions"][0]["lastTransitionTime"]
            for which in (name, stranger):
                await beat_of(client, which, heartbeat)
        version = (await client.get(NODES, stranger)).metadata.resource_version
        await until(lambda: (node := nodes.node(stranger)) and node.metadata.resource_version == version)
        await nodes.settled()
        after = (len(nodes.writes), proxy.count(method="POST"), proxy.count(path="*/node/*"), wakes.get())
        assert after == before
        await client.delete(NODES, stranger)


async def test_weakness_29_the_taint_is_a_setting_and_goes_with_it(
    config: Config, client: Client, bed: SlurmBed, name: str
) -> None:
    def effects(nodes: Nodes) -> list[str]:
        node = nodes.node(name)
        return [it.effect for it in node.spec.taints if it.key == names.MANAGED_TAINT] if node else []

    def has(nodes: Nodes, *wanted: str) -> bool:
        return effects(nodes) == list(wanted)

    await make_kube_node(client, name)
    await client.merge_patch(NODES, name, {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    async with running_nodes(config, bed) as nodes:
        await nodes.registered(name)
        await nodes.settled()
        assert effects(nodes) == []
    for effect in ("NoExecute", "NoSchedule"):
        async with running_nodes(config, bed, taint=effect) as nodes:
            await until(partial(has, nodes, effect))
    async with running_nodes(config, bed) as nodes:
        await until(partial(has, nodes))
        node = nodes.node(name)
        assert node
        assert [it.key for it in node.spec.taints] == ["mine"]


async def test_hundreds_of_nodes_are_registered_by_few_requests(
    config: Config, client: Client, slurm_bed: Callable[..., SlurmBed], faults: Faults
) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False)
    made = await make_many(client, f"many-{uuid4().hex[:6]}-", 300)
    async with faults.in_front_of(bed.rest_url) as proxy:
        await time_registration(config, proxy.url, made, key=bed.jwt_key)
        # Each of them takes slurmctld the longer the more nodes there are, and a machine its own time.
        assert proxy.count(method="POST", path="*/new/node*") <= 10
    async with asyncio.TaskGroup() as group:
        for name in made:
            group.create_task(client.delete(NODES, name))


def annotations_of(nodes: Nodes, name: str) -> Mapping[str, str]:
    node = nodes.node(name)
    return node.metadata.annotations if node else {}


async def beat_of(client: Client, name: str, heartbeat: dict[str, Any]) -> None:
    """Send a heartbeat as a kubelet does: the condition stays, its time changes."""
    node = await client.get(NODES, name)
    moment = node.status.conditions[0].last_transition_time
    assert moment
    heartbeat["conditions"][0]["lastTransitionTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    await client.merge_patch(NODES, name, {"status": heartbeat}, subresource="status")


def annotation(name: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}
