from isthmus import names
from isthmus.domain.exporter.locations import Location, locations
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node
from isthmus.model.pod import Pod, PodSpec

_GROUP = names.NVLINK_GROUP_LABEL


def _pod(name: str, node: str) -> Pod:
    labels = {names.POD_HOSTNAME_LABEL: f"slurm-{name}", names.INSTANCE_LABEL: "gpu"}
    return Pod(metadata=ObjectMeta(name=name, labels=labels), spec=PodSpec(node_name=node))


def test_a_worker_is_where_its_machine_is() -> None:
    grouped = [Node(metadata=ObjectMeta(name="k1", labels={_GROUP: "g7"}))]
    found = locations([_pod("a", "k1"), _pod("b", "k2"), _pod("c", "")], grouped)
    assert found == {
        "k1": Location("g7"),
        "slurm-a": Location("g7", "gpu"),
        "slurm-b": Location("", "gpu"),
        "slurm-c": Location("", "gpu"),
    }


def test_a_node_of_the_bridge_has_the_name_that_slurm_knows() -> None:
    node = Node(metadata=ObjectMeta(name="k1", labels={_GROUP: "g7", names.NODE_NAME_LABEL: "s1"}))
    assert locations([], [node]) == {"s1": Location("g7")}
