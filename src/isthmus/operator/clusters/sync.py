"""SlurmClusters: each becomes its parts, which other controllers reconcile, and sums up their status.

    SlurmCluster ──► Controller, Accounting, RestApi, LoginSet, NodeSet     (all at once: pods wait for each other)
    NodeSet of slurm.nebius.ai ──► NodeSet of slinky.slurm.net

A cluster that is to go keeps everything until its workers are drained and gone.
"""

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
import structlog

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.kube.conditions import DEGRADED, holds
from isthmus.domain.kube.podtrouble import PATIENCE, is_new, turns
from isthmus.domain.operator import clusterparts
from isthmus.domain.operator.clusterparts import Child, Parts
from isthmus.domain.operator.clusterparts.status import (
    ACCEPTED,
    AVAILABLE,
    ClusterView,
    cluster_status,
    leaving_status,
)
from isthmus.domain.operator.manifests import exporter, populate, sconfig
from isthmus.errors import IsthmusError
from isthmus.kube.errors import Conflict, NotFound
from isthmus.model.base import Kind
from isthmus.model.jailedconfig import JailedConfig
from isthmus.model.meta import Condition, HasMeta, Key, condition
from isthmus.model.objects import (
    CONFIGMAPS,
    DEPLOYMENTS,
    POD_MONITORS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS
from isthmus.model.soperator import SLURM_CLUSTERS, NodeSet, SlurmCluster
from isthmus.model.storage import CLAIMS
from isthmus.operator import parts as parts_
from isthmus.operator.applier import owner_reference
from isthmus.operator.clusters import views
from isthmus.operator.clusters.nebius_nodesets import NebiusNodeSetSync, cluster_of
from isthmus.operator.clusters.outcome import Outcome
from isthmus.operator.clusters.root import RootKeeper
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.world import World

if TYPE_CHECKING:
    from isthmus.kube.store import Store

__all__ = ["ClusterSync", "NebiusNodeSetSync"]

log = structlog.get_logger()

_CATCH_UP: Final = 1.0
"""In so many seconds the caches show what was applied."""

_REQUEUE_S: Final = 0.1
_REFERRED_TO: Final = frozenset({SERVICE_ACCOUNTS, ROLES})
"""Others are refused while the API server does not know these."""

_OWNED: Final[tuple[Kind[Any], ...]] = (
    CONFIGMAPS,
    SERVICES,
    DEPLOYMENTS,
    SERVICE_ACCOUNTS,
    ROLES,
    ROLE_BINDINGS,
    TOKENS,
    POD_MONITORS,
)
"""Kinds of which a cluster may own any number."""

_MONITORS_S: Final = 30.0
"""Seconds between checks whether PodMonitors are served by now: there is no event."""

_PARTS: Final = frozenset({CONTROLLERS, ACCOUNTINGS, RESTAPIS, LOGINSETS, NODESETS})
_KEY_BYTES: Final = {clusterparts.SLURM_KEY: 1024, clusterparts.JWT_KEY: 32}


class ClusterSync(KindSync[SlurmCluster]):
    """The controller of SlurmClusters; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, SLURM_CLUSTERS, world.clusters, **tools)
        self._root = RootKeeper(world, self._applier, self._recorder)
        self._stores: dict[Kind[Any], Store[Any]] = {
            CONTROLLERS: world.controllers,
            ACCOUNTINGS: world.accountings,
            RESTAPIS: world.restapis,
            LOGINSETS: world.loginsets,
            NODESETS: world.nodesets,
            CONFIGMAPS: world.configmaps,
            SERVICES: world.services,
            SECRETS: world.secrets,
            CLAIMS: world.claims,
            DEPLOYMENTS: world.deployments,
            SERVICE_ACCOUNTS: world.service_accounts,
            ROLES: world.roles,
            ROLE_BINDINGS: world.role_bindings,
            TOKENS: world.tokens,
            POD_MONITORS: world.pod_monitors,
        }
        world.clusters.on_change(self._cluster_changed)
        world.nebius_nodesets.on_change(self._nodeset_changed)
        world.jailed_configs.on_change(self._config_changed)
        for store in (*self._stores.values(), world.jobs):
            store.on_change(self._part_changed)
        # Only these pods show why they do not work: no other object changes with them.
        told_by_pods = [populate.COMPONENT, sconfig.COMPONENT, exporter.COMPONENT]
        for store in (world.pods, world.exporter_pods):
            store.on_change(parts_.wakes_instance(told_by_pods, self.controller.queue.add))

    async def reconcile(self, key: Key) -> None:
        cluster = self._world.clusters.get(key)
        if cluster is None:
            return
        if cluster.metadata.deletion_timestamp is not None:
            await self._take_down(cluster)
            return
        await self._keep_until_drained(cluster)
        prefix = self._prefix(cluster)
        configs = self._world.jailed_configs.by("cluster", key)
        parts = clusterparts.parts_of(
            cluster,
            [it for it in self._world.nebius_nodesets.values() if self._belongs(it, cluster)],
            prefix=prefix,
            settings=self._world.settings,
            drained=self._drained(cluster),
            written=[path for it in configs for path in it.status.files],
            promised=[item.path for it in configs for item in it.spec.items],
            monitored=self._world.serves(POD_MONITORS),
            workers=self._world.nodesets.get(Key(key.namespace, f"{prefix}worker")),
        )
        if cluster.status.name_prefix is None:
            # Written before any object is named after it: the next pass has to find it decided.
            await self._report(cluster, parts, prefix=prefix)
        made = Outcome()
        if not parts.problems:
            made = await self._apply(cluster, parts, prefix)
            if parts.filling is not None:
                refused = await self._root.keep(cluster, parts.filling, self._family(cluster, parts, prefix))
                made = msgspec.structs.replace(made, root_refused=refused)
            else:
                await self._root.drop(cluster)
        await self._report(cluster, parts, prefix=prefix, made=made)
        made.raise_what_failed()

    # Gathering

    def _prefix(self, cluster: SlurmCluster) -> str:
        """Find what the names of the parts begin with, or decide it by what else there is in the namespace."""
        if cluster.status.name_prefix is not None:
            return cluster.status.name_prefix
        namespace, name = cluster.metadata.key
        stores: tuple[Store[Any], ...] = (self._world.nodesets, self._world.loginsets, self._world.statefulsets)
        strangers = {
            it.metadata.name
            for store in stores
            for it in store.values()
            if it.metadata.namespace == namespace and it.metadata.labels.get(names.CLUSTER_LABEL) != name
        }
        others = [
            it
            for it in self._world.clusters.values()
            if it.metadata.namespace == namespace and it.metadata.uid != cluster.metadata.uid
        ]
        return clusterparts.prefix(cluster, others, strangers)

    def _belongs(self, nodeset: NodeSet, cluster: SlurmCluster) -> bool:
        owner = cluster_of(self._world, nodeset)
        return owner is not None and owner.metadata.uid == cluster.metadata.uid

    def _drained(self, cluster: SlurmCluster) -> bool:
        """Whether no worker is left, by the status of NodeSets for their newest specification."""
        return all(
            it.spec.replicas == 0
            and it.status.replicas == 0
            and it.status.observed_generation >= it.metadata.generation
            for it in self._world.nodesets.by("controller", cluster.metadata.key)
        )

    def _family(
        self, cluster: SlurmCluster, parts: Parts | None, prefix: str, *, made: Outcome | None = None
    ) -> ClusterView:
        key = cluster.metadata.key
        made = made or Outcome()
        refused = made.root_refused.line if made.root_refused else ""
        writer = views.writer(self._world, key, prefix)
        return ClusterView(
            controller=self._world.controllers.get(key),
            accounting=self._world.accountings.get(key),
            restapi=self._world.restapis.get(key),
            login=self._world.loginsets.get(Key(key.namespace, f"{prefix}login")),
            nodesets=self._world.nodesets.by("controller", key),
            root=self._root.view(cluster, parts.filling, refused=refused) if parts and parts.filling else None,
            writer=views.writer_view(self._world, key, prefix) if parts and parts.filling else None,
            exporter=views.exporter_view(self._world, cluster, prefix),
            ready_writers=writer.status.ready_replicas if writer else 0,
            stale=made.stale,
            unmade=made.trouble(is_new=is_new(cluster, utc_now())),
        )

    # Acting

    async def _keep_until_drained(self, cluster: SlurmCluster) -> None:
        meta = cluster.metadata
        if names.SLURM_CLUSTER_FINALIZER not in meta.finalizers:
            await self._set_finalizers(cluster, (*meta.finalizers, names.SLURM_CLUSTER_FINALIZER))

    async def _set_finalizers(self, cluster: SlurmCluster, finalizers: Collection[str]) -> None:
        meta = cluster.metadata
        patch = {"metadata": {"finalizers": list(finalizers), "resourceVersion": meta.resource_version}}
        try:
            await self._world.kube.merge_patch(SLURM_CLUSTERS, meta.key, patch)
        except NotFound:
            return
        except Conflict:
            # Perhaps by a status of our own, of which nobody wakes us.
            self.controller.queue.add(meta.key, after=_REQUEUE_S)

    async def _apply(self, cluster: SlurmCluster, parts: Parts, prefix: str) -> Outcome:
        """Apply everything, what others refer to first, and remove what is no longer wanted.

        A child that fails keeps no other from being applied or removed.
        """
        owners = (owner_reference(SLURM_CLUSTERS, cluster),)
        stale = frozenset(it.kind.name for it in parts.children if it.kind in _PARTS and not self._shown(it))
        # What outlives the cluster was made by it, or by somebody else before: either way it is left alone.
        children = [it for it in parts.children if not (it.kept and it.key in self._stores[it.kind])]
        sent: list[bool] = []
        errors: list[IsthmusError] = []

        async def attempt(applying: Awaitable[bool]) -> None:
            try:
                sent.append(await applying)
            except IsthmusError as error:
                errors.append(error)  # raised when it has been told, with those of the others

        async with asyncio.TaskGroup() as together:
            for child in parts.secrets:
                there = self._stores[child.kind]
                made = self._applier.make_once(child.kind, _with_key(child), there=there, owners=owners)
                together.create_task(attempt(made))
            for child in (it for it in children if it.kind in _REFERRED_TO):
                together.create_task(attempt(self._apply_child(child, owners)))
        async with asyncio.TaskGroup() as together:
            for child in (it for it in children if it.kind not in _REFERRED_TO):
                together.create_task(attempt(self._apply_child(child, owners)))
        wanted = {(child.kind, child.key) for child in (*parts.children, *parts.secrets)}
        async with asyncio.TaskGroup() as together:
            for kind, key in self._made_for(cluster, prefix):
                if (kind, key) not in wanted:
                    there = self._stores[kind]
                    together.create_task(attempt(self._applier.remove(kind, key, there=there, owner=cluster)))
        if any(sent):
            self.controller.queue.add(cluster.metadata.key, after=_CATCH_UP)
        return Outcome(stale=stale, errors=tuple(errors))

    async def _apply_child(self, child: Child, owners: tuple[Mapping[str, Any], ...]) -> bool:
        there = self._stores[child.kind]
        if child.kept:
            return await self._applier.make_once(child.kind, child.manifest, there=there)
        manifest = child.manifest
        if child.scaled:
            # Whoever wrote another number took the field from us, so it stays when we do not speak of it.
            manifest = {**manifest, "spec": {k: v for k, v in manifest["spec"].items() if k != "replicas"}}
        return await self._applier.apply(child.kind, manifest, there=there, owners=owners)

    def _shown(self, child: Child) -> bool:
        """Whether the cache shows a part as applied: if not, its status is about something else."""
        found = self._stores[child.kind].get(child.key)
        return found is not None and found.spec == msgspec.convert(child.manifest, child.kind.type).spec

    def _made_for(self, cluster: SlurmCluster, prefix: str) -> Iterator[tuple[Kind[Any], Key]]:
        """Go through everything that may have been made for the cluster, wanted or not."""
        key, uid = cluster.metadata.key, cluster.metadata.uid
        for kind in _OWNED:
            yield from ((kind, found.metadata.key) for found in self._stores[kind].by("owner", uid))
        yield from ((kind, key) for kind in (CONTROLLERS, ACCOUNTINGS, RESTAPIS))
        yield LOGINSETS, Key(key.namespace, f"{prefix}login")
        yield NODESETS, Key(key.namespace, f"{prefix}worker")

    async def _take_down(self, cluster: SlurmCluster) -> None:
        """Let the workers go first: they need all the others to be drained."""
        meta = cluster.metadata
        if names.SLURM_CLUSTER_FINALIZER not in meta.finalizers:
            return
        nodesets = self._world.nodesets.by("controller", meta.key)
        if nodesets:
            async with asyncio.TaskGroup() as together:
                for nodeset in nodesets:
                    # Those of others are theirs to delete; NebiusNodeSetSync deletes its own.
                    key, there = nodeset.metadata.key, self._world.nodesets
                    together.create_task(self._applier.remove(NODESETS, key, there=there, owner=cluster))
            prefix = cluster.status.name_prefix or ""
            fields, held = leaving_status(self._family(cluster, None, prefix), prefix=prefix)
            await self._reporter.report(SLURM_CLUSTERS, cluster, fields, held)
            return
        await self._set_finalizers(cluster, [it for it in meta.finalizers if it != names.SLURM_CLUSTER_FINALIZER])

    async def _report(
        self, cluster: SlurmCluster, parts: Parts, *, prefix: str, made: Outcome | None = None
    ) -> None:
        family = self._family(cluster, parts, prefix, made=made)
        key = cluster.metadata.key
        if family.exporter is not None and not self._world.serves(POD_MONITORS):
            self.controller.queue.add(key, after=_MONITORS_S)
        own = views.own_pods(self._world, key)
        if (family.root is not None and family.root.missing) or turns(own, now=utc_now()):
            # Whether a pod that finds no node has been given time enough to find one.
            self.controller.queue.add(key, after=PATIENCE)
        fields, held = cluster_status(cluster, parts, family, prefix=prefix)
        before = cluster.status
        accepted = condition(before.conditions, ACCEPTED)
        if parts.problems and (accepted is None or accepted.message != "; ".join(parts.problems)):
            self._tell(cluster, "CannotBeMade", "; ".join(parts.problems), warning=True)
        elif (wrong := family.unmade.wrong) and wrong not in _message(before.conditions, DEGRADED):
            self._tell(cluster, "PartsRefused", wrong, warning=True)
        elif fields["phase"] == AVAILABLE and not holds(before.conditions, "Ready"):
            self._tell(cluster, "Available", f"the cluster is ready: {fields['workers']} workers")
        if family.root is not None:
            self._root.tell(cluster, family.root)
        await self._reporter.report(SLURM_CLUSTERS, cluster, fields, held)

    def _tell(self, cluster: SlurmCluster, reason: str, note: str, *, warning: bool = False) -> None:
        log.info("cluster", did=reason, note=note)
        self._recorder.event(SLURM_CLUSTERS, cluster, reason, note, warning=warning)

    # What wakes a cluster

    def _cluster_changed(self, key: Key, old: SlurmCluster | None, new: SlurmCluster | None) -> None:
        if new is not None and (old is None or _asked(old) != _asked(new)):
            self.controller.queue.add(key)
        if (old is None) != (new is None) or (old and new and old.status.name_prefix != new.status.name_prefix):
            # Whether another one is the first of its namespace, or the only one, may depend on this.
            for other in self._world.clusters:
                if other.namespace == key.namespace and other != key:
                    self.controller.queue.add(other)

    def _nodeset_changed(self, _: Key, old: NodeSet | None, new: NodeSet | None) -> None:
        for nodeset in (old, new):
            cluster = cluster_of(self._world, nodeset) if nodeset else None
            if cluster:
                self.controller.queue.add(cluster.metadata.key)

    def _config_changed(self, key: Key, old: JailedConfig | None, new: JailedConfig | None) -> None:
        if _files(old) != _files(new):
            for config in (old, new):
                if config:
                    name = config.metadata.labels.get(names.INSTANCE_LABEL, "")
                    self.controller.queue.add(Key(key.namespace, name))

    def _part_changed(self, key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        for found in (old, new):
            cluster = Key(key.namespace, found.metadata.labels.get(names.CLUSTER_LABEL, "")) if found else key
            if cluster in self._world.clusters:
                self.controller.queue.add(cluster)


def _message(held: Iterable[Condition], type_: str) -> str:
    found = condition(held, type_)
    return found.message if found else ""


def _with_key(child: Child) -> dict[str, Any]:
    """Put a random key into a Secret that is made once."""
    name = clusterparts.SLURM_KEY if child.key.name.endswith("-slurm-key") else clusterparts.JWT_KEY
    key = b64encode(secrets.token_bytes(_KEY_BYTES[name])).decode()
    return {**child.manifest, "data": {name: key}}


def _files(config: JailedConfig | None) -> tuple[object, ...]:
    """Take what bears on a cluster: which files there are, and which are to come."""
    return (config.status.files, config.spec.items) if config else ()


def _asked(cluster: SlurmCluster) -> tuple[object, ...]:
    """Take what a cluster's user decides."""
    meta = cluster.metadata
    return meta.generation, meta.deletion_timestamp, meta.finalizers, meta.annotations
