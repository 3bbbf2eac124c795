"""Slurm's topology from the labels of machines."""

from typing import Any

import msgspec

from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files, located
from isthmus.domain.operator.slurmfiles.topology import Place, places
from isthmus.domain.operator.slurmfiles.topology import files as topology_files
from isthmus.model.slinky import Controller, NetworkTopology, NodeSet
from isthmus.model.slurm import Node

TREE, BLOCK = NetworkTopology("tree"), NetworkTopology("block")
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


def place(node: str, fabric: str = "root", **tiers: str) -> Place:
    return Place(node, {f"topology.nebius.com/{key.replace('_', '-')}": it for key, it in tiers.items()}, fabric)


def conf(topology: NetworkTopology, *places: Place, with_yaml: bool = True) -> list[str]:
    made = topology_files(topology, places, with_yaml=with_yaml)
    assert list(made) == ["topology.conf"]
    return made["topology.conf"].splitlines()


def test_tiers_are_switches_and_the_first_is_the_leaf() -> None:
    places = [place(f"w-{it}", tier_1=f"leaf{it // 2}", tier_2="spine", tier_0="ignored") for it in range(4)]
    assert conf(TREE, *places[::-1]) == [
        "SwitchName=root Switches=spine",
        "SwitchName=spine Switches=leaf0,leaf1",
        "SwitchName=leaf0 Nodes=w-[0-1]",
        "SwitchName=leaf1 Nodes=w-[2-3]",
    ]


def test_a_tier_that_is_missing_ends_the_path() -> None:
    assert conf(TREE, place("w-0", tier_1="leaf", tier_3="far"), place("w-1", tier_2="spine")) == [
        "SwitchName=root Switches=leaf,unknown",
        "SwitchName=leaf Nodes=w-0",
        "SwitchName=unknown Nodes=w-1",
    ]


def test_regions_and_zones_count_where_there_are_no_tiers() -> None:
    places = [Place(f"w-{it}", {REGION: "north", ZONE: f"north-{it}"}) for it in range(2)]
    assert conf(TREE, *places) == [
        "SwitchName=root Switches=north",
        "SwitchName=north Switches=north-0,north-1",
        "SwitchName=north-0 Nodes=w-0",
        "SwitchName=north-1 Nodes=w-1",
    ]


def test_labels_of_the_author_count_alone() -> None:
    own = NetworkTopology("tree", labels=("row", "rack"))
    places = [Place("a", {"row": "1", "rack": "7", ZONE: "z"}), Place("b", {"row": "1"})]
    assert conf(own, *places) == [
        "SwitchName=root Switches=1,unknown",
        "SwitchName=1 Switches=7",
        "SwitchName=7 Nodes=a",
        "SwitchName=unknown Nodes=b",
    ]
    assert conf(NetworkTopology("block", labels=("row", "rack"), block_size=1), *places)[0] == "BlockName=7 Nodes=a"


def test_no_switch_has_the_name_of_another() -> None:
    places = [Place(f"w-{it}", {REGION: f"r{it}", ZONE: "a"}) for it in range(2)]
    assert conf(TREE, *places, Place("x", {REGION: "root", ZONE: "root"})) == [
        "SwitchName=root Switches=r0,r1,root.root",
        "SwitchName=r0 Switches=a",
        "SwitchName=a Nodes=w-0",
        "SwitchName=r1 Switches=r1.a",
        "SwitchName=r1.a Nodes=w-1",
        "SwitchName=root.root Switches=root.root.root",
        "SwitchName=root.root.root Nodes=x",
    ]


def test_a_switch_has_switches_or_nodes_below_it() -> None:
    """Slurm takes only one of them."""
    assert conf(TREE, Place("a", {REGION: "r", ZONE: "z"}), Place("b", {REGION: "r"})) == [
        "SwitchName=root Switches=r",
        "SwitchName=r Switches=unknown,z",
        "SwitchName=unknown Nodes=b",
        "SwitchName=z Nodes=a",
    ]


def test_names_are_such_that_slurm_takes_them() -> None:
    labels = ["1" * 20, "a b[1-2]", "x" * 100, "x" * 101]
    named = [line.split()[0].removeprefix("SwitchName=") for line in conf(TREE, *map(_in_leaf, labels))][1:]
    assert named[0] == "1" * 20 + "_"
    assert named[1] == "a_b_1-2_"
    assert len(set(named)) == len(labels)
    assert all(len(it) <= 63 for it in named)


def _in_leaf(leaf: str) -> Place:
    return place(f"n-{len(leaf)}", tier_1=leaf)


def test_each_fabric_has_its_own_top() -> None:
    """Slurm never gives a job nodes without a switch in common."""
    places = [place("a-0", "ib", tier_1="l0"), place("b-0", "eth"), place("c-0")]
    assert conf(TREE, *places, with_yaml=False) == [
        "SwitchName=eth Switches=eth.unknown",
        "SwitchName=eth.unknown Nodes=b-0",
        "SwitchName=ib Switches=l0",
        "SwitchName=l0 Nodes=a-0",
        "SwitchName=root Switches=unknown",
        "SwitchName=unknown Nodes=c-0",
    ]


def test_partitions_can_choose_a_fabric_by_its_name() -> None:
    places = [place("a-0", "ib", tier_1="l0"), place("b-0", "eth", tier_1="l0")]
    (made,) = topology_files(TREE, places, with_yaml=True).items()
    assert made[0] == "topology.yaml"
    found = msgspec.yaml.decode(made[1])
    assert [(it["topology"], it["cluster_default"]) for it in found] == [
        ("default", True),
        ("eth", False),
        ("ib", False),
    ]
    assert found[1]["tree"]["switches"] == [
        {"switch": "eth", "children": "l0"},
        {"switch": "l0", "nodes": "b-0"},
    ]
    blocks = msgspec.yaml.decode(topology_files(BLOCK, places, with_yaml=True)["topology.yaml"])
    assert blocks[2]["block"] == {"block_sizes": [18], "blocks": [{"block": "ib.l0", "nodes": "a-0"}]}


def test_blocks_are_nvlink_groups_or_tiers() -> None:
    places = [
        Place("w-0", {"topology.nebius.com/nvl-instance-group-id": "g1", "topology.nebius.com/tier-0": "t"}),
        place("w-1", tier_0="t1"),
        place("w-2", tier_0="t1"),
        place("w-3"),
    ]
    lines = ["BlockName=g1 Nodes=w-0", "BlockName=t1 Nodes=w-[1-2]", "BlockName=unknown Nodes=w-3"]
    assert conf(BLOCK, *places) == [*lines, "BlockSizes=18"]
    assert conf(NetworkTopology("block", block_size=4), *places)[-1] == "BlockSizes=4"
    # With a smaller block than that, an older slurmctld would not start.
    assert conf(BLOCK, *places, with_yaml=False) == [*lines, "BlockSizes=1"]


# Which nodes there are


def workers(name: str, **spec: Any) -> Workers:
    manifest = {"metadata": {"name": name, "namespace": "n"}, "spec": {"controllerRef": {"name": "s"}, **spec}}
    return Workers.of(msgspec.convert(manifest, NodeSet))


def test_nodes_of_all_kinds_have_a_place() -> None:
    """Of dynamic nodes, slurmctld places those that it knows when it reads the file."""
    sets = [
        workers("dyn", replicas=2, fabric="ib"),
        workers("static", replicas=1, registration="Static"),
        workers("cloud", replicas=1, autoscale={}),
    ]
    known = {it: Node(name=it) for it in ("dyn-1", "other")} | {"k9": Node(name="k9", state=("IDLE", "EXTERNAL"))}
    labels = {"k1": {ZONE: "a"}, "k9": {ZONE: "b"}, "other": {ZONE: "never"}}
    found = places(sets, known=known, machines={"dyn-1": "k1", "dyn-0": "k1", "static-0": "gone"}, labels=labels)
    assert found == (
        Place("dyn-1", {ZONE: "a"}, "ib"),
        Place("static-0"),
        Place("cloud-0"),
        Place("other"),
        Place("k9", {ZONE: "b"}),
    )


# Beside slurm.conf


def of_cluster(version: str = "24.11.5", *, plugin: str = "tree", **inputs: Any) -> Inputs:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"name": "s", "namespace": "n"}, "spec": {**keys, "topology": {"plugin": plugin}}}
    controller = msgspec.convert(manifest, Controller)
    return Inputs(controller=controller, settings=Settings(cgroup="none"), version=version, **inputs)


def cluster(version: str = "24.11.5", **inputs: Any) -> dict[str, str]:
    return files(of_cluster(version, **inputs))


def test_the_plugin_comes_with_the_first_node() -> None:
    assert "TopologyPlugin" not in cluster()["slurm.conf"]
    made = cluster(places=(place("w-0"),))
    assert "TopologyPlugin=topology/tree" in made["slurm.conf"]
    assert "SwitchName=unknown Nodes=w-0" in made["topology.conf"]


def test_while_slurm_does_not_answer_the_topology_stays() -> None:
    before = {"topology.conf": "SwitchName=s Nodes=w-0\n"}
    made = cluster(places=None, topology_before=before)
    assert made["topology.conf"] == before["topology.conf"]
    assert "TopologyPlugin=topology/tree" in made["slurm.conf"]


def test_a_file_of_the_user_takes_the_place_of_ours() -> None:
    made = cluster("26.05.1", places=(place("w-0", "a"), place("w-1", "b")), given={"topology.conf": "mine"})
    assert made["topology.conf"] == "mine"
    assert "topology.yaml" not in made
    assert "TopologyPlugin=topology/tree" in made["slurm.conf"]


def test_a_node_is_located_when_its_machine_says_where_it_is() -> None:
    found = (place("w-0", tier_1="leaf"), place("w-1"), place("w-2", tier_0="block"))
    assert located(of_cluster(places=found)) == {"w-0"}
    assert located(of_cluster(plugin="block", places=found)) == {"w-0", "w-2"}
    assert not located(of_cluster(places=None))


def test_with_a_topology_of_the_user_all_nodes_are_located() -> None:
    sets = (workers("w", replicas=2, autoscale={}),)
    assert located(of_cluster(workers=sets, given={"topology.conf": "mine"})) == {"w-0", "w-1"}
