"""What is left for Slurm on a node, and that it follows pods and nodes."""

from datetime import UTC, datetime

import pytest

from isthmus import names
from isthmus.bridge.cache.capacity import TOO_SMALL, Capacity
from isthmus.domain.kube.feasibility import constraints_of
from isthmus.kube.store import Store
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Container, ContainerPort, Pod, PodSpec, PodStatus, Resources

PLACED = {names.JOB_ID_LABEL: "7"}
GIB = 1 << 30


def pod(
    name: str = "p",
    *,
    node: str = "n1",
    cpu: str = "1",
    memory: str = "1Gi",
    placed: bool = False,
    phase: str = "Running",
    leaving: bool = False,
    port: int = 0,
) -> Pod:
    resources = Resources(requests={"cpu": cpu, "memory": memory})
    ports = (ContainerPort(host_port=port),) if port else ()
    deleted = datetime(2026, 11, 17, tzinfo=UTC) if leaving else None
    return Pod(
        ObjectMeta(
            name=name, namespace="ns", uid=name, labels=PLACED if placed else {}, deletion_timestamp=deleted
        ),
        PodSpec(node_name=node, containers=(Container(name="c", resources=resources, ports=ports),)),
        PodStatus(phase=phase),
    )


class Bed:
    """A node with 4 CPUs and 8 GiB, and the pods that a test puts there."""

    def __init__(self) -> None:
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        self.capacity = Capacity(self.nodes, self.pods, placed=lambda it: names.JOB_ID_LABEL in it.metadata.labels)
        self.told: list[str] = []
        self.resize()
        self.capacity.on_change(self.told.append)

    def resize(self, cpu: str = "4") -> None:
        self.nodes.put(Node(ObjectMeta(name="n1"), status=NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi"})))

    @property
    def node(self) -> Node:
        found = self.nodes.get(Key("", "n1"))
        assert found
        return found

    def free(self) -> tuple[int, int]:
        return self.capacity.free(self.node, "cpu"), self.capacity.free(self.node, "memory")


def test_pods_that_slurm_did_not_place_take_their_share_first() -> None:
    bed = Bed()
    bed.pods.put(pod("daemon", cpu="300m", memory="1Gi"))
    bed.pods.put(pod("placed", cpu="2", placed=True))
    assert bed.free() == (3700, 7 * GIB)
    bed.pods.remove(Key("ns", "daemon"))
    assert bed.free() == (4000, 8 * GIB)


@pytest.mark.parametrize("gone", [{"phase": "Succeeded"}, {"leaving": True}, {"placed": True}, {"node": ""}])
def test_a_pod_that_is_on_its_way_out_or_slurms_own_reserves_nothing(gone: dict[str, object]) -> None:
    bed = Bed()
    bed.pods.put(pod())
    assert bed.free() == (3000, 7 * GIB)
    bed.pods.put(pod(**gone))  # type: ignore[arg-type]
    assert bed.free() == (4000, 8 * GIB)


def test_a_pod_fits_where_it_would_fit_alone_with_what_slurm_did_not_place() -> None:
    bed = Bed()
    bed.pods.put(pod("daemon", cpu="300m"))
    bed.pods.put(pod("placed", cpu="3", placed=True))
    assert bed.capacity.misfit(constraints_of(pod(cpu="3700m")), bed.node) is None
    assert bed.capacity.misfit(constraints_of(pod(cpu="3701m")), bed.node) == TOO_SMALL
    assert bed.capacity.misfit(constraints_of(pod(memory="8Gi")), bed.node) == TOO_SMALL


def test_a_host_port_of_a_daemon_is_never_free() -> None:
    bed = Bed()
    bed.pods.put(pod("daemon", port=8080))
    bed.pods.put(pod("placed", port=9090, placed=True))
    assert "host port" in (bed.capacity.misfit(constraints_of(pod(port=8080)), bed.node) or "")
    assert bed.capacity.misfit(constraints_of(pod(port=9090)), bed.node) is None


def test_changes_are_told_and_nothing_else() -> None:
    bed = Bed()
    bed.pods.put(pod("placed", placed=True))
    bed.pods.put(pod("waiting", node=""))
    bed.resize()
    assert not bed.told
    bed.pods.put(pod("daemon"))
    bed.pods.put(pod("daemon", phase="Pending"))
    assert bed.told == ["n1"]
    bed.resize("3")
    bed.pods.remove(Key("ns", "daemon"))
    assert bed.told == ["n1", "n1", "n1"]
