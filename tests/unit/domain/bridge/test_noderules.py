"""Decisions about single nodes, and that they come to rest whatever happens to the node."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import names
from isthmus.domain.bridge import noderecord
from isthmus.domain.bridge.devices import NodeDevices, inventory
from isthmus.domain.bridge.noderecord import Record
from isthmus.domain.bridge.noderules import (
    Action,
    Cordon,
    Decision,
    Delete,
    Drain,
    Mark,
    Register,
    Report,
    Retaint,
    Rules,
    SlurmCapabilities,
    Uncordon,
    Undrain,
    Update,
    decide,
)
from isthmus.domain.health import reasons as health_reasons
from isthmus.errors import Terminal
from isthmus.model.dra import ResourceSlice
from isthmus.model.meta import Condition, ConditionStatus, ObjectMeta
from isthmus.model.node import Node, NodeAddress, NodeSpec, NodeStatus, Taint
from isthmus.model.slurm import Node as SlurmNode

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RULES = Rules(cluster="c1")
CAPABLE = SlurmCapabilities(partitions=frozenset({"main", "gpu"}))
CORDONED = "slurm-bridge: Corresponding Kubernetes node (k1) is unschedulable"
NOT_READY = "slurm-bridge: Corresponding Kubernetes node (k1) is not ready"
IDLE = ("IDLE", "EXTERNAL", "DYNAMIC_NORM")


def kube(
    *,
    external: bool = True,
    shut: bool = False,
    mark: str = "",
    ready: ConditionStatus = "True",
    since: float = 3600,
    allocatable: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    address: str = "198.18.0.1",
) -> Node:
    marks = {names.NODE_CORDON_ANNOTATION: mark} if mark else {}
    return Node(
        ObjectMeta(
            name="k1",
            labels={names.EXTERNAL_NODE_LABEL: ""} if external else {},
            annotations={**marks, **(annotations or {})},
        ),
        NodeSpec(unschedulable=shut, taints=taints),
        NodeStatus(
            allocatable=allocatable or {"cpu": "3920m", "memory": "4000Mi", "nvidia.com/gpu": "2"},
            capacity={"cpu": "4", "memory": "4096Mi", "nvidia.com/gpu": "2"},
            conditions=(Condition("Ready", ready, last_transition_time=NOW - timedelta(seconds=since)),),
            addresses=(NodeAddress("Hostname", "k1"), NodeAddress("InternalIP", address)),
        ),
    )


def wanted(node: Node | None = None) -> noderecord.Wanted:
    return noderecord.describe(node or kube(), "s1", cluster="c1")


def slurm(state: tuple[str, ...] = IDLE, reason: str = "", **changes: Any) -> SlurmNode:
    node = SlurmNode(
        "s1",
        state=state,
        reason=reason,
        address="198.18.0.1",
        hostname="k1",
        cpus=3,
        real_memory=4000,
        gres="gpu:2",
        extra=wanted().record.write(),
    )
    return msgspec.structs.replace(node, **changes)


def hybrid(state: tuple[str, ...] = ("IDLE",), reason: str = "", **changes: Any) -> SlurmNode:
    return slurm(state, reason, extra="", **changes)


def drained(*more: str) -> tuple[str, ...]:
    return (*IDLE, "DRAIN", *more)


def decided(
    k: Node | None, s: SlurmNode | None, *, rules: Rules = RULES, capabilities: SlurmCapabilities = CAPABLE
) -> Decision:
    return decide(k, s, name="s1", rules=rules, now=NOW, capabilities=capabilities)


def actions(k: Node | None, s: SlurmNode | None, *, rules: Rules = RULES) -> tuple[Action, ...]:
    return decided(k, s, rules=rules).actions


# Registration


def test_weakness_30_a_node_promises_what_is_allocatable_and_no_more() -> None:
    record = wanted().record
    assert (record.cpus, record.memory, record.gres) == (3, 4000, "gpu:2")


def test_a_labelled_node_is_registered() -> None:
    assert actions(kube(), None) == (Register(wanted()),)
    assert actions(kube(external=False), None) == ()


def test_a_registered_node_is_left_alone() -> None:
    assert decided(kube(), slurm()) == Decision()


def test_a_node_that_was_never_ready_is_not_registered_yet() -> None:
    assert actions(kube(ready="False"), None) == ()


def test_a_cordoned_node_is_registered_and_drained_at_once() -> None:
    assert actions(kube(shut=True), None) == (Register(wanted()), Drain("s1", CORDONED))


def test_the_line_makes_many_nodes_and_says_whose_they_are() -> None:
    one = wanted(kube(annotations={names.NODE_PARTITIONS_ANNOTATION: "gpu, main"}))
    two = msgspec.structs.replace(one, name="s2", address="198.18.0.2", hostname="k2")
    assert noderecord.line([one, two]).render() == (
        "NodeName=s1,s2 NodeAddr=198.18.0.1,198.18.0.2 NodeHostname=k1,k2 "
        "Sockets=1 CoresPerSocket=3 ThreadsPerCore=1 CPUs=3 RealMemory=4000 State=EXTERNAL "
        'Reason="slurm-bridge: registered by Kubernetes cluster c1" '
        "Feature=gpu,main Gres=gpu:2 GresConf=count=2,name=gpu"
    )


def test_all_devices_become_gres() -> None:
    node = kube(
        allocatable={
            "cpu": "4",
            "memory": "1Gi",
            "amd.com/gpu": "1",
            "nvidia.com/gpu": "2",
            "nvidia.com/mig-1g.5gb": "7",
            "example.com/nic": "2",
            "example.com/unknown": "9",
        }
    )
    made = noderecord.describe(node, "s1", cluster="c1", gres={"example.com/nic": "nic:fast"})
    assert made.record.gres == "gpu:3,gpu:mig-1g.5gb:7,nic:fast:2"
    assert noderecord.line([made]).get("GresConf") == (
        "count=3,name=gpu+count=7,name=gpu,type=mig-1g.5gb+count=2,name=nic,type=fast"
    )


def test_chosen_labels_become_features() -> None:
    node = msgspec.structs.replace(kube(), metadata=ObjectMeta(name="k1", labels={"zone": "eu-1a", "other": "x"}))
    made = noderecord.describe(node, "s1", cluster="c1", feature_labels=("zone", "missing"))
    assert made.record.features == ("eu-1a",)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (kube(), "s1 State=DOWN"),
        (kube(), "s[1-100]"),
        (kube(), ""),
        (kube(annotations={names.NODE_TOPOLOGY_ANNOTATION: "a:b\nNodeName=x"}), "s1"),
        (kube(annotations={names.NODE_TOPOLOGY_ANNOTATION: 'a" State="DOWN'}), "s1"),
        (kube(annotations={names.NODE_PARTITIONS_ANNOTATION: "main Weight=7"}), "s1"),
        (kube(address="k1.example"), "s1"),
        (kube(allocatable={"cpu": "500m", "memory": "1Gi"}), "s1"),
        (kube(allocatable={"cpu": "many", "memory": "1Gi"}), "s1"),
    ],
)
def test_what_cannot_stand_in_a_line_is_told_and_not_sent(node: Node, name: str) -> None:
    with pytest.raises(Terminal):
        noderecord.describe(node, name, cluster="c1")
    decision = decide(node, None, name=name, rules=RULES, now=NOW, capabilities=CAPABLE)
    assert decision.actions == ()
    assert [it.reason for it in decision.complaints] in (["CannotRegister"], ["UnknownPartition"])


def test_a_partition_that_slurm_does_not_have_is_a_complaint_and_no_loop() -> None:
    node = kube(annotations={names.NODE_PARTITIONS_ANNOTATION: "main,nowhere"})
    decision = decided(node, None)
    assert decision.actions == ()
    assert [it.reason for it in decision.complaints] == ["UnknownPartition"]
    assert "nowhere" in decision.complaints[0].note
    assert "main" not in decision.complaints[0].note.split(":")[0]
    assert decision.look_again == 60


def test_an_old_slurm_is_told_of() -> None:
    decision = decided(kube(), None, capabilities=SlurmCapabilities(can_register=False))
    assert (decision.actions, [it.reason for it in decision.complaints]) == ((), ["CannotRegister"])


# Whose node it is


def test_a_node_of_another_cluster_is_never_touched() -> None:
    theirs = Record("c2", 3, 4000).write()
    for state, reason in ((IDLE, ""), (drained(), CORDONED), (("ALLOCATED", "EXTERNAL", "DYNAMIC_NORM"), "")):
        other = slurm(state, reason, extra=theirs)
        assert actions(None, other) == ()
        assert actions(kube(external=False, shut=True), other) == ()
        decision = decided(kube(shut=True), other)
        assert (decision.actions, [it.reason for it in decision.complaints]) == ((), ["NameTaken"])


def test_a_node_just_made_by_another_cluster_is_theirs_too() -> None:
    other = slurm(extra="", reason="slurm-bridge: registered by Kubernetes cluster c2")
    assert actions(None, other) == ()
    assert actions(kube(), other) == ()


def test_a_node_without_a_record_is_ours_by_its_first_reason() -> None:
    new = slurm(extra="", reason="slurm-bridge: registered by Kubernetes cluster c1")
    assert actions(kube(), new) == (Update("s1", wanted().record, clear_reason=True),)
    assert Delete("s1") in actions(None, new)


def test_an_external_node_of_slurm_bridge_is_taken_over_by_its_address() -> None:
    theirs = slurm(extra="", cpus=4, real_memory=4096)
    resize = Drain("s1", "slurm-bridge: Corresponding Kubernetes node (k1) has changed its size")
    assert actions(kube(), theirs) == (resize, Delete("s1"))
    busy = msgspec.structs.replace(theirs, state=("MIXED", *IDLE[1:]))
    assert actions(kube(), busy) == (resize, Update("s1", Record("c1", 4, 4096, "gpu:2")))
    elsewhere = decided(kube(), slurm(extra="", address="198.18.7.7"))
    assert (elsewhere.actions, [it.reason for it in elsewhere.complaints]) == ((), ["NameTaken"])


@pytest.mark.parametrize("node", [kube(), kube(external=False), None])
@pytest.mark.parametrize("state", [("IDLE",), ("IDLE", "EXTERNAL"), ("IDLE", "DYNAMIC_NORM")])
def test_nodes_of_slurm_conf_and_with_slurmd_are_never_made_nor_deleted(
    node: Node | None, state: tuple[str, ...]
) -> None:
    assert actions(node, hybrid(state)) == ()


# Size, features, topology, address


def test_a_resized_idle_node_is_made_anew() -> None:
    bigger = kube(allocatable={"cpu": "8", "memory": "4000Mi", "nvidia.com/gpu": "2"})
    reason = "slurm-bridge: Corresponding Kubernetes node (k1) has changed its size"
    assert actions(bigger, slurm()) == (Drain("s1", reason), Delete("s1"))
    assert actions(bigger, None) == (Register(wanted(bigger)),)


def test_a_node_that_slurm_has_otherwise_than_kubernetes_describes_it_is_named() -> None:
    assert not decided(kube(), slurm()).differs
    bigger = kube(allocatable={"cpu": "8", "memory": "4000Mi", "nvidia.com/gpu": "2"})
    assert decided(bigger, slurm(("MIXED", "EXTERNAL", "DYNAMIC_NORM"), alloc_cpus=1)).differs
    assert decided(kube(), slurm(gres="")).differs, "Slurm does not know these GRES"
    assert not decided(kube(), slurm(drained(), "bad disk")).differs


def test_weakness_16_a_busy_node_that_is_resized_is_drained_and_not_undrained() -> None:
    bigger = kube(allocatable={"cpu": "8", "memory": "4000Mi"})
    reason = "slurm-bridge: Corresponding Kubernetes node (k1) has changed its size"
    busy = slurm(("MIXED", "EXTERNAL", "DYNAMIC_NORM"), alloc_cpus=1)
    assert actions(bigger, busy) == (Drain("s1", reason),)
    draining = slurm(("MIXED", "EXTERNAL", "DYNAMIC_NORM", "DRAIN"), reason, alloc_cpus=1)
    assert actions(bigger, draining) == ()
    assert actions(bigger, slurm(drained(), reason)) == (Delete("s1"),)
    assert actions(kube(), draining) == (Undrain("s1"),)


def test_a_resized_node_that_is_shut_otherwise_is_not_opened_by_making_it_anew() -> None:
    bigger = kube(allocatable={"cpu": "8", "memory": "4000Mi"}, shut=True, mark="drained in Slurm by root: disk")
    assert actions(bigger, slurm(drained(), "disk", reason_set_by_user="root")) == ()
    assert actions(kube(allocatable={"cpu": "8", "memory": "1Gi"}, shut=True), slurm(drained(), CORDONED)) == ()


def test_weakness_16_gres_that_slurm_drops_do_not_make_a_loop() -> None:
    assert actions(kube(), slurm(gres="")) == ()
    assert actions(kube(), slurm(gres="gpu:(null):2")) == ()


def test_features_topology_and_address_change_in_place_and_those_of_others_stay() -> None:
    node = kube(
        address="198.18.0.9",
        annotations={names.NODE_PARTITIONS_ANNOTATION: "gpu", names.NODE_TOPOLOGY_ANNOTATION: "default:s2"},
    )
    old = msgspec.structs.replace(wanted().record, features=("main",))
    record = msgspec.structs.replace(old, features=("gpu",), topology="default:s2")
    assert actions(node, slurm(extra=old.write(), features=("main", "theirs"))) == (
        Update("s1", record, features=("theirs", "gpu"), topology="default:s2", address="198.18.0.9"),
    )


# What others hold

MIB = 1 << 20
BUSY = ("MIXED", "EXTERNAL", "DYNAMIC_NORM")
LARGE = {"cpu": "64", "memory": "100000Mi"}


def described(allocatable: Mapping[str, str], **held: int) -> tuple[int, int, str]:
    amounts = {"nvidia.com/gpu" if key == "gpu" else key: amount for key, amount in held.items()}
    reserved = noderecord.Reserve(amounts)
    return noderecord.describe(kube(allocatable=allocatable), "s1", cluster="c1", reserved=reserved).record.size


def test_a_node_is_as_large_as_what_others_leave() -> None:
    assert described({"cpu": "4", "memory": "4000Mi", "nvidia.com/gpu": "4"}) == (4, 4000, "gpu:4")
    given = {"cpu": "4", "memory": "4000Mi", "nvidia.com/gpu": "4"}
    assert described(given, cpu=300, memory=100 * MIB, gpu=1) == (3, 3880, "gpu:3")
    assert described({"cpu": "3900m", "memory": "4000Mi"}, cpu=900) == (3, 4000, "")


def test_the_reserve_is_rounded_up_so_that_little_changes_change_nothing() -> None:
    sizes = {
        described(LARGE, cpu=cpu, memory=memory * MIB) for cpu in (100, 900, 1000) for memory in (1, 500, 1000)
    }
    assert sizes == {(63, 99000, "")}


def decided_with(k: Node, s: SlurmNode | None, reserved: noderecord.Reserve) -> Decision:
    return decide(k, s, name="s1", rules=RULES, now=NOW, capabilities=CAPABLE, reserved=reserved)


def large(state: tuple[str, ...] = IDLE, reason: str = "") -> SlurmNode:
    return slurm(state, reason, extra=wanted(kube(allocatable=LARGE)).record.write())


def test_a_busy_node_is_not_drained_for_a_small_change_and_an_idle_one_is_made_anew() -> None:
    node, small = kube(allocatable=LARGE), noderecord.Reserve({"cpu": 2500, "memory": 2000 * MIB})
    assert decided_with(node, large(BUSY), small).actions == ()
    assert [type(it) for it in decided_with(node, large(), small).actions] == [Drain, Delete]
    much = noderecord.Reserve({"cpu": 8000})
    assert [type(it) for it in decided_with(node, large(BUSY), much).actions] == [Drain]
    draining = large((*BUSY, "DRAIN"), "slurm-bridge: Corresponding Kubernetes node (k1) has changed its size")
    assert decided_with(node, draining, small).actions == (Undrain("s1"),)


def test_a_machine_that_slurm_has_by_a_worker_is_counted_once() -> None:
    worker = SlurmNode("worker-0", cpus=3, real_memory=1000)
    reserved = noderecord.reserve(
        {"cpu": 1300, "memory": 612 * MIB}, [(worker, {"cpu": 1000, "memory": 512 * MIB})]
    )
    assert reserved == noderecord.Reserve({"cpu": 3300, "memory": 1100 * MIB}, ("worker-0",))
    # A worker that requests more than it gives to Slurm holds what it requests.
    modest = SlurmNode("worker-0", cpus=1, real_memory=100)
    assert noderecord.reserve({"cpu": 2000}, [(modest, {"cpu": 2000, "memory": 200 * MIB})]).amounts["cpu"] == 2000


def test_a_machine_of_which_nothing_is_left_is_refused_with_a_remedy_and_leaves_slurm() -> None:
    reserved = noderecord.Reserve({"cpu": 4000}, ("worker-0",))
    refused = decided_with(kube(), None, reserved)
    assert refused.actions == ()
    (complaint,) = refused.complaints
    assert complaint.reason == "CannotRegister"
    assert "Slurm has this machine already as worker-0, and 0 whole CPUs and 4000 MiB" in complaint.note
    assert f"remove its label {names.EXTERNAL_NODE_LABEL}" in complaint.note
    reason = "slurm-bridge: Corresponding Kubernetes node (k1) has nothing left for Slurm"
    assert decided_with(kube(), slurm(BUSY), reserved).actions == (Drain("s1", reason),)
    assert decided_with(kube(), slurm(drained(), reason), reserved).actions == (Delete("s1"),)
    assert decided_with(kube(), slurm(drained(), "disk"), reserved).actions == (Cordon("drained in Slurm: disk"),)
    others = decided_with(kube(), None, noderecord.Reserve({"cpu": 4000}))
    assert "pods that Slurm did not place use all of it" in others.complaints[0].note


# Going


@pytest.mark.parametrize("node", [None, kube(external=False)])
def test_weakness_16_a_node_that_left_kubernetes_leaves_slurm_when_idle(node: Node | None) -> None:
    reason = "slurm-bridge: removing external node s1"
    assert actions(node, slurm()) == (Drain("s1", reason), Delete("s1"))
    busy = slurm(("ALLOCATED", "EXTERNAL", "DYNAMIC_NORM"), alloc_cpus=3)
    assert actions(node, busy) == (Drain("s1", reason),)
    draining = slurm(("ALLOCATED", "EXTERNAL", "DYNAMIC_NORM", "DRAIN"), reason, alloc_cpus=3)
    assert actions(node, draining) == ()
    assert actions(node, slurm(drained("COMPLETING"), reason)) == ()
    assert actions(node, slurm(drained(), "bad disk")) == (Delete("s1"),)
    for other in (CORDONED, NOT_READY):
        assert actions(node, slurm(drained("COMPLETING"), other)) == (Drain("s1", reason),)


# Drain and cordon


@pytest.mark.parametrize("make", [slurm, hybrid])
def test_a_cordon_drains_and_its_end_undrains(make: Any) -> None:
    assert actions(kube(shut=True), make()) == (Drain("s1", CORDONED),)
    shut = make(("IDLE", "DRAIN", "EXTERNAL", "DYNAMIC_NORM") if make is slurm else ("IDLE", "DRAIN"), CORDONED)
    assert actions(kube(shut=True), shut) == ()
    assert actions(kube(), shut) == (Undrain("s1"),)


@pytest.mark.parametrize("make", [slurm, hybrid])
def test_a_node_that_its_autoscaler_removes_is_drained_before(make: Any) -> None:
    going = kube(taints=(Taint("karpenter.sh/disrupted", "NoSchedule"),))
    reason = "slurm-bridge: Corresponding Kubernetes node (k1) is being removed by Karpenter"
    assert actions(going, make()) == (Drain("s1", reason),)
    shut = make(("IDLE", "DRAIN", "EXTERNAL", "DYNAMIC_NORM") if make is slurm else ("IDLE", "DRAIN"), reason)
    assert actions(going, shut) == ()
    assert actions(kube(), shut) == (Undrain("s1"),)
    candidate = kube(taints=(Taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),))
    assert actions(candidate, make()) == ()


def devices(*, taints: Sequence[Mapping[str, str]] = (), driver: str = "gpu.example.com") -> NodeDevices:
    return inventory(devices_of(2, driver, taints=taints))


def devices_of(count: int, driver: str, *, taints: Sequence[Mapping[str, str]] = ()) -> list[ResourceSlice]:
    made = [{"name": f"gpu-{at}", "taints": taints if at else ()} for at in range(count)]
    spec = {"driver": driver, "nodeName": "k1", "pool": {"name": "k1"}, "devices": made}
    return [msgspec.convert({"spec": spec}, ResourceSlice)]


BROKEN = ({"key": "example.com/broken", "effect": "NoExecute"},)


def test_a_device_with_a_taint_drains_a_node_that_is_not_ours_to_make() -> None:
    def plan(state: tuple[str, ...], reason: str, taints: Sequence[Mapping[str, str]]) -> tuple[Action, ...]:
        node = hybrid(state, reason, gres="gpu:gpu.example.com:2")
        found = decide(
            kube(external=False),
            node,
            name="s1",
            rules=RULES,
            now=NOW,
            capabilities=CAPABLE,
            devices=devices(taints=taints),
        )
        return tuple(it for it in found.actions if not isinstance(it, Report))

    reason = "slurm-bridge: device gpu-1 of gpu.example.com has the taint example.com/broken:NoExecute"
    assert plan(("IDLE",), "", BROKEN) == (Drain("s1", reason),)
    assert plan(("IDLE", "DRAIN"), reason, BROKEN) == ()
    assert plan(("IDLE", "DRAIN"), reason, ()) == (Undrain("s1"),)


def test_a_node_of_ours_has_devices_with_a_taint_apart() -> None:
    record = noderecord.describe(kube(), "s1", cluster="c1", devices=devices(taints=BROKEN)).record
    assert record.gres == "gpu:2,gpu:gpu.example.com:1,gpu:gpu.example.com.tainted:1"


def test_a_node_keeps_its_devices_while_their_driver_publishes_others() -> None:
    """The slices of a pool come one by one; made anew without them, it would be made anew with them again."""
    record = noderecord.describe(kube(), "s1", cluster="c1", devices=devices()).record
    node = slurm(extra=record.write(), gres=record.gres)

    def plan(*slices: ResourceSlice) -> tuple[Action, ...]:
        found = decide(
            kube(), node, name="s1", rules=RULES, now=NOW, capabilities=CAPABLE, devices=inventory(slices)
        )
        return tuple(it for it in found.actions if not isinstance(it, Report))

    (was,) = devices_of(2, "gpu.example.com")
    pool = msgspec.structs.replace(was.spec.pool, generation=1, resource_slice_count=2)
    half = msgspec.structs.replace(was, spec=msgspec.structs.replace(was.spec, pool=pool))
    (other,) = devices_of(1, "gpu.example.com")
    rest = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, pool=pool))
    assert plan(was) == plan(was, half) == plan(half) == ()
    more = inventory([half, *devices_of(1, "dra.net")])
    told = decide(kube(), node, name="s1", rules=RULES, now=NOW, capabilities=CAPABLE, devices=more)
    (report,) = (it for it in told.actions if isinstance(it, Report))
    assert (report.compatible, report.message) == (
        False,
        "a driver has not published all slices of its devices yet",
    )
    assert isinstance(plan(half, rest)[-1], Delete)
    assert isinstance(plan()[-1], Delete)


def test_a_node_tells_what_slurm_does_not_count_there() -> None:
    found = inventory([*devices_of(4, "1.example.com"), *devices_of(1, "dra.net")])
    node = hybrid(gres="gpu:dra.net:1")
    told = decide(kube(external=False), node, name="s1", rules=RULES, now=NOW, capabilities=CAPABLE, devices=found)
    (report,) = (it for it in told.actions if isinstance(it, Report))
    assert report.compatible
    assert "except gpu-0, gpu-1, gpu-2 and 1 more ('gpu:1.example.com' is not a valid GRES" in report.message


def test_cpus_that_their_driver_keeps_for_the_system_are_no_cores() -> None:
    few = noderecord.describe(kube(), "s1", cluster="c1", devices=devices(driver="dra.cpu")).record
    assert (wanted().record.cpus, few.cpus) == (3, 2)


@pytest.mark.parametrize("reason", ["bad disk", "", "not slurm-bridge: at all"])
def test_a_drain_of_somebody_else_is_neither_lifted_nor_renamed(reason: str) -> None:
    theirs = slurm(drained(), reason)
    assert actions(kube(shut=True), theirs) == ()
    (cordon,) = actions(kube(), theirs)
    assert isinstance(cordon, Cordon)


@pytest.mark.parametrize("state", [drained(), ("DOWN", *IDLE[1:]), (*IDLE, "FAIL"), ("DOWN", *IDLE[1:], "DRAIN")])
def test_what_an_administrator_shuts_in_slurm_is_cordoned_with_our_mark(state: tuple[str, ...]) -> None:
    theirs = slurm(state, "bad disk", reason_set_by_user="alice")
    (cordon,) = actions(kube(), theirs)
    assert isinstance(cordon, Cordon)
    assert cordon.mark.endswith("in Slurm by alice: bad disk")
    assert actions(kube(shut=True, mark=cordon.mark), theirs) == ()
    assert actions(kube(shut=True, mark=cordon.mark), slurm()) == (Uncordon(),)


def test_a_cordon_of_people_is_never_lifted() -> None:
    assert Uncordon() not in actions(kube(shut=True), slurm())
    assert Uncordon() not in actions(kube(shut=True), slurm(drained(), "bad disk"))
    assert actions(kube(shut=True), slurm(drained(), "bad disk")) == ()


def test_who_uncordons_a_node_that_we_cordoned_is_obeyed() -> None:
    theirs = slurm(drained(), "bad disk", reason_set_by_user="root")
    mark = "drained in Slurm by root: bad disk"
    (released,) = actions(kube(mark=mark), theirs)
    assert isinstance(released, Mark)
    assert released.mark
    assert actions(kube(mark=released.mark), theirs) == ()
    # Who cordons it again does so himself.
    assert actions(kube(mark=released.mark, shut=True), slurm()) == (Mark(None), Drain("s1", CORDONED))
    assert actions(kube(mark=released.mark), slurm()) == (Mark(None),)


@pytest.mark.parametrize("reason", ["Not responding", "slurm-operator: Node (k1) was cordoned, Pod (a/b) must be"])
def test_the_reasons_of_programs_are_not_mirrored(reason: str) -> None:
    assert actions(kube(external=False), hybrid(("DOWN", "NOT_RESPONDING"), reason)) == ()
    assert actions(kube(external=False), hybrid(("IDLE", "DRAIN"), reason)) == ()
    assert actions(kube(external=False, shut=True), hybrid(("DOWN", "NOT_RESPONDING"), reason)) == ()


@pytest.mark.parametrize(
    "reason",
    [
        "[node_problem] gpu: job 7 [slurm_job]",
        "[mine] disk: full [hc_program]",
        "[node_problem] KernelDeadlock: DockerHung",
        "[user_problem] leftovers",
        health_reasons.REPLACEMENT,
        "Kill task failed",
        "Prolog error",
    ],
)
def test_what_node_health_repairs_stays_open_for_new_pods_of_slurmd(reason: str) -> None:
    assert health_reasons.owner(reason) == "program"
    shut = ("IDLE", "DRAIN")
    assert actions(kube(external=False), hybrid(shut, reason)) == ()
    mark = f"drained in Slurm: {reason}"
    assert actions(kube(external=False, shut=True, mark=mark), hybrid(shut, reason)) == (Uncordon(),)
    # Without a slurmd there is no pod to be made anew, and pods of others are kept away from the bad machine.
    assert any(isinstance(it, Cordon) for it in actions(kube(), slurm(drained(), reason)))
    assert health_reasons.owner("[see ticket 4] disk") == "human"
    assert any(isinstance(it, Cordon) for it in actions(kube(external=False), hybrid(shut, "[see ticket 4] disk")))


def test_a_node_that_is_not_ready_is_drained_after_the_grace_and_taken_back() -> None:
    early = decided(kube(ready="Unknown", since=4), slurm())
    assert (early.actions, early.look_again) == ((), 6)
    assert actions(kube(ready="Unknown", since=11), slurm()) == (Drain("s1", NOT_READY),)
    assert actions(kube(ready="False", since=11), slurm(drained(), NOT_READY)) == ()
    assert actions(kube(), slurm(drained(), NOT_READY)) == (Undrain("s1"),)
    assert actions(kube(ready="False", since=11, shut=True), slurm(drained(), NOT_READY)) == (
        Drain("s1", CORDONED),
    )


# The taint


def test_weakness_29_the_taint_is_off_unless_asked_for_and_goes_when_switched_off() -> None:
    other = Taint("dedicated", "NoSchedule", "hpc")
    ours = Taint(names.MANAGED_TAINT, "NoExecute", names.SCHEDULER_NAME)
    assert actions(kube(taints=(other,)), slurm()) == ()
    assert actions(kube(taints=(other, ours)), slurm()) == (Retaint((other,)),)


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule", "PreferNoSchedule"])
def test_weakness_29_the_effect_of_the_taint_is_a_setting(effect: str) -> None:
    rules = msgspec.structs.replace(RULES, taint=effect)
    other = Taint("dedicated", "NoSchedule", "hpc")
    ours = Taint(names.MANAGED_TAINT, effect, names.SCHEDULER_NAME)
    stale = Taint(names.MANAGED_TAINT, "Other", names.SCHEDULER_NAME)
    elsewhere = Taint(names.MANAGED_TAINT, "NoExecute", "another-scheduler")
    assert actions(kube(taints=(other,)), slurm(), rules=rules) == (Retaint((other, ours)),)
    assert actions(kube(taints=(other, ours)), slurm(), rules=rules) == ()
    assert actions(kube(taints=(stale, elsewhere)), slurm(), rules=rules) == (Retaint((elsewhere, ours)),)
    assert actions(kube(external=False, taints=(ours,)), None, rules=rules) == (Retaint(()),)


# Coming to rest: what actions do to either side, as measured on a real Slurm and a real API server


def applied(action: Action, k: Node | None, s: SlurmNode | None) -> tuple[Node | None, SlurmNode | None]:
    replace = msgspec.structs.replace
    match action:
        case Register(made):
            assert s is None
            r = made.record
            s = SlurmNode(
                made.name, IDLE, made.hostname, made.address, cpus=r.cpus, real_memory=r.memory, features=r.features
            )
            s = replace(s, extra=r.write(), topology=r.topology)
        case Update():
            assert s
            s = replace(
                s,
                extra=action.record.write(),
                features=s.features if action.features is None else action.features,
                topology=s.topology if action.topology is None else action.topology,
                address=action.address or s.address,
                hostname=action.hostname or s.hostname,
                reason="" if action.clear_reason else s.reason,
            )
        case Drain(_, reason):
            assert s
            s = replace(s, state=tuple(dict.fromkeys((*s.state, "DRAIN"))), reason=reason)
        case Undrain():
            assert s
            out = "DOWN" in s.state or "FAIL" in s.state
            s = replace(s, state=tuple(it for it in s.state if it != "DRAIN"), reason=s.reason if out else "")
        case Delete():
            assert s
            assert not s.alloc_cpus
            s = None
        case Cordon(mark):
            k = changed(k, shut=True, mark=mark)
        case Uncordon():
            k = changed(k, shut=False, mark="")
        case Mark(mark):
            k = changed(k, mark=mark or "")
        case Retaint(taints):
            assert k
            k = replace(k, spec=replace(k.spec, taints=taints))
    return k, s


def changed(k: Node | None, *, shut: bool | None = None, mark: str | None = None) -> Node:
    assert k
    replace = msgspec.structs.replace
    annotations = dict(k.metadata.annotations)
    if mark is not None:
        annotations.pop(names.NODE_CORDON_ANNOTATION, None)
        annotations |= {names.NODE_CORDON_ANNOTATION: mark} if mark else {}
    spec = k.spec if shut is None else replace(k.spec, unschedulable=shut)
    return replace(k, metadata=replace(k.metadata, annotations=annotations), spec=spec)


def at_rest(k: Node | None, s: SlurmNode | None, rules: Rules) -> tuple[Node | None, SlurmNode | None]:
    """Act until there is nothing to do; four rounds are enough to drain a node, delete it and make it anew."""
    for _ in range(4):
        plan = decided(k, s, rules=rules).actions
        if not plan:
            return k, s
        assert not (any(isinstance(it, Drain) for it in plan) and any(isinstance(it, Undrain) for it in plan))
        for action in plan:
            k, s = applied(action, k, s)
    raise AssertionError(f"no end with {k} and {s}: {decided(k, s, rules=rules).actions}")


states = st.sampled_from(
    [
        IDLE,
        drained(),
        ("MIXED", *IDLE[1:]),
        ("MIXED", *IDLE[1:], "DRAIN"),
        ("DOWN", *IDLE[1:]),
        ("DOWN", *IDLE[1:], "DRAIN"),
        (*IDLE, "FAIL"),
        ("IDLE",),
        ("IDLE", "DRAIN"),
        ("ALLOCATED", "DRAIN"),
        ("DOWN", "NOT_RESPONDING"),
        ("IDLE", "EXTERNAL"),
    ]
)
reasons = st.sampled_from(
    [
        "",
        "bad disk",
        CORDONED,
        NOT_READY,
        "slurm-bridge: removing external node s1",
        "slurm-bridge: registered by Kubernetes cluster c1",
        "slurm-bridge: registered by Kubernetes cluster c2",
        "slurm-operator: Pod is terminating",
        "[node_problem] gpu: job 7 [slurm_job]",
        "Not responding",
    ]
)
extras = st.sampled_from(["", wanted().record.write(), Record("c1", 9, 9).write(), Record("c2", 3, 4000).write()])
slurm_nodes = st.none() | st.builds(
    lambda state, reason, extra, features, address: slurm(
        state,
        reason,
        extra=extra,
        features=features,
        address=address,
        alloc_cpus=0 if state[0] in {"IDLE", "DOWN"} else 1,
    ),
    states,
    reasons,
    extras,
    st.sampled_from([(), ("main",), ("theirs",)]),
    st.sampled_from(["198.18.0.1", "198.18.7.7", "s1"]),
)
kube_nodes = st.none() | st.builds(
    kube,
    external=st.booleans(),
    shut=st.booleans(),
    mark=st.sampled_from(
        ["", "drained in Slurm: bad disk", "uncordoned by hand, while drained in Slurm: bad disk"]
    ),
    ready=st.sampled_from(["True", "False", "Unknown"]),
    since=st.sampled_from([1.0, 3600.0]),
    allocatable=st.sampled_from([None, {"cpu": "8", "memory": "1Gi"}, {"cpu": "0", "memory": "0"}]),
    annotations=st.sampled_from(
        [
            {},
            {names.NODE_PARTITIONS_ANNOTATION: "main"},
            {names.NODE_PARTITIONS_ANNOTATION: "nowhere"},
            {names.NODE_TOPOLOGY_ANNOTATION: "default:s1"},
        ]
    ),
    taints=st.sampled_from([(), (Taint(names.MANAGED_TAINT, "NoExecute", names.SCHEDULER_NAME),)]),
)
some_rules = st.sampled_from([RULES, msgspec.structs.replace(RULES, taint="NoSchedule")])


@settings(max_examples=1000)
@given(kube_nodes, slurm_nodes, some_rules)
def test_weakness_16_any_state_comes_to_rest(k: Node | None, s: SlurmNode | None, rules: Rules) -> None:
    k_after, s_after = at_rest(k, s, rules)
    # Nobody else's word was taken back, and nothing of anybody else's was touched.
    if s and noderecord.cluster_of(s) == "c2":
        assert s_after == s
    if s and s_after and "DRAIN" in s.state and s.reason == "bad disk":
        assert "DRAIN" in s_after.state
        assert s_after.reason == "bad disk"
    if k and k_after and k.spec.unschedulable and not k.metadata.annotations.get(names.NODE_CORDON_ANNOTATION):
        assert k_after.spec.unschedulable
    if s and not {"EXTERNAL", "DYNAMIC_NORM"} <= set(s.state):
        assert s_after is not None


steps = st.lists(
    st.sampled_from(
        [
            *("cordon", "uncordon", "drain", "resume", "down", "fail", "not ready", "ready"),
            *("job", "job ends", "label", "unlabel", "grow", "shrink", "gone", "back"),
        ]
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=500)
@given(steps)
def test_weakness_16_any_sequence_of_outside_changes_converges(sequence: list[str]) -> None:
    facts: dict[str, Any] = {"external": True, "shut": False, "ready": "True", "allocatable": None}
    k: Node | None = kube()
    s: SlurmNode | None = slurm()
    for step in sequence:
        mark = k.metadata.annotations.get(names.NODE_CORDON_ANNOTATION, "") if k else ""
        facts["shut"] = k.spec.unschedulable if k else False
        match step:
            case "cordon" | "uncordon":
                facts["shut"] = step == "cordon"
            case "not ready" | "ready":
                facts["ready"] = "True" if step == "ready" else "Unknown"
            case "label" | "unlabel":
                facts["external"] = step == "label"
            case "grow" | "shrink":
                facts["allocatable"] = {"cpu": "8", "memory": "1Gi"} if step == "grow" else None
        k = None if step == "gone" or (k is None and step != "back") else kube(mark=mark, **facts)
        if s is not None:
            s = outside(step, s)
        k, s = at_rest(k, s, RULES)
        assert_agreed(k, s)


def outside(step: str, s: SlurmNode) -> SlurmNode:  # noqa: PLR0911 - one for each step
    """What people and jobs do to a node in Slurm."""
    replace = msgspec.structs.replace
    base, flags = s.state[0], [it for it in s.state[1:] if it not in {"DRAIN", "FAIL"}]
    match step:
        case "drain":
            return replace(s, state=tuple(dict.fromkeys((*s.state, "DRAIN"))), reason="bad disk")
        case "down":
            return replace(s, state=("DOWN", *s.state[1:]), reason="bad disk", alloc_cpus=0)
        case "fail":
            return replace(s, state=tuple(dict.fromkeys((*s.state, "FAIL"))), reason="bad disk")
        case "resume":
            return replace(s, state=("IDLE" if base == "DOWN" else base, *flags), reason="")
        case "job" if s.state == IDLE:
            return replace(s, state=("MIXED", *s.state[1:]), alloc_cpus=1)
        case "job ends" if base == "MIXED":
            return replace(s, state=("IDLE", *s.state[1:]), alloc_cpus=0)
    return s


def assert_agreed(k: Node | None, s: SlurmNode | None) -> None:
    """Both sides say the same, as far as they are allowed to disagree."""
    if s is None:
        assert k is None or names.EXTERNAL_NODE_LABEL not in k.metadata.labels or decided(k, s).actions == ()
        return
    if k is None or names.EXTERNAL_NODE_LABEL not in k.metadata.labels:
        assert s.alloc_cpus
        assert "DRAIN" in s.state
        return
    mark = k.metadata.annotations.get(names.NODE_CORDON_ANNOTATION, "")
    out = not {"DRAIN", "DOWN", "FAIL"}.isdisjoint(s.state)
    if k.spec.unschedulable:
        assert out
    elif out:
        assert s.reason.startswith("slurm-bridge:") or mark.startswith("uncordoned by hand")
