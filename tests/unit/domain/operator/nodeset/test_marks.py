"""What Kubernetes nodes say of their Slurm nodes."""

from typing import Any

from isthmus import names
from isthmus.domain.operator.nodeset.actions import ReviseRecord
from isthmus.domain.operator.nodeset.marks import revisions
from isthmus.domain.operator.nodeset.view import PodView
from tests.unit.domain.operator.nodeset.views import kube_node, pod, view


def placed(ordinal: int, *, features: str = "", topology: str = "", **slurm: Any) -> PodView:
    annotations = {names.NODE_FEATURES_ANNOTATION: features, names.NODE_TOPOLOGY_ANNOTATION: topology}
    return pod(
        ordinal, kube=kube_node(annotations={key: text for key, text in annotations.items() if text}), **slurm
    )


def test_features_of_a_node_come_beside_the_others() -> None:
    assert revisions(view(placed(0, features="ssd,fast"))) == (
        ReviseRecord(("worker-0",), ("worker", "k8s/fast", "k8s/ssd"), None),
    )


def test_features_that_are_no_longer_there_go() -> None:
    assert revisions(view(placed(0))) == ()
    kept = pod(0, kube=kube_node(), features=("worker", "k8s/ssd"))
    assert revisions(view(kept)) == (ReviseRecord(("worker-0",), ("worker",), None),)


def test_nodes_that_are_alike_are_one_request() -> None:
    found = revisions(view(placed(0, topology="t:s1"), placed(1, topology="t:s1"), placed(2, topology="t:s2")))
    assert found == (
        ReviseRecord(("worker-0", "worker-1"), None, "t:s1"),
        ReviseRecord(("worker-2",), None, "t:s2"),
    )


def test_what_is_so_is_not_said_again() -> None:
    wanted = placed(0, topology="t:s1", features="ssd")
    done = pod(0, kube=wanted.kube_node, features=("worker", "k8s/ssd"), topology="t:s1")
    assert revisions(view(done)) == ()


def test_nothing_reaches_slurm_that_is_no_word() -> None:
    assert revisions(view(placed(0, features="a b,$(id)", topology="x y"))) == ()


def test_out_of_touch_nothing_is_said() -> None:
    assert revisions(view(placed(0, features="ssd"), in_touch=False)) == ()
