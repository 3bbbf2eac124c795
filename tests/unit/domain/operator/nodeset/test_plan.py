"""Which worker pods there should be."""

from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import CRASH_PAUSE, Plan, plan
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node, NodeSpec, Taint
from isthmus.model.slinky import NodeSet
from tests.unit.domain.operator.nodeset.views import NOW, kube_node, nodeset, pod

replace = msgspec.structs.replace


def planned(of: NodeSet, *pods: PodView, nodes: dict[str, Node] | None = None, made: Any = ()) -> Plan:
    return plan(of, pods, nodes=nodes or {}, demand=demand_of({}), now=NOW, made=made)


def created(found: Plan) -> list[str]:
    return [it.pod for it in found.create]


def deleted(found: Plan) -> list[str]:
    return [it.name for it in found.delete]


def unwanted(found: Plan) -> set[str]:
    return set(found.unwanted)


# StatefulSet mode


def test_as_many_as_replicas() -> None:
    found = planned(nodeset(3))
    assert (created(found), found.desired) == (["worker-0", "worker-1", "worker-2"], 3)
    assert planned(nodeset(0)) == Plan(desired=0)


def test_the_lowest_free_ordinals_are_used() -> None:
    assert created(planned(nodeset(4), pod(0), pod(3))) == ["worker-1", "worker-2"]
    assert created(planned(nodeset(3), pod(1), pod(7), pod(9))) == []


def test_a_pod_that_leaves_keeps_its_place() -> None:
    assert created(planned(nodeset(2), pod(0), pod(1, leaving=True))) == []
    assert created(planned(nodeset(3), pod(0), pod(1, leaving=True))) == ["worker-2"]


def test_a_pod_that_was_just_made_is_not_made_again() -> None:
    """W4."""
    assert created(planned(nodeset(3), pod(0), made={"worker-1"})) == ["worker-2"]
    assert created(planned(nodeset(2), made={"worker-0", "worker-1"})) == []


def test_a_pod_that_is_in_the_cache_and_in_the_memory_counts_once() -> None:
    assert created(planned(nodeset(2), pod(0), made={"worker-0"})) == ["worker-1"]


def test_another_padding_keeps_identities() -> None:
    assert created(planned(nodeset(2, ordinalPadding=3), pod(0))) == ["worker-001"]


def test_a_pod_that_has_ended_is_deleted_and_comes_again() -> None:
    found = planned(nodeset(1), pod(0, phase="Failed", ready=False))
    assert (deleted(found), created(found)) == (["worker-0"], [])
    assert found.delete[0].cause == "ended"
    assert "Failed" in found.delete[0].why


def test_a_pod_that_always_ends_is_no_storm() -> None:
    found = planned(nodeset(1), pod(0, phase="Failed", ready=False, age=4))
    assert (deleted(found), found.look_again) == ([], CRASH_PAUSE - 4)


def named(view: PodView, name: str) -> PodView:
    return replace(view, pod=replace(view.pod, metadata=replace(view.pod.metadata, name=name, uid=f"uid-{name}")))


def test_of_twins_the_oldest_that_is_ready_stays() -> None:
    """W17."""
    old, new = pod(0, age=900), named(pod(0, age=60), "worker-00")
    assert planned(nodeset(1), old, new).unwanted == {"worker-00"}
    broken = pod(0, age=900, ready=False)
    assert planned(nodeset(1), broken, new).unwanted == {"worker-0"}


def test_a_pin_holds_as_long_as_the_node_fits() -> None:
    pinned = nodeset(1, pinToNode=True)
    pinned = replace(pinned, status=replace(pinned.status, ordinal_to_node={"0": "k1"}))
    assert planned(pinned, nodes={"k1": kube_node("k1")}).create[0].node == "k1"
    assert planned(pinned).create[0].node == ""
    tainted = replace(kube_node("k1"), spec=NodeSpec(taints=(Taint("x", "NoSchedule"),)))
    assert planned(pinned, nodes={"k1": tainted}).create[0].node == ""
    unpinned = replace(pinned, spec=replace(pinned.spec, pin_to_node=False))
    assert planned(unpinned, nodes={"k1": kube_node("k1")}).create[0].node == ""


# DaemonSet mode

DAEMONS = nodeset(0, scalingMode="DaemonSet")


def daemon(node: str, *, name: str = "", hostname: str = "", **more: Any) -> PodView:
    made = pod(0, kube=kube_node(node), **more)
    hostname = hostname or node
    name = name or f"worker-{hostname}"
    made = named(made, name)
    return replace(made, mode="DaemonSet", ordinal=None, slurm_name=hostname)


def nodes(*given: str) -> dict[str, Node]:
    return {it: kube_node(it) for it in given}


def test_one_on_each_node() -> None:
    found = planned(DAEMONS, daemon("a"), nodes=nodes("a", "b", "c"))
    assert (created(found), found.desired) == (["worker-b", "worker-c"], 3)
    assert {it.node for it in found.create} == {"b", "c"}


def test_a_new_node_gets_a_pod_and_a_node_that_fits_no_more_loses_it() -> None:
    """W15."""
    bad = replace(kube_node("b"), spec=NodeSpec(taints=(Taint("x", "NoExecute"),)))
    found = planned(DAEMONS, daemon("a"), daemon("b"), nodes={**nodes("a"), "b": bad})
    assert (unwanted(found), found.desired, created(found)) == ({"worker-b"}, 1, [])


def test_a_pod_that_waits_for_a_node_that_is_gone_goes_at_once() -> None:
    waiting = daemon("z", bound=False, ready=False)
    waiting = replace(waiting, pod=_for(waiting, "z"))
    found = planned(DAEMONS, waiting, nodes=nodes("a"))
    assert (deleted(found), unwanted(found)) == (["worker-z"], set())
    assert found.delete[0].version == "7"


def _for(view: PodView, node: str) -> Any:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = msgspec.convert({"affinity": {"nodeAffinity": required}}, type(view.pod.spec))
    return replace(view.pod, spec=spec)


def test_a_bound_pod_whose_node_is_not_known_is_left_to_kubernetes() -> None:
    assert planned(DAEMONS, daemon("gone"), nodes=nodes("a")).unwanted == frozenset()


def test_a_pod_under_another_name_makes_way() -> None:
    renamed = {"a": kube_node("a", annotations={names.NODE_HOSTNAME_ANNOTATION: "rack1"})}
    found = planned(DAEMONS, daemon("a"), nodes=renamed)
    assert (unwanted(found), created(found)) == ({"worker-a"}, [])


def test_two_nodes_of_one_name_are_told_apart_or_complained_of() -> None:
    """W15."""
    found = planned(DAEMONS, nodes=nodes("a.east", "a.west"))
    assert created(found) == ["worker-a"]
    assert "a.east and a.west" in found.complaints[0]
    told = {**nodes("a.east"), "a.west": kube_node("a.west", annotations={names.NODE_HOSTNAME_ANNOTATION: "b"})}
    assert created(planned(DAEMONS, nodes=told)) == ["worker-a", "worker-b"]


def test_duplicates_on_a_node_shrink_to_the_oldest_ready_one() -> None:
    """W17."""
    found = planned(DAEMONS, daemon("a", age=900), daemon("a", name="worker-a2", age=60), nodes=nodes("a"))
    assert found.unwanted == {"worker-a2"}


def test_a_pod_that_leaves_its_node_is_awaited() -> None:
    assert created(planned(DAEMONS, daemon("a", leaving=True), nodes=nodes("a"))) == []


# Both


def test_another_mode_lets_pods_of_the_old_one_go() -> None:
    found = planned(DAEMONS, pod(0), pod(1, bound=False, ready=False), nodes=nodes("a"))
    assert (unwanted(found), deleted(found), created(found)) == ({"worker-0"}, ["worker-1"], ["worker-a"])


def test_a_deleted_nodeset_makes_nothing_and_lets_all_go() -> None:
    found = planned(nodeset(3, deleted=True), pod(0), pod(1, bound=False, ready=False))
    assert (found.desired, created(found), unwanted(found), deleted(found)) == (0, [], {"worker-0"}, ["worker-1"])


def test_a_plan_that_was_carried_out_says_nothing_more() -> None:
    of = nodeset(3)
    made = [pod(it.ordinal or 0) for it in planned(of).create]
    assert planned(of, *made) == Plan(desired=3)


def test_the_age_of_a_pod_without_one_is_no_matter() -> None:
    ended = pod(0, phase="Succeeded", ready=False)
    bare = replace(ended, pod=replace(ended.pod, metadata=ObjectMeta(name="worker-0", uid="u0")))
    assert deleted(planned(nodeset(1), bare)) == ["worker-0"]
