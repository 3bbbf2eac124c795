"""Elastic nodes for people: what jobs need, what there is, what was decided and why. For `isthmus elastic`.

Kubernetes says what there is and what was decided; which jobs wait, only Slurm knows. Where it does not answer,
that is said, and the rest is shown.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from isthmus.domain.diagnosis.facts import ClusterFacts
from isthmus.domain.elastic.outlook import SQUEUE, Supply, WaitingJob, limited, supply, waiting
from isthmus.errors import IsthmusError
from isthmus.inspect import clusterinside
from isthmus.inspect.clusterfacts import ClusterReader, clusters_of, find
from isthmus.kube.client import Client
from isthmus.model.event import EVENTS, Event
from isthmus.model.meta import Key
from isthmus.model.powerstate import POWER_STATES, NodeSetPowerState
from isthmus.model.slinky import NodeSet


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a cluster that wait for nodes."""

    name: str
    """As namespace/name."""
    waiting: tuple[WaitingJob, ...] = ()
    trouble: str = ""
    """Why Slurm did not say."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    clusters: tuple[Demand, ...] = ()
    nodesets: tuple[Supply, ...] = ()
    troubles: dict[str, str] = {}
    """What could not be read, and why."""


async def overview(client: Client, *, namespace: str = "", now: float) -> Overview:
    """Read NodeSets, power states and Events, of one namespace or of all, and ask every Slurm for its queue."""
    reader = ClusterReader(client, namespace)
    async with asyncio.TaskGroup() as tasks:
        everything = tasks.create_task(find(reader))
        states = tasks.create_task(reader.list(POWER_STATES, "NodeSetPowerStates"))
        events = tasks.create_task(reader.list(EVENTS, "Events", fields="involvedObject.kind=NodeSet"))
    found = everything.result()
    moment = datetime.fromtimestamp(now, UTC)
    nodesets = assemble(found.parts["NodeSet"], states.result(), events.result(), now=moment)
    elastic = {Key(it.name.partition("/")[0], it.cluster) for it in nodesets}
    clusters = [it for it in clusters_of(found, now=now) if it.key in elastic]
    demands = await asyncio.gather(*(_demand(client, it) for it in clusters))
    explained = [
        _explained(each, demand, found.parts["NodeSet"], nodesets)
        for each, demand in zip(clusters, demands, strict=True)
    ]
    return Overview(clusters=tuple(explained), nodesets=nodesets, troubles=reader.troubles)


def assemble(
    nodesets: Iterable[NodeSet],
    states: Iterable[NodeSetPowerState],
    events: Iterable[Event],
    *,
    now: datetime,
) -> tuple[Supply, ...]:
    """Sum up every elastic NodeSet."""
    known: Mapping[Key, NodeSetPowerState] = {it.metadata.key: it for it in states}
    told = tuple(events)
    elastic = sorted((it for it in nodesets if it.elastic), key=lambda it: it.metadata.key)
    return tuple(supply(it, known.get(it.metadata.key), told, now=now) for it in elastic)


def _explained(
    cluster: ClusterFacts, demand: Demand, nodesets: Iterable[NodeSet], supplies: Iterable[Supply]
) -> Demand:
    """Name the limits with jobs that need more nodes than these allow."""
    namespace, name = cluster.key.namespace, cluster.key.name
    ours = [it for it in nodesets if (it.metadata.namespace, it.spec.controller_ref.name) == (namespace, name)]
    others = sum(it.spec.replicas for it in ours if not it.elastic)
    elastic = {str(it.metadata.key) for it in ours if it.elastic}
    jobs = limited(demand.waiting, [it for it in supplies if it.name in elastic], others=others)
    return msgspec.structs.replace(demand, waiting=jobs)


async def _demand(client: Client, cluster: ClusterFacts) -> Demand:
    name = str(cluster.key)
    try:
        code, said = await clusterinside.in_slurm(client, cluster, SQUEUE)
    except IsthmusError as error:
        return Demand(name=name, trouble=error.what)
    if code:
        return Demand(name=name, trouble=" ".join(said.split())[:200] or f"squeue ended with {code}")
    return Demand(name=name, waiting=waiting(said))
