"""Which nodes a run goes to: all usable workers, or some of them.

Chosen by the run's uid alone, so a process that is restarted in the middle chooses the same.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from isthmus.domain.languages.hostlist import natural_key
from isthmus.model.slurm import Node

MAX_JOBS: Final = 2000
"""Jobs of one run: what is known of each stands in an annotation, and all annotations have 256 KiB."""

_UNUSABLE: Final = frozenset(
    {
        "BLOCKED",
        "DOWN",
        "DRAIN",
        "ERROR",
        "EXTERNAL",
        "FAIL",
        "FUTURE",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "UNKNOWN",
    }
)
"""States in which a node would not start a job. External nodes have no slurmd that could run a script."""


def is_usable(node: Node) -> bool:
    return _UNUSABLE.isdisjoint(node.state)


def has_gpus(node: Node) -> bool:
    return any(it.partition(":")[0] == "gpu" for it in node.gres.split(","))


def candidates(nodes: Iterable[Node], *, partition: str, gpus: bool) -> list[str]:
    """Find the nodes that a check can run on; an empty partition is any."""
    found = (
        node.name
        for node in nodes
        if is_usable(node) and (not partition or partition in node.partitions) and (has_gpus(node) or not gpus)
    )
    return sorted(found, key=natural_key)


def chosen(names: Iterable[str], *, limit: int, seed: str) -> list[str]:
    """Choose at most `limit` nodes (0: all), other ones with each seed."""
    there = sorted(names, key=natural_key)
    most = min(limit or MAX_JOBS, MAX_JOBS)
    if len(there) <= most:
        return there
    picked = sorted(there, key=lambda name: draw(seed, name))[:most]
    return sorted(picked, key=natural_key)


def delay(seed: str, name: str, *, jitter: int) -> int:
    """How many seconds after the start of a run its job on a node begins."""
    return draw(seed, name) % (jitter + 1)


def draw(seed: str, name: str) -> int:
    """Draw a number that is as good as random, and the same each time."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8])
