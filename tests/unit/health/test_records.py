"""Names of health records, blocks of nodes, and what actions are about."""

import pytest

from isthmus.domain.health.actions import Comment, Drain, Release, SetCondition
from isthmus.domain.kube.blocks import block_of
from isthmus.health.runner import _without, nodes_of
from isthmus.health.world import record_name
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode


def machine(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    return Node(metadata=ObjectMeta(name="m", labels=labels or {}, annotations=annotations or {}))


def test_a_record_is_named_after_its_cluster_and_node() -> None:
    assert record_name("slurm", "w-1") == "slurm.w-1"


def test_names_that_only_slurm_allows_stay_apart() -> None:
    made = {record_name("slurm", name) for name in ("GPU_1", "gpu-1", "gpu_1", "Gpu-1", "x" * 400)}
    assert len(made) == 5
    assert all(len(it) <= 253 and it == it.lower() and "_" not in it for it in made)


@pytest.mark.parametrize(
    ("slurm", "found", "block"),
    [
        (SlurmNode(name="n", topology="topo-block:b1"), machine(), "topo-block:b1"),
        (None, machine(annotations={"topology.slinky.slurm.net/spec": "topo:b2"}), "topo:b2"),
        (None, machine({"topology.nebius.com/tier-1": "leaf", "topology.nebius.com/tier-0": "b3"}), "b3"),
        (SlurmNode(name="n"), None, ""),
    ],
)
def test_the_block_of_a_node(slurm: SlurmNode | None, found: Node | None, block: str) -> None:
    assert block_of(slurm, found) == block


def test_nodes_for_which_something_failed_are_left_out_of_what_follows() -> None:
    assert _without(Drain(("a", "b"), "r"), {"a"}) == Drain(("b",), "r")
    assert _without(Release(("a",)), {"a"}) is None
    assert _without(Comment("a", "x"), {"b"}) == Comment("a", "x")
    condition = SetCondition("m", "T", "True", "R", "")
    assert nodes_of(condition) == ()
    assert _without(condition, {"a"}) == condition
