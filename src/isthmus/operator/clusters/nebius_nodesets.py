"""NodeSets of slurm.nebius.ai: each becomes a NodeSet of slinky.slurm.net of its name, and shows its status."""

from typing import Final, Unpack

from isthmus.domain.operator import clusterparts
from isthmus.domain.operator.clusterparts.status import nodeset_status
from isthmus.errors import Terminal
from isthmus.model.meta import HasMeta, Key
from isthmus.model.slinky import NODESETS
from isthmus.model.soperator import NEBIUS_NODESETS, NodeSet, SlurmCluster
from isthmus.operator import refusals
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.world import World

PARENT_ANNOTATION: Final = "slurm.nebius.ai/parental-cluster-ref"
"""Where older NodeSets name their cluster."""


def cluster_of(world: World, nodeset: NodeSet) -> SlurmCluster | None:
    """Find the SlurmCluster of a NodeSet; one that names none belongs to the only one of its namespace."""
    meta = nodeset.metadata
    name = nodeset.spec.cluster_name or meta.annotations.get(PARENT_ANNOTATION, "")
    if name:
        return world.clusters.get(Key(meta.namespace, name))
    alone = [it for it in world.clusters.values() if it.metadata.namespace == meta.namespace]
    return alone[0] if len(alone) == 1 else None


class NebiusNodeSetSync(KindSync[NodeSet]):
    """The controller of these NodeSets; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, NEBIUS_NODESETS, world.nebius_nodesets, name="clusternodesets", **tools)
        world.nebius_nodesets.on_change(self._nodeset_changed)
        world.clusters.on_change(self._cluster_changed)
        world.nodesets.on_change(self._part_changed)

    async def reconcile(self, key: Key) -> None:
        """Reconcile one NodeSet. When it is deleted, its part goes by itself, drained first."""
        nodeset = self._world.nebius_nodesets.get(key)
        if nodeset is None or nodeset.metadata.deletion_timestamp is not None:
            return
        cluster = cluster_of(self._world, nodeset)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            await self._let_go(nodeset)
            name = nodeset.spec.cluster_name
            waits = f"there is no SlurmCluster {name}" if name else "spec.clusterName does not name a SlurmCluster"
            await self._report(nodeset, waits=waits)
            return
        if cluster.status.name_prefix is None:
            return  # we hear of it when the cluster has been looked at
        child, told = clusterparts.nodeset_part(nodeset, cluster, prefix=cluster.status.name_prefix)
        problems, failure = told.problems, None
        if not problems:
            owners = (owner_reference(NEBIUS_NODESETS, nodeset),)
            try:
                await self._applier.apply(NODESETS, child.manifest, there=self._world.nodesets, owners=owners)
            except Terminal as error:
                problems, failure = (error.line,), refusals.again(error)
        await self._report(nodeset, problems=problems, ignored=told.ignored)
        if failure:
            raise failure

    async def _let_go(self, nodeset: NodeSet) -> None:
        key, there = nodeset.metadata.key, self._world.nodesets
        await self._applier.remove(NODESETS, key, there=there, owner=nodeset)

    async def _report(
        self, nodeset: NodeSet, *, problems: tuple[str, ...] = (), ignored: tuple[str, ...] = (), waits: str = ""
    ) -> None:
        part = self._world.nodesets.get(nodeset.metadata.key)
        fields, held = nodeset_status(nodeset, part, problems=problems, ignored=ignored, waits=waits)
        if problems:
            self._recorder.event(NEBIUS_NODESETS, nodeset, "CannotBeMade", "; ".join(problems), warning=True)
        await self._reporter.report(NEBIUS_NODESETS, nodeset, fields, held)

    # What wakes a NodeSet

    def _nodeset_changed(self, key: Key, old: NodeSet | None, new: NodeSet | None) -> None:
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self.controller.queue.add(key)

    def _cluster_changed(self, key: Key, *_: SlurmCluster | None) -> None:
        for nodeset in self._world.nebius_nodesets:
            if nodeset.namespace == key.namespace:
                self.controller.queue.add(nodeset)

    def _part_changed(self, key: Key, *_: HasMeta | None) -> None:
        if key in self._world.nebius_nodesets:
            self.controller.queue.add(key)
