"""The network as Slurm sees it, from the labels of the machines that nodes run on.

    labels of a machine                    tree: switches from the top    block
    topology.nebius.com/tier-2, tier-1     root → tier-2 → tier-1         nvl-instance-group-id, tier-0, tier-1
    topology.kubernetes.io/region, zone    root → region → zone           zone

The top is the fabric of the NodeSet: Slurm never gives a job nodes of two fabrics. A node whose machine has no
label, or that runs nowhere yet, hangs below `unknown`. Only nodes that slurmctld knows are named: one that it
learns of later would be in no place until it reads the file again.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.languages import hostlist
from isthmus.domain.operator.slurmfiles.nodes import Workers
from isthmus.model.slinky import NetworkTopology
from isthmus.model.slurm import Node

FILES: Final = ("topology.conf", "topology.yaml")
FIRST_WITH_YAML: Final = (25, 5)
"""The first release in which topologies can stand side by side, and blocks may be smaller than their size."""

_FABRIC: Final = "root"
_BLOCK_SIZE: Final = 18
_REGIONS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_TIERS: Final = tuple(f"{names.TOPOLOGY_PREFIX}tier-{it}" for it in range(1, 9))
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_MAX_CHARS: Final = 63
_MANY_DIGITS: Final = re.compile(r"[0-9]{18,}$")


class Place(msgspec.Struct, frozen=True, gc=False):
    """A node of Slurm, and the machine that it runs on."""

    node: str
    labels: Mapping[str, str] = {}
    """Of the machine; none while there is none."""
    fabric: str = _FABRIC


def places(
    workers: Iterable[Workers],
    *,
    known: Mapping[str, Node],
    machines: Mapping[str, str],
    labels: Mapping[str, Mapping[str, str]],
) -> tuple[Place, ...]:
    """Find the places of all nodes that slurmctld knows, or reads in slurm.conf.

    `known` are its nodes, `machines` those that nodes of ours run on, and `labels` those of all machines.
    """
    found: dict[str, Place] = {}
    for each in workers:
        fabric, in_file = each.nodeset.spec.fabric, each.static or each.elastic
        for name in each.nodes:
            if in_file or name in known:
                found[name] = Place(name, labels.get(machines.get(name, ""), {}), fabric)
    for name, node in known.items():
        if name not in found:
            # Not of ours. One without slurmd bears the name of its machine.
            found[name] = Place(name, labels.get(name, {}) if "EXTERNAL" in node.state else {})
    return tuple(found.values())


def files(topology: NetworkTopology, places: Iterable[Place], *, with_yaml: bool) -> dict[str, str]:
    """Write topology.conf, or topology.yaml for several fabrics where Slurm knows it; nothing without nodes."""
    by_fabric: dict[str, list[Place]] = {}
    for place in sorted(places, key=lambda it: hostlist.natural_key(it.node)):
        by_fabric.setdefault(_name(place.fabric) or _FABRIC, []).append(place)
    if not by_fabric:
        return {}
    if topology.plugin == "block":
        blocks = {fabric: _blocks(topology, fabric, found) for fabric, found in sorted(by_fabric.items())}
        if with_yaml and len(blocks) > 1:
            return {"topology.yaml": "".join(_yaml_blocks(topology, blocks))}
        return {"topology.conf": _conf_blocks(topology, blocks, exact=with_yaml)}
    trees = {fabric: _tree(topology, fabric, found) for fabric, found in sorted(by_fabric.items())}
    if with_yaml and len(trees) > 1:
        return {"topology.yaml": "".join(_yaml_trees(trees))}
    return {"topology.conf": "".join(line for tree in trees.values() for line in _conf_tree(tree))}


def is_located(topology: NetworkTopology, place: Place) -> bool:
    """Whether the machine of a node says where it is."""
    return bool(_block(topology, place) if topology.plugin == "block" else _path(topology, place.labels))


# Trees


class _Switch:
    """A switch: what hangs below it, either switches or nodes."""

    __slots__ = ("below", "name", "nodes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.below: dict[str, _Switch] = {}
        self.nodes: list[str] = []


def _tree(topology: NetworkTopology, fabric: str, places: Iterable[Place]) -> _Switch:
    top = _Switch(fabric)
    unknown = "unknown" if fabric == _FABRIC else f"{fabric}.unknown"
    for place in places:
        switch = top
        for name in _path(topology, place.labels) or (unknown,):
            below = switch.below.get(name)
            if below is None:
                below = switch.below[name] = _Switch(name)
            switch = below
        switch.nodes.append(place.node)
    _name_apart(top, f"{fabric}.", {fabric})
    return top


def _path(topology: NetworkTopology, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Find the switches above a node, from the top to the leaf."""
    if topology.labels:
        found = [labels.get(key, "") for key in topology.labels]
        return tuple(map(_name, found)) if all(found) else ()
    tiers: list[str] = []
    for key in _TIERS:
        if key not in labels:
            break
        tiers.append(_name(labels[key]))
    return tuple(reversed(tiers)) or tuple(_name(labels[key]) for key in _REGIONS if key in labels)


def _name_apart(switch: _Switch, prefix: str, taken: set[str]) -> None:
    """Give every switch a name of its own, and nodes beside switches a switch."""
    if switch.below and switch.nodes:
        rest = _Switch("unknown")
        rest.nodes, switch.nodes = switch.nodes, []
        switch.below["\x00"] = rest
    for below in switch.below.values():
        if below.name in taken:
            below.name = _name(f"{prefix}{below.name}")
        while below.name in taken:
            below.name = _name(f"{below.name}_")
        taken.add(below.name)
    for below in switch.below.values():
        _name_apart(below, f"{below.name}.", taken)


def _switches(top: _Switch) -> Iterator[tuple[str, str, str]]:
    """Go through a tree: the name of a switch, the switches and the nodes below it."""
    children = sorted(top.below.values(), key=lambda it: hostlist.natural_key(it.name))
    yield top.name, ",".join(it.name for it in children), hostlist.fold(top.nodes) if top.nodes else ""
    for child in children:
        yield from _switches(child)


def _conf_tree(top: _Switch) -> Iterator[str]:
    for name, switches, nodes in _switches(top):
        yield f"SwitchName={name} Switches={switches}\n" if switches else f"SwitchName={name} Nodes={nodes}\n"


def _yaml_trees(trees: Mapping[str, _Switch]) -> Iterator[str]:
    """One topology of all fabrics, by default, and one of each, which a partition can choose by its name."""
    for title, shown in (("default", list(trees.values())), *((name, [tree]) for name, tree in trees.items())):
        yield f"- topology: {title}\n  cluster_default: {str(title == 'default').lower()}\n  tree:\n    switches:\n"
        for tree in shown:
            for name, switches, nodes in _switches(tree):
                yield f"      - switch: {name}\n"
                yield (
                    f"        children: {_quoted(switches)}\n" if switches else f"        nodes: {_quoted(nodes)}\n"
                )


# Blocks


def _blocks(topology: NetworkTopology, fabric: str, places: Iterable[Place]) -> dict[str, list[str]]:
    prefix = "" if fabric == _FABRIC else f"{fabric}."
    found: dict[str, list[str]] = {}
    for place in places:
        label = _block(topology, place) or "unknown"
        found.setdefault(_name(f"{prefix}{label}"), []).append(place.node)
    return dict(sorted(found.items(), key=lambda it: hostlist.natural_key(it[0])))


def _block(topology: NetworkTopology, place: Place) -> str:
    """The label that names the block of a node; empty where its machine has none."""
    keys = topology.labels[-1:] or (*names.BLOCK_LABELS, _REGIONS[-1])
    return next((place.labels[key] for key in keys if key in place.labels), "")


def _conf_blocks(topology: NetworkTopology, blocks: Mapping[str, Mapping[str, list[str]]], *, exact: bool) -> str:
    """Older releases end with a block that is smaller than the size of blocks."""
    all_of_them = {name: nodes for found in blocks.values() for name, nodes in found.items()}
    size = topology.block_size or _BLOCK_SIZE
    if not exact:
        size = min(size, *map(len, all_of_them.values()))
    lines = (f"BlockName={name} Nodes={hostlist.fold(nodes)}\n" for name, nodes in all_of_them.items())
    return f"{''.join(lines)}BlockSizes={size}\n"


def _yaml_blocks(topology: NetworkTopology, blocks: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
    size = topology.block_size or _BLOCK_SIZE
    whole = {name: nodes for found in blocks.values() for name, nodes in found.items()}
    for title, shown in (("default", whole), *blocks.items()):
        yield f"- topology: {title}\n  cluster_default: {str(title == 'default').lower()}\n"
        yield f"  block:\n    block_sizes:\n      - {size}\n    blocks:\n"
        for name, nodes in shown.items():
            yield f"      - block: {name}\n        nodes: {_quoted(hostlist.fold(nodes))}\n"


def _quoted(text: str) -> str:
    """A host list may begin with a bracket, or look like a number."""
    return f'"{text}"'


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    """Make a name that Slurm takes: no host list, no number that it cannot hold, not too long."""
    name = _NOT_A_NAME.sub("_", text)
    if _MANY_DIGITS.search(name):
        name += "_"
    if len(name) > _MAX_CHARS:
        mark = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: _MAX_CHARS - 9]}_{mark}_"[:_MAX_CHARS]
    return name
