"""The controller of JailedConfigs on Slurm's side: lets Slurm read files that changed, and sees that nodes did.

Its keys are clusters, so that what changes at about the same time is read once, whichever JailedConfig it is of.
Files are written by sconfigcontroller, which knows nothing of Slurm.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
import structlog

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.kube import conditions
from isthmus.domain.languages import gotime
from isthmus.domain.operator.jailedconfigs import updates
from isthmus.domain.operator.nodeset import identity
from isthmus.domain.operator.slurmfiles import delivery
from isthmus.errors import IsthmusError, Wait
from isthmus.model.jailedconfig import JAILED_CONFIGS, JailedConfig
from isthmus.model.meta import Condition, HasMeta, Key, condition
from isthmus.operator.kindsync import Tools
from isthmus.operator.slurmctld.delivery import is_ready
from isthmus.operator.slurms import Slurm
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.statusparts import StatusPart

if TYPE_CHECKING:
    from isthmus.kube.store import Store

log = structlog.get_logger()

_WORKERS: Final = 4
_REQUEUE_S: Final = 1.0
_SETTLE: Final = 0.5
"""Seconds without a further change after which Slurm is reconfigured; one apply may change several ConfigMaps."""
_MAX_SETTLE: Final = 3.0


class _Noticed(msgspec.Struct, frozen=True):
    """What has to be read, since when, and since when it is just this."""

    due: frozenset[tuple[str, str]]
    first: float
    last: float


class _Memory(msgspec.Struct):
    """What is known of a cluster beyond statuses. After a restart it is made from when nodes began."""

    noticed: _Noticed | None = None
    owing: Mapping[str, int] | None = None
    told_at: float | None = None
    refusal: str = ""


def _no_cluster(cluster: Key) -> Condition:
    what = (
        f"there is no SlurmCluster {cluster.name} in this namespace"
        if cluster.name
        else "it does not name a SlurmCluster"
    )
    text = f"{what}; its label {names.INSTANCE_LABEL} must name the cluster whose shared root it writes to"
    return conditions.no(updates.COMPLETED, "Init", text)


class JailedConfigSync:
    """The controller of what follows from JailedConfigs; `workers` are for the leader."""

    def __init__(
        self, world: World, *, clock: Callable[[], float] = time.monotonic, **tools: Unpack[Tools]
    ) -> None:
        self._world = world
        self._recorder = tools["recorder"]
        self._now = tools.get("now", utc_now)
        self._clock = clock
        self._status = StatusPart(world.kube, JAILED_CONFIGS, manager=names.FIELD_MANAGER, now=self._now)
        self._memories: dict[Key, _Memory] = {}
        self.controller: Controller[Key] = Controller(
            "jailedconfigs", self.reconcile, metrics=tools["metrics"], workers=_WORKERS
        )
        stores: tuple[Store[Any], ...] = (world.clusters, world.controllers)
        world.jailed_configs.on_change(self._config_changed)
        world.slurms.on_change(self._slurm_changed)
        for store in stores:
            store.on_change(self._cluster_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def reconcile(self, cluster: Key) -> None:
        configs = tuple(map(self._status.newest, self._world.jailed_configs.by("cluster", cluster)))
        if not configs:
            self._memories.pop(cluster, None)
            return
        if not self._world.in_touch:
            raise Wait("Kubernetes does not answer", after=_REQUEUE_S)
        if not self._is_there(cluster):
            for config in configs:
                # The status stays: the cluster may be back in a moment.
                await self._tell(config, updates.kept(config, _no_cluster(cluster)))
            return
        memory = self._memories.setdefault(cluster, _Memory())
        start = self._has_settled(cluster, configs, memory)
        seen = await self._seen(cluster, configs, memory)
        plan = updates.plan(configs, seen, start=start)
        # Written before Slurm is reconfigured: see `updates`.
        for config in configs:
            if told := plan.told.get(config.metadata.name):
                await self._tell(config, told)
        if plan.reconfigure:
            await self._reconfigure(cluster, memory)
        if plan.under_way:
            self.controller.queue.add(cluster, after=_REQUEUE_S)

    def _is_there(self, cluster: Key) -> bool:
        world = self._world
        return cluster in world.clusters or cluster in world.controllers or world.slurms.of(cluster) is not None

    def _has_settled(self, cluster: Key, configs: tuple[JailedConfig, ...], memory: _Memory) -> bool:
        """Whether what is due has been the same for a moment; if not, look again then."""
        due, now = updates.due(configs), self._clock()
        if not due:
            memory.noticed = None
            return False
        known = memory.noticed
        if known is None or known.due != due:
            known = memory.noticed = _Noticed(due, known.first if known else now, now)
        wait = min(known.last + _SETTLE, known.first + _MAX_SETTLE) - now
        if wait > 0:
            self.controller.queue.add(cluster, after=wait)
        return wait <= 0

    async def _seen(self, cluster: Key, configs: tuple[JailedConfig, ...], memory: _Memory) -> updates.Slurm:
        now = self._now().timestamp()
        slurm = self._world.slurms.of(cluster)
        trouble = self._world.slurms.trouble(cluster)
        if slurm is None or trouble:
            return updates.Slurm(now=now, trouble=trouble)
        nodes = dict(slurm.nodes)
        unfinished = updates.is_unfinished(configs)
        if memory.owing is None:
            told_at = max((updates.seconds(it.status.reconfigured_at) for it in configs), default=0.0)
            memory.owing = updates.owing(nodes, told_at=told_at, only_away=not unfinished)
        memory.owing = updates.still_owing(memory.owing, nodes)
        return updates.Slurm(
            now=now,
            read_at=await self._read_at(slurm, now) if unfinished else None,
            nodes=nodes,
            with_pod=self._with_pod(cluster, memory.owing),
            owing=memory.owing,
            told_at=memory.told_at,
            refusal=memory.refusal,
            timeout=self._timeout(cluster),
        )

    async def _read_at(self, slurm: Slurm, now: float) -> float | None:
        with suppress(IsthmusError):
            return delivery.counting_since(await slurm.client.diagnose(), now=now)
        return None

    def _with_pod(self, cluster: Key, owing: Mapping[str, int]) -> frozenset[str]:
        if not owing:
            return frozenset()
        pods = (
            pod
            for nodeset in self._world.nodesets_of(cluster)
            for pod in self._world.pods.by("owner", nodeset.metadata.uid)
        )
        return frozenset(name for pod in pods if is_ready(pod) and (name := identity.slurm_name(pod)) in owing)

    def _timeout(self, cluster: Key) -> float:
        found = self._world.clusters.get(cluster)
        asked = found.spec.s_config_controller if found else None
        if asked is None or not asked.reconfigure_wait_timeout:
            return updates.TIMEOUT
        with suppress(gotime.GoTimeError):
            return gotime.parse_duration(asked.reconfigure_wait_timeout)
        return updates.TIMEOUT

    async def _reconfigure(self, cluster: Key, memory: _Memory) -> None:
        slurm = self._world.slurms.of(cluster)
        if slurm is None:
            return
        log.info("reconfiguring Slurm for JailedConfigs")
        memory.told_at = self._now().timestamp()
        memory.owing = updates.owing(dict(slurm.nodes))
        memory.noticed = None
        try:
            await slurm.reconfigure(now=memory.told_at)
        except IsthmusError as error:
            # Written into the status by the next pass, which follows soon.
            memory.refusal = error.what
            log.warning("Slurm did not reread its configuration", error=error.what)
            return
        memory.refusal = ""

    async def _tell(self, config: JailedConfig, told: updates.NewStatus) -> None:
        self._record(config, told)
        generation = config.metadata.generation
        fields = {"reconfiguredHash": told.hash, "reconfiguredAt": told.at, "observedGeneration": generation}
        await self._status.tell(config, fields, [told.completed])

    def _record(self, config: JailedConfig, told: updates.NewStatus) -> None:
        """Write Events about what users wait for, or should look at."""
        before, now = condition(config.status.conditions, updates.COMPLETED), told.completed
        if before is not None and (before.status, before.reason) == (now.status, now.reason):
            return
        if now.reason == "Success":
            self._recorder.event(JAILED_CONFIGS, config, "Applied", now.message, action="Reconfigure")
        elif now.reason in {"NotTaken", "Refused"}:
            self._recorder.event(
                JAILED_CONFIGS, config, now.reason, now.message, warning=True, action="Reconfigure"
            )

    # What wakes a cluster

    def _config_changed(self, _: Key, old: JailedConfig | None, new: JailedConfig | None) -> None:
        for config in (old, new):
            if config:
                meta = config.metadata
                self.controller.queue.add(Key(meta.namespace, meta.labels.get(names.INSTANCE_LABEL, "")))

    def _cluster_changed(self, key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        if (old is None) != (new is None) and self._world.jailed_configs.by("cluster", key):
            self.controller.queue.add(key)

    def _slurm_changed(self, controller: Key, _: str | None) -> None:
        if controller in self._memories:
            self.controller.queue.add(controller)
