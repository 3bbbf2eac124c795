"""Who a worker pod is."""

from typing import Any

import pytest

from isthmus import names
from isthmus.domain.operator.nodeset.identity import mode_of, node_of, numbered, on_node, ordinal_of, slurm_name
from isthmus.errors import Terminal
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Requirement,
)
from tests.unit.domain.operator.nodeset.views import kube_node, nodeset


def named(name: str, **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, labels=labels))


def test_a_pod_is_called_after_its_nodeset_and_number() -> None:
    found = numbered(nodeset(), 3)
    assert (found.pod, found.hostname, found.claim_suffix) == ("worker-3", "worker-3", "3")
    assert found.labels == {
        names.POD_NAME_LABEL: "worker-3",
        names.POD_HOSTNAME_LABEL: "worker-3",
        names.POD_INDEX_LABEL: "3",
        names.SCALING_MODE_LABEL: "StatefulSet",
    }


def test_numbers_are_padded() -> None:
    found = numbered(nodeset(ordinalPadding=3), 7)
    assert (found.pod, found.hostname, found.padded) == ("worker-007", "worker-007", "007")
    assert numbered(nodeset(ordinalPadding=3), 12345).pod == "worker-12345"


def test_a_prefix_names_hosts_but_not_pods() -> None:
    found = numbered(nodeset(template={"spec": {"hostname": "gpu-"}}), 0)
    assert (found.pod, found.hostname) == ("worker-0", "gpu-0")


@pytest.mark.parametrize("prefix", ["x" * 63, "Gpu-", "a.b-", "gpu_", "-gpu", "$(id)"])
def test_a_host_name_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(Terminal, match="cannot be called"):
        numbered(nodeset(template={"spec": {"hostname": prefix}}), 0)


@pytest.mark.parametrize(
    ("name", "annotations", "hostname"),
    [
        ("gpu-1", {}, "gpu-1"),
        ("gpu-1.example.org", {}, "gpu-1"),
        ("gpu-1.example.org", {names.NODE_HOSTNAME_ANNOTATION: "rack1-gpu"}, "rack1-gpu"),
    ],
)
def test_a_daemon_is_called_after_its_node(name: str, annotations: dict[str, str], hostname: str) -> None:
    found = on_node(nodeset(), kube_node(name, annotations=annotations))
    assert (found.pod, found.hostname, found.node) == (f"worker-{hostname}", hostname, name)
    assert found.claim_suffix == hostname
    assert names.POD_INDEX_LABEL not in found.labels


def test_an_annotation_that_is_no_host_name_is_refused() -> None:
    """W15."""
    with pytest.raises(Terminal, match="hostname-override"):
        on_node(nodeset(), kube_node(annotations={names.NODE_HOSTNAME_ANNOTATION: "No Name"}))


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("worker-0", 0),
        ("worker-007", 7),
        ("worker-gpu-1", None),
        ("other-1", None),
        ("worker", None),
        ("worker-²", None),
    ],
)
def test_a_number_is_read_from_a_name(name: str, ordinal: int | None) -> None:
    assert ordinal_of("worker", named(name)) == ordinal


def test_a_pod_of_a_nodeset_with_a_longer_name_is_not_ours() -> None:
    assert ordinal_of("worker", named("worker-gpu-0")) is None
    assert ordinal_of("worker-gpu", named("worker-gpu-0")) == 0


def test_a_pod_tells_who_it_is() -> None:
    found = named("worker-x", **{names.SCALING_MODE_LABEL: "DaemonSet", names.POD_HOSTNAME_LABEL: "x"})
    assert (mode_of(found), slurm_name(found)) == ("DaemonSet", "x")
    assert (mode_of(named("worker-1")), slurm_name(named("worker-1"))) == ("StatefulSet", "worker-1")


def bound_for(node: str, **spec: Any) -> Pod:
    term = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", (node,)),))
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector((term,))))
    return Pod(spec=PodSpec(affinity=affinity, **spec))


def test_the_node_of_a_pod_is_known_before_it_is_placed() -> None:
    assert node_of(bound_for("k7")) == "k7"
    assert node_of(bound_for("k7", node_name="k8")) == "k8"
    assert node_of(Pod()) == ""
