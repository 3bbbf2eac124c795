"""Finds custom resources of the operator's kinds that are of no cluster, which nobody else would look at."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from isthmus.domain.diagnosis.facts import ClusterFacts, StrayFact
from isthmus.inspect import clusterfacts
from isthmus.inspect.clusterfacts import ClusterReader, Found
from isthmus.model.base import Kind
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.slinky import TOKENS

_OF_NONE: Final[tuple[Kind[Any], ...]] = (TOKENS, NODE_CONFIGURATORS)
"""Kinds whose objects name no cluster."""

Listed = Mapping[str, tuple[Any, ...]]


async def read(reader: ClusterReader) -> Listed:
    """List kinds whose objects belong to no cluster, by name."""
    async with asyncio.TaskGroup() as tasks:
        listing = {it.name: tasks.create_task(reader.list(it, f"{it.name}s")) for it in _OF_NONE}
    return {name: task.result() for name, task in listing.items()}


def strays_of(
    found: Found, others: Listed, clusters: Iterable[ClusterFacts], *, now: float
) -> tuple[StrayFact, ...]:
    """Leave out what is of a cluster, and what is being deleted."""
    known = {(it.kind, cluster.key.namespace, it.name) for cluster in clusters for it in cluster.parts}
    listed = {**found.parts, clusterfacts.NEBIUS_NODESET: found.nebius_nodesets, **others}
    return tuple(
        StrayFact(namespace=it.metadata.namespace, part=clusterfacts.part_fact(kind, it, now))
        for kind, objects in listed.items()
        for it in objects
        if (kind, it.metadata.namespace, it.metadata.name) not in known and it.metadata.deletion_timestamp is None
    )
