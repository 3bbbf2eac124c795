"""Which records Slurm is to forget."""

from typing import Any

import pytest

from isthmus.domain.operator.nodeset.records import records
from isthmus.domain.operator.nodeset.shape import Shape
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.model.slurm import Node
from tests.unit.domain.operator.nodeset.views import GOING, kube_node, nodeset, pod, slurm_node, view

LARGER = Shape(cpus=8)
SAME = Shape(cpus=4)


def forgotten(*there: Node, pods: tuple[PodView, ...] = (), shape: Shape | None = SAME, **more: Any) -> list[str]:
    of = more.pop("of", nodeset(3))
    found = records(view(*pods, of=of, also_in_slurm={it.name: it for it in there}, **more), shape)
    return [it.slurm_name for it in found]


def left(name: str = "worker-4", *states: str, **fields: Any) -> Node:
    return slurm_node(name, *(states or ("DOWN", "NOT_RESPONDING")), cpus=4, **fields)


def test_a_node_that_went_for_good_is_forgotten() -> None:
    """W13."""
    assert forgotten(left(), left("worker-5", "IDLE", "DRAIN"), pods=(pod(0),)) == ["worker-4", "worker-5"]


def test_a_node_that_comes_back_is_remembered() -> None:
    """Jobs that wait may name it."""
    assert forgotten(left(), coming=frozenset({"worker-4"})) == []


def test_a_node_that_comes_back_larger_is_forgotten_first() -> None:
    coming = frozenset({"worker-4"})
    assert forgotten(left("worker-4", "IDLE", "DRAIN"), coming=coming, shape=LARGER) == ["worker-4"]
    assert forgotten(left("worker-4", "IDLE", "DRAIN"), coming=coming, shape=None) == []


def test_a_record_of_another_shape_goes_while_its_pod_leaves() -> None:
    leaving = pod(0, "IDLE", "DRAIN", reason=GOING, leaving=True, cpus=4)
    assert forgotten(pods=(leaving,), shape=LARGER) == ["worker-0"]
    assert forgotten(pods=(leaving,), shape=SAME) == []


@pytest.mark.parametrize(
    "there",
    [
        left("worker-4", "ALLOCATED"),
        left("worker-4", "IDLE", "COMPLETING"),
        left("login-4"),
        left("worker-x"),
        left("worker-"),
        left(features=("other",)),
        Node(name="worker-4", state=("DOWN",), features=("worker",)),
    ],
    ids=[
        "busy",
        "completing",
        "another name",
        "no number",
        "no number at all",
        "of another NodeSet",
        "of slurm.conf",
    ],
)
def test_what_is_busy_or_not_ours_stays(there: Node) -> None:
    assert forgotten(there) == []


def test_nodes_with_pods_stay() -> None:
    assert forgotten(pods=(pod(0, "DOWN"), pod(1, "ALLOCATED", leaving=True))) == []


def test_static_nodes_and_those_of_an_unknown_slurm_stay() -> None:
    assert forgotten(left(), of=nodeset(3, registration="Static")) == []
    assert forgotten(left(), in_touch=False) == []


def test_a_host_name_of_the_users_choice() -> None:
    of = nodeset(3, template={"spec": {"hostname": "gpu-"}})
    assert forgotten(left("gpu-04", features=("gpu",)), left("worker-4", features=("gpu",)), of=of) == ["gpu-04"]


def test_daemons_are_forgotten_only_when_asked_for() -> None:
    gone = left("k9", features=("worker",))
    pruned = nodeset(1, scalingMode="DaemonSet", pruneSlurmNodeRecords="NodeNotFound")
    assert forgotten(gone, of=nodeset(1, scalingMode="DaemonSet")) == []
    assert forgotten(gone, of=pruned) == ["k9"]
    there = {"k9.example.org": kube_node("k9.example.org")}
    assert forgotten(gone, of=pruned, kube_nodes=there) == []
    assert forgotten(left("k9", "IDLE"), of=pruned) == []


def test_a_deleted_nodeset_leaves_nothing() -> None:
    assert forgotten(left("k9"), of=nodeset(1, scalingMode="DaemonSet", deleted=True)) == ["k9"]
