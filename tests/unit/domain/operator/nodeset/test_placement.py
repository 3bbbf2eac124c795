"""Which Kubernetes nodes get a worker."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.model.node import Node

SELECTED = {"nodeSelector": {"gpu": "yes"}}


def node(name: str = "k1", *, labels: Any = None, **spec: Any) -> Node:
    allocatable = spec.pop("allocatable", {})
    manifest = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }
    return msgspec.convert(manifest, Node)


def taint(key: str, effect: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": effect}]}


def test_a_selector_selects() -> None:
    demand = demand_of(SELECTED)
    assert demand.may_start(node()) == "does not match the node selector"
    assert demand.may_start(node(labels={"gpu": "yes"})) is None
    assert not demand.may_stay(node())


def test_a_cordoned_node_keeps_its_pod_and_gets_it_back() -> None:
    """W15, slurm-operator 259."""
    cordoned = node(unschedulable=True, **taint("node.kubernetes.io/unschedulable", "NoSchedule"))
    assert demand_of({}).may_start(cordoned) is None
    assert demand_of({}).may_stay(cordoned)


def test_a_taint_keeps_new_pods_away_and_only_no_execute_moves_old_ones() -> None:
    tainted, evicting = node(**taint("x", "NoSchedule")), node(**taint("x", "NoExecute"))
    demand = demand_of({})
    assert "taint" in (demand.may_start(tainted) or "")
    assert demand.may_stay(tainted)
    assert not demand.may_stay(evicting)
    tolerating = demand_of({"tolerations": [{"key": "x", "operator": "Exists"}]})
    assert tolerating.may_start(evicting) is None


def test_a_node_that_does_not_answer_keeps_its_pod() -> None:
    assert demand_of({}).may_stay(node(**taint("node.kubernetes.io/unreachable", "NoExecute")))


@pytest.mark.parametrize(
    ("has", "why"), [("4", None), ("3", "has too little cpu"), ("3900m", "has too little cpu")]
)
def test_a_node_that_is_too_small_gets_none(has: str, why: str | None) -> None:
    """W15."""
    containers = [{"name": "slurmd", "resources": {"limits": {"cpu": "3500m"}}}]
    sides = [{"name": "munged", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}]
    demand = demand_of({"containers": containers, "initContainers": sides})
    assert demand.may_start(node(allocatable={"cpu": has})) == why


def test_a_device_that_a_node_lacks_is_missed() -> None:
    demand = demand_of({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert demand.may_start(node(allocatable={"cpu": "4"})) == "has too little nvidia.com/gpu"
    assert demand.may_start(node()) is None  # it has not said yet what it has


def test_amounts_may_be_written_as_numbers() -> None:
    resources = {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": 2, "nvidia.com/gpu": 1}}
    demand = demand_of({"containers": [{"name": "slurmd", "resources": resources}]})
    assert demand.requests == {"cpu": "2", "memory": "1073741824", "nvidia.com/gpu": "1"}
    assert demand_of({"containers": [], "resources": {"requests": {"cpu": 3}}}).requests == {"cpu": "3"}
