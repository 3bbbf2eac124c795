"""Which groups a node counts in, and with what. The names of amounts are those of slurmctld's own metrics."""

from typing import Final, NamedTuple

from isthmus.domain.exporter import nodestates
from isthmus.domain.exporter.jobfacts import counted, gpus
from isthmus.domain.exporter.sums import ALL, STATE, Amounts, Group
from isthmus.model.slurm import Node

_MIB: Final = 1 << 20
_WORDS: Final = {
    "ALLOCATED": "alloc",
    "BLOCKED": "blocked",
    "CLOUD": "cloud",
    "COMPLETING": "completing",
    "DOWN": "down",
    "DRAIN": "drain",
    "DYNAMIC_FUTURE": "dyn_future",
    "DYNAMIC_NORM": "dyn_normal",
    "ERROR": "error",
    "EXTERNAL": "external",
    "FAIL": "fail",
    "FUTURE": "future",
    "IDLE": "idle",
    "INVALID_REG": "invalid_reg",
    "MAINTENANCE": "maint",
    "MIXED": "mixed",
    "NOT_RESPONDING": "noresp",
    "PLANNED": "planned",
    "POWER_DOWN": "power_down",
    "POWER_UP": "power_up",
    "POWERED_DOWN": "powered_down",
    "POWERING_DOWN": "powering_down",
    "POWERING_UP": "powering_up",
    "REBOOT_ISSUED": "reboot_issued",
    "REBOOT_REQUESTED": "reboot_req",
    "RESERVED": "resv",
    "UNKNOWN": "unknown",
}
COUNTS: Final = tuple(sorted([*_WORDS.values(), "drained", "draining"]))


class NodeFacts(NamedTuple):
    """A node, as the families of the exporter count it. Memory is in bytes."""

    node: Node
    state: str
    reason_class: str
    cpus: int
    cpus_alloc: int
    cpus_idle: int
    cpus_effective: int
    gpus: int
    gpus_alloc: int
    memory: int
    memory_alloc: int
    memory_free: int
    memory_effective: int


def facts(node: Node) -> NodeFacts:
    """Read a node's record."""
    effective = node.effective_cpus or node.cpus
    return NodeFacts(
        node=node,
        state=nodestates.state(node.state),
        reason_class=nodestates.reason_class(node.reason),
        cpus=node.cpus,
        cpus_alloc=node.alloc_cpus,
        cpus_idle=max(0, effective - node.alloc_cpus),
        cpus_effective=effective,
        gpus=gpus(node.gres) or counted(node.tres).gpus,
        gpus_alloc=gpus(node.gres_used) or counted(node.tres_used or "").gpus,
        memory=node.real_memory * _MIB,
        memory_alloc=node.alloc_memory * _MIB,
        memory_free=int(node.free_mem.value or 0) * _MIB,
        memory_effective=max(0, node.real_memory - node.specialized_memory) * _MIB,
    )


def groups(node: NodeFacts) -> tuple[Group, ...]:
    """Which groups a node counts in."""
    own: tuple[Group, ...] = (ALL, *(("partition", partition) for partition in node.node.partitions))
    return (*own, ("class", node.reason_class)) if node.state in nodestates.OUT else own


def amounts(node: NodeFacts) -> Amounts:
    """With what a node counts."""
    found: dict[str, float] = {"nodes": 1, f"{STATE}{node.state}": 1}
    for state in node.node.state:
        if word := _WORDS.get(state):
            found[word] = 1
    if node.state in {"drained", "draining"}:
        found[node.state] = 1
    if node.cpus_alloc:
        found["nodes_alloc"] = 1
    # What is idle on a node that takes no jobs is neither idle nor allocated to who looks for room.
    found["cpus_other"] = node.cpus_idle if node.state in nodestates.OUT else 0
    for name in NodeFacts._fields[3:]:
        found[name] = getattr(node, name)
    return found
