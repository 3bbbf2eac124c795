"""NodeSets as Slurm sees them: features, partitions, nodes that stand in the file, and their GRES."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.languages import hostlist, slurmconf
from isthmus.domain.languages.slurmconf import ConfigError, Directive, Include, Line, Value
from isthmus.domain.operator import partnames
from isthmus.domain.operator.nodeset import devices, identity
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
    def of(cls, nodeset: NodeSet, *, present: Iterable[str] = (), dynamic: Collection[str] = ()) -> "Workers":
        """Read a NodeSet; `present` are the Slurm nodes of its pods. A node with a pod keeps its line.

        `dynamic` are those of them that made themselves known. Where the NodeSet has become elastic since, they
        have no line before their pods are gone: slurmd would end, and with it its jobs.
        """
        spec = nodeset.spec
        leaving = nodeset.metadata.deletion_timestamp is not None or spec.scaling_mode == "DaemonSet"
        wanted = 0 if leaving else spec.replicas
        replicas = (identity.numbered(nodeset, ordinal).hostname for ordinal in range(wanted))
        unlisted = frozenset(dynamic if nodeset.elastic else ())
        nodes = sorted({*replicas, *present} - unlisted, key=hostlist.natural_key)
        return cls(nodeset=nodeset, shape=shape_of(nodeset), nodes=tuple(nodes))

    @property
    def name(self) -> str:
        return partnames.slurm_nodeset(self.nodeset)

    @property
    def elastic(self) -> bool:
        """Whether Slurm starts and stops its nodes."""
        return self.nodeset.elastic

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


def gres_lines(workers: Iterable[Workers]) -> Iterator[Line]:
    """What gres.conf says of nodes: the lines of their author, what is only counted, and where devices stand."""
    found = False
    for each in workers:
        hosts = _hosts(each)
        if not hosts:
            continue
        for text in each.nodeset.spec.gres_config:
            yield _given_line(each.name, hosts, text)
        sources = devices.sources(each.nodeset)
        found = found or bool(sources)
        counted = () if each.nodeset.spec.gres_config else each.shape.gres
        for gres, count in counted:
            name, _, kind = gres.partition(":")
            if any((it.name, it.kind) == (name, kind) for it in sources):
                continue
            settings: dict[str, Value] = {"NodeName": hosts, "Name": name}
            if kind:
                settings["Type"] = kind
            yield Directive.of(settings | {"Count": count or "1"})
    if found:
        yield Include(devices.NODE_GRES)


def cloud_gres_lines(workers: Iterable[Workers]) -> Iterator[Directive]:
    """Devices of nodes that are not up, for slurmctld. It opens no file, but drops a GPU without one."""
    for each in workers:
        if not each.elastic:
            continue
        for it in devices.sources(each.nodeset):
            settings: dict[str, Value] = {"NodeName": _hosts(each), "Name": it.name}
            if it.kind:
                settings["Type"] = it.kind
            if it.finder == "share":
                settings["Count"] = it.count
            else:
                settings["File"] = f"/dev/{it.name}{it.kind}[0-{it.count - 1}]"
            yield Directive.of(settings)


def _given_line(nodeset: str, hosts: str, text: str) -> Line:
    line = slurmconf.parse_line(f"NodeName={hosts} {text}")
    if [key.lower() for key, _ in line.settings].count("nodename") > 1:
        raise ConfigError(
            f"gresConfig of NodeSet {nodeset} sets NodeName",
            remedy="leave it out: the lines are for the nodes of this NodeSet",
        )
    return line


def _hosts(each: Workers) -> str:
    """All nodes that a NodeSet has or may get, so that growing by some changes nothing."""
    if each.nodeset.spec.scaling_mode == "DaemonSet":
        return hostlist.fold(each.nodes)
    first = identity.numbered(each.nodeset, 0)
    last = str(room_for(len(each.nodes)) - 1).zfill(len(first.padded))
    return f"{first.hostname.removesuffix(first.padded)}[{first.padded}-{last}]"
