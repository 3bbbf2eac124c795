"""The health of nodes for people: what was found, what happens next, and what limits it. For `isthmus health`."""

import asyncio
from typing import Final

import msgspec

from isthmus.domain.health.outlook import active, next_step, way_back
from isthmus.domain.health.policies import candidates, governing
from isthmus.errors import Terminal
from isthmus.inspect.clusterfacts import ClusterReader
from isthmus.kube.client import Client
from isthmus.model.health import (
    HEALTH_POLICIES,
    NODE_HEALTHS,
    HealthPolicy,
    HealthPolicySpec,
    NodeHealth,
    Phase,
)
from isthmus.model.meta import Key
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.soperator import SLURM_CLUSTERS

_GRAVEST: Final[tuple[Phase | None, ...]] = (
    "OutOfService",
    "Repairing",
    "Testing",
    "Draining",
    "Waiting",
    "Suspect",
    None,
    "Recovered",
)


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node with findings, and what comes next for it."""

    health: NodeHealth
    next_step: str
    way_back: tuple[str, ...] = ()
    """What must be so before it is used again."""
    policy: str = ""
    """The name of the HealthPolicy that governs it; empty where the built-in rules do."""

    @property
    def cluster(self) -> Key:
        return cluster_of(self.health)

    @property
    def phase(self) -> str:
        return self.health.status.phase or "Suspect"

    @property
    def checks(self) -> tuple[str, ...]:
        """The findings that are still seen, or all if there is none."""
        status = self.health.status
        return tuple(it.check or it.source for it in active(status.findings) or status.findings)


class Governance(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the repair of one cluster's nodes."""

    cluster: str
    """As namespace/name."""
    policy: str = ""
    held: int = 0
    """Nodes that are kept out of use because of findings."""
    limit: str = ""
    paused: bool = False
    shadow: bool = False
    storms: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    """Other policies that claim the same cluster."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[NodeLine, ...] = ()
    clusters: tuple[Governance, ...] = ()
    troubles: dict[str, str] = {}
    """What could not be read, and why."""


async def overview(client: Client, *, namespace: str = "") -> Overview:
    """Read every NodeHealth and HealthPolicy, of one namespace or of all."""
    reader = ClusterReader(client, namespace)
    async with asyncio.TaskGroup() as tasks:
        healths = tasks.create_task(reader.list(NODE_HEALTHS, "NodeHealths"))
        policies = tasks.create_task(reader.list(HEALTH_POLICIES, "HealthPolicies"))
        clusters = tasks.create_task(clusters_in(reader))
    made = assemble(healths.result(), policies.result(), clusters.result())
    return msgspec.structs.replace(made, troubles=reader.troubles)


async def clusters_in(reader: ClusterReader) -> tuple[Key, ...]:
    """Every Slurm cluster: SlurmClusters, and Controllers that were put together by hand."""
    async with asyncio.TaskGroup() as tasks:
        wholes = tasks.create_task(reader.list(SLURM_CLUSTERS, "SlurmClusters"))
        controllers = tasks.create_task(reader.list(CONTROLLERS, "Controllers"))
    keys = {it.metadata.key for it in wholes.result()} | {it.metadata.key for it in controllers.result()}
    return tuple(sorted(keys))


def assemble(
    healths: tuple[NodeHealth, ...], policies: tuple[HealthPolicy, ...], clusters: tuple[Key, ...]
) -> Overview:
    """Sort what was read: the gravest nodes first, and each cluster with its policy."""
    everywhere = sorted({*clusters, *map(cluster_of, healths)})
    ruling = {cluster: governing(policies, cluster) for cluster in everywhere}

    def line(health: NodeHealth) -> NodeLine:
        policy = ruling[cluster_of(health)]
        spec = policy.spec if policy else HealthPolicySpec()
        return NodeLine(
            health=health,
            next_step=next_step(health.status, spec).replace("NODE", health.spec.node),
            way_back=way_back(health, spec),
            policy=policy.metadata.name if policy else "",
        )

    def rank(each: NodeLine) -> tuple[int, Key, str]:
        return _GRAVEST.index(each.health.status.phase), each.cluster, each.health.spec.node

    lines = sorted(map(line, healths), key=rank)
    governed = (_governance(cluster, ruling[cluster], policies, lines) for cluster in everywhere)
    return Overview(nodes=tuple(lines), clusters=tuple(governed))


def _governance(
    cluster: Key, policy: HealthPolicy | None, policies: tuple[HealthPolicy, ...], lines: list[NodeLine]
) -> Governance:
    spec = policy.spec if policy else HealthPolicySpec()
    mine = [it for it in lines if it.cluster == cluster]
    return Governance(
        cluster=str(cluster),
        policy=policy.metadata.name if policy else "",
        held=sum(bool(it.health.status.reason) for it in mine),
        limit=str(spec.limits.max_unavailable),
        paused=spec.paused,
        shadow=spec.mode == "shadow",
        storms=policy.status.storms if policy else (),
        rivals=tuple(it.metadata.name for it in candidates(policies, cluster)[1:]),
    )


async def node(client: Client, name: str, *, namespace: str = "") -> tuple[NodeLine, Governance]:
    """Find one node by its name in Slurm, or by the name of its NodeHealth."""
    everything = await overview(client, namespace=namespace)
    if everything.troubles:
        what, why = next(iter(everything.troubles.items()))
        raise Terminal(f"{what} cannot be read: {why}")
    found = choose(everything, name)
    governance = next(it for it in everything.clusters if it.cluster == str(found.cluster))
    return found, governance


def choose(everything: Overview, name: str) -> NodeLine:
    """Take the node that is meant, or say why that is not clear."""
    matching = [it for it in everything.nodes if name in {it.health.spec.node, it.health.metadata.name}]
    if not matching:
        raise Terminal(
            f"nothing was found on a node {name!r}", remedy="list nodes with findings: isthmus health -A"
        )
    if len(matching) > 1:
        names = ", ".join(f"{it.health.metadata.key}" for it in matching)
        raise Terminal(
            f"several clusters have a node {name!r}: {names}", remedy="give CLUSTER.NODE, or --namespace"
        )
    return matching[0]


def cluster_of(health: NodeHealth) -> Key:
    return Key(health.metadata.namespace, health.spec.cluster)
