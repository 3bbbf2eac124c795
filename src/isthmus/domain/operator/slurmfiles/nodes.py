"""NodeSets as Slurm sees them: features, partitions, nodes that stand in the file, and their GRES."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.languages import hostlist, slurmconf
from isthmus.domain.languages.slurmconf import ConfigError, Directive, Value
from isthmus.domain.operator import partnames
from isthmus.domain.operator.nodeset import identity
from isthmus.domain.operator.nodeset.shape import Shape, shape_of
from isthmus.model.slinky import NodeSet

_FEWEST: Final = 1024
_BETWEEN_HOSTS: Final = re.compile(r",(?![^\[]*\])")


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    nodeset: NodeSet
    shape: Shape
    nodes: tuple[str, ...] = ()
    """The names of nodes that there are or shall be: of its replicas, and of every pod that is still there."""

    @classmethod
    def of(cls, nodeset: NodeSet, *, present: Iterable[str] = ()) -> "Workers":
        """Read a NodeSet; `present` are the Slurm nodes of its pods. A node with a pod keeps its line."""
        spec = nodeset.spec
        leaving = nodeset.metadata.deletion_timestamp is not None or spec.scaling_mode == "DaemonSet"
        wanted = 0 if leaving else spec.replicas
        replicas = (identity.numbered(nodeset, ordinal).hostname for ordinal in range(wanted))
        nodes = sorted({*replicas, *present}, key=hostlist.natural_key)
        return cls(nodeset=nodeset, shape=shape_of(nodeset), nodes=tuple(nodes))

    @property
    def name(self) -> str:
        return partnames.slurm_nodeset(self.nodeset)

    @property
    def elastic(self) -> bool:
        """Whether Slurm starts and stops its nodes."""
        return self.nodeset.spec.elastic

    @property
    def static(self) -> bool:
        """Whether its nodes are listed in slurm.conf, with their addresses."""
        return self.nodeset.spec.registration == "Static" and not self.elastic

    @property
    def range(self) -> str:
        """Its nodes as a host list."""
        return hostlist.fold(self.nodes)


def room_for(nodes: int) -> int:
    """How many nodes to leave room for: a power of two, so that small changes change nothing."""
    return max(_FEWEST, 1 << (2 * nodes - 1).bit_length()) if nodes else _FEWEST


def node_lines(
    workers: Iterable[Workers], *, controller: str, namespace: str, idle: Mapping[str, int] | None = None
) -> Iterator[Directive]:
    """Declare nodes that do not make themselves known. `idle` is the SuspendTime of elastic ones, by NodeSet."""
    domain = f"{partnames.workers_service(controller)}.{namespace}.svc"
    for each in workers:
        if not (each.static or each.elastic) or not each.nodes:
            continue
        shape = each.shape
        hosts = each.range
        settings: dict[str, Value] = {"NodeName": hosts}
        if each.static:
            settings["NodeAddr"] = _BETWEEN_HOSTS.sub(f".{domain},", hosts) + f".{domain}"
        if shape.cpus is not None:
            settings["CPUs"] = shape.cpus
        if shape.memory is not None:
            settings["RealMemory"] = shape.memory
        if shape.gres:
            settings["Gres"] = shape.gres_text
        settings["Feature"] = shape.features
        if each.elastic:
            # Its address is that from which it registers.
            settings["State"] = "CLOUD"
            if idle and each.name in idle:
                settings["SuspendTime"] = idle[each.name]
            settings |= _weight(each)
        yield Directive.of(settings | dict(shape.further))


def _weight(each: Workers) -> dict[str, Value]:
    """Slurm takes nodes of the lowest weight first; what extraConf says goes before."""
    policy = each.nodeset.spec.autoscale
    return {"Weight": policy.fallback_order + 1} if policy and policy.fallback_order else {}


def nodeset_lines(workers: Iterable[Workers]) -> Iterator[Directive]:
    """Declare each NodeSet by its feature, and its partition where it has one."""
    for each in workers:
        yield Directive.of({"NodeSet": each.name, "Feature": each.name})
        partition = each.nodeset.spec.partition
        if partition.enabled:
            yield _partition(each.name, partition.config)


def _partition(name: str, config: str) -> Directive:
    """Write a partition with the settings that the user gave as one text."""
    checked = Directive.of({"PartitionName": name, "Nodes": name}).render()
    line = slurmconf.parse_line(f"{checked} {config.strip()}".strip())
    keys = [key.lower() for key, _ in line.settings]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ConfigError(
            f"the partition of NodeSet {name} sets {', '.join(sorted(twice))} twice",
            remedy="PartitionName and Nodes are set already; remove them from partition.config",
        )
    return line


def gres_types(workers: Iterable[Workers]) -> tuple[str, ...]:
    return tuple(sorted({name.partition(":")[0] for each in workers for name, _ in each.shape.gres}))


def gres_lines(workers: Iterable[Workers]) -> Iterator[Directive]:
    """Which nodes have how many of a GRES, for devices that slurmd does not find by itself."""
    for each in workers:
        hosts = _hosts(each)
        for gres, count in each.shape.gres if hosts else ():
            name, _, kind = gres.partition(":")
            settings: dict[str, Value] = {"NodeName": hosts, "Name": name}
            if kind:
                settings["Type"] = kind
            yield Directive.of(settings | {"Count": count or "1"})


def _hosts(each: Workers) -> str:
    """All nodes that a NodeSet has or may get, so that growing by some changes nothing."""
    if each.nodeset.spec.scaling_mode == "DaemonSet":
        return hostlist.fold(each.nodes)
    first = identity.numbered(each.nodeset, 0)
    last = str(room_for(len(each.nodes)) - 1).zfill(len(first.padded))
    return f"{first.hostname.removesuffix(first.padded)}[{first.padded}-{last}]"
