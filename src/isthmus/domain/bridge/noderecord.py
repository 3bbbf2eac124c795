"""What a Kubernetes node is in Slurm: the line that it is made from, and the record that says whose it is.

Its size is what Kubernetes can really give there: its allocatable, less a reserve for all pods that Slurm did not
place. Slurm changes the size of a node only by making it again, which needs an idle node. So the reserve is rounded
up: to whole CPUs, and to hundredths of the memory. A pod of a DaemonSet that comes or goes then seldom matters, and
nodes on which the same pods run stay alike.

The record stands in the Slurm node's `extra` field. It names our cluster, because several may share one Slurm, and
holds what we asked for. A node has changed its size when it is no longer what we asked for then; what Slurm made of
it does not matter, since Slurm leaves out GRES that its `GresTypes` does not name, and we would ask forever.

Slurm makes a node without that field, which is set a moment later. Until then the node's reason names our cluster.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.bridge import gresindex
from isthmus.domain.bridge.devices import NO_DEVICES, NodeDevices
from isthmus.domain.bridge.gresindex import Order
from isthmus.domain.languages import quantity
from isthmus.domain.languages.gresnames import gres_of
from isthmus.domain.languages.slurmconf import Directive, Value
from isthmus.domain.languages.tres import Gres, TresError, parse_gres
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode

OURS: Final = "slurm-bridge:"
"""How every reason begins that we give to Slurm. Other reasons are not ours."""

_NEW: Final = f"{OURS} registered by Kubernetes cluster "
_VERSION: Final = 1
_MIB: Final = 1 << 20
_STEPS: Final = 100
"""Into so many steps of memory a node is divided for its reserve."""

_SMALL: Final = 20
"""A change of size by at most this part (a twentieth) is small."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_FEATURE = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_BEST_ADDRESSES: Final = ("InternalIP", "ExternalIP")


class Record(msgspec.Struct, frozen=True):
    """What we asked Slurm for. Memory is in MiB."""

    cluster: str
    cpus: int
    memory: int
    gres: str = ""
    features: tuple[str, ...] = ()
    topology: str = ""
    isthmus: int = _VERSION
    devices: Order = ()
    """The devices of drivers (DRA) in the order of their indices, for as long as the node exists."""

    def close_to(self, other: "Record") -> bool:
        """Whether two sizes differ so little that no pod has to leave the node for it."""
        return (
            (self.gres, self.devices) == (other.gres, other.devices)
            and abs(self.cpus - other.cpus) * _SMALL <= self.cpus
            and abs(self.memory - other.memory) * _SMALL <= self.memory
        )

    @property
    def size(self) -> tuple[int, int, str]:
        """What cannot be changed while the node exists."""
        return self.cpus, self.memory, self.gres

    def write(self) -> str:
        """Write it as the node's `extra`."""
        return _encode(self).decode()


class Wanted(msgspec.Struct, frozen=True):
    """A node as it should be in Slurm."""

    name: str
    hostname: str
    """The node's name in Kubernetes."""
    address: str
    record: Record


class Reserve(msgspec.Struct, frozen=True):
    """What is not Slurm's to give on a node, as `podshape.requests_of` counts it."""

    amounts: Mapping[str, int] = MappingProxyType({})
    workers: tuple[str, ...] = ()
    """The Slurm nodes whose slurmd runs there."""


NO_RESERVE: Final = Reserve()


class NothingLeftError(Terminal):
    """A node has nothing left to give."""


_decode = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder().encode


def read(node: SlurmNode) -> Record | None:
    """Read the record of a node; None for anything else."""
    if '"isthmus"' not in node.extra:
        return None
    try:
        record = _decode(node.extra)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return record if record.isthmus == _VERSION and record.cluster else None


def cluster_of(node: SlurmNode) -> str:
    """Which Kubernetes cluster made a node; empty if none of ours did."""
    if record := read(node):
        return record.cluster
    return node.reason.removeprefix(_NEW) if node.reason.startswith(_NEW) else ""


def is_new(node: SlurmNode) -> bool:
    """Whether the node still has the reason that it was made with."""
    return node.reason.startswith(_NEW)


def actual(node: SlurmNode, cluster: str) -> Record:
    """Make a record of what is there, for a node of ours that has none yet."""
    try:
        gres = Counter[str]()
        for it in parse_gres(node.gres.replace(":(null)", "")):
            gres[f"{it.name}:{it.type}" if it.type else it.name] += it.count
    except TresError:
        gres = Counter()
    return Record(cluster, node.cpus, node.real_memory, gres=_gres_text(gres), topology=node.topology)


def partitions(node: Node) -> tuple[str, ...]:
    text = node.metadata.annotations.get(names.NODE_PARTITIONS_ANNOTATION, "")
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def reserve(requests: Mapping[str, int], workers: Iterable[tuple[SlurmNode, Mapping[str, int]]]) -> Reserve:
    """Add up what is not Slurm's to give: the requests of all pods that it did not place, `workers` among them.

    Those come with the Slurm node that runs in them, and what they request. The machine is counted once: what Slurm
    has of it by the worker is not given a second time, also where the worker requests less than that.
    """
    amounts = dict(requests)
    found = []
    for node, asked in workers:
        found.append(node.name)
        for resource, has in (("cpu", node.cpus * 1000), ("memory", node.real_memory * _MIB)):
            amounts[resource] = amounts.get(resource, 0) + max(0, has - asked.get(resource, 0))
    return Reserve(amounts, tuple(sorted(found)))


def describe(
    node: Node,
    name: str,
    *,
    cluster: str,
    gres: Mapping[str, str] = EMPTY,
    feature_labels: Sequence[str] = (),
    reserved: Reserve = NO_RESERVE,
    devices: NodeDevices = NO_DEVICES,
) -> Wanted:
    """What a Kubernetes node should be in Slurm. Raises `Terminal` with what is wrong with the node."""
    allocatable = node.status.allocatable
    cpus, memory = _cpus(allocatable, reserved), _memory(allocatable, reserved)
    if devices.cpus:
        # Those that their driver keeps for the system have no place among Slurm's cores.
        cpus = min(cpus, devices.cpus)
    if cpus < 1 or memory < 1:
        raise _nothing_left(cpus, memory, reserved)
    features = (*partitions(node), *(node.metadata.labels.get(label, "") for label in feature_labels))
    wanted = Wanted(
        name=_checked(name, _NAME, "the name of a Slurm node"),
        hostname=node.metadata.name,
        address=_address(node),
        record=Record(
            cluster=cluster,
            cpus=cpus,
            memory=memory,
            gres=_gres_text(_devices(allocatable, gres, reserved) + devices.gres),
            features=tuple(_checked(it, _FEATURE, "a feature") for it in dict.fromkeys(features) if it),
            topology=node.metadata.annotations.get(names.NODE_TOPOLOGY_ANNOTATION, "").strip(),
            devices=gresindex.written(devices, node=node.metadata.name),
        ),
    )
    line([wanted])  # A value that cannot stand in a line is found here, where it can be reported for this node.
    return wanted


def line(nodes: Sequence[Wanted]) -> Directive:
    """Write the line that makes these nodes, which are alike but for names and addresses."""
    record = nodes[0].record
    settings: dict[str, Value] = {
        "NodeName": tuple(node.name for node in nodes),
        "NodeAddr": tuple(node.address for node in nodes),
        "NodeHostname": tuple(node.hostname for node in nodes),
        "Sockets": 1,
        "CoresPerSocket": record.cpus,
        "ThreadsPerCore": 1,
        "CPUs": record.cpus,
        "RealMemory": record.memory,
        "State": "EXTERNAL",
        "Reason": f"{_NEW}{record.cluster}",
    }
    if record.features:
        settings["Feature"] = record.features
    if record.topology:
        settings["Topology"] = record.topology
    if record.gres:
        settings["Gres"] = record.gres
        # Without it Slurm drops GPUs that have no device files, and then refuses the line.
        settings["GresConf"] = "+".join(
            _gres_conf(it, indexed=bool(record.devices)) for it in parse_gres(record.gres)
        )
    return Directive.of(settings)


def _gres_conf(gres: Gres, *, indexed: bool) -> str:
    """Describe the devices of a GRES. Only where they have files, Slurm says by their index which ones a job has.

    On a node without slurmd nobody opens those files, and they need not be there.
    """
    kind = f"count={gres.count},name={gres.name}" + (f",type={gres.type}" if gres.type else "")
    if not indexed:
        return kind
    numbers = f"[0-{gres.count - 1}]" if gres.count > 1 else "0"
    return f"{kind},file=/dev/{gres.name}-{gres.type}-{numbers}"


def _cpus(allocatable: Mapping[str, str], reserved: Reserve) -> int:
    # Rounded down, as opposed to what pods ask for: what is promised must be there.
    milli = quantity.parse(allocatable.get("cpu", "0")) * 1000 // quantity.ONE
    return (milli - reserved.amounts.get("cpu", 0)) // 1000


def _memory(allocatable: Mapping[str, str], reserved: Reserve) -> int:
    has = quantity.parse(allocatable.get("memory", "0")) // quantity.ONE // _MIB
    step = max(1, has // _STEPS)
    return has - -(-reserved.amounts.get("memory", 0) // (step * _MIB)) * step


def _nothing_left(cpus: int, memory: int, reserved: Reserve) -> Terminal:
    left = f"{max(0, cpus)} whole CPUs and {max(0, memory)} MiB of memory"
    if reserved.workers:
        workers = ", ".join(reserved.workers)
        return NothingLeftError(
            f"Slurm has this machine already as {workers}, and {left} are left beside it",
            remedy=f"remove its label {names.EXTERNAL_NODE_LABEL}: Slurm places pods on {workers} without it; or "
            "set resources of the NodeSet, so that its workers leave something",
        )
    if reserved.amounts:
        return NothingLeftError(
            f"pods that Slurm did not place use all of it: {left} left",
            remedy="see kubectl describe node; config.taint keeps other pods away",
        )
    return Terminal(f"it has {left} to give", remedy="see its allocatable")


def _devices(allocatable: Mapping[str, str], table: Mapping[str, str], reserved: Reserve) -> Counter[str]:
    found: Counter[str] = Counter()
    for resource, amount in allocatable.items():
        gres = gres_of(resource, table)
        if gres:
            found[gres] += max(0, quantity.parse(amount) // quantity.ONE - reserved.amounts.get(resource, 0))
    return found


def _gres_text(counts: Mapping[str, int]) -> str:
    return ",".join(f"{gres}:{count}" for gres, count in sorted(counts.items()) if count > 0)


def _address(node: Node) -> str:
    """Find an address. With a name in its place slurmctld would stop to look it up."""
    for type_ in _BEST_ADDRESSES:
        for found in node.status.addresses:
            if found.type == type_:
                try:
                    return str(ipaddress.ip_address(found.address))
                except ValueError:
                    continue
    raise Terminal("it has no InternalIP or ExternalIP yet", remedy="its kubelet or cloud provider sets it")


def _checked(text: str, pattern: re.Pattern[str], what: str) -> str:
    if not pattern.fullmatch(text):
        raise Terminal(f"{text[:60]!r} cannot be {what}", remedy="use letters, digits and _ . -")
    return text
