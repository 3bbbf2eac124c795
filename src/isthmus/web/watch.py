"""Slurm and Kubernetes as the page sees them: the bridge's caches, with the jobs of everybody in full.

Slurm is asked as the exporter asks it: a small question again and again, and lists only when that tells of news.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog

from isthmus.bridge.cache.world import World
from isthmus.bridge.config import Config
from isthmus.domain.exporter.pulse import pulse
from isthmus.errors import IsthmusError
from isthmus.exporter.slimrecords import Slimmer, SlimRecords
from isthmus.exporter.users import UserNames
from isthmus.inspect.snapshot import Snapshot
from isthmus.kube.client import Client as KubeClient
from isthmus.kube.informer import Informer
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS
from isthmus.runtime.health import Check
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.poller import Poller
from isthmus.tasks import TaskGroup

if TYPE_CHECKING:
    from isthmus.model.slurm import Share
    from isthmus.model.slurmdb import Association

log = structlog.get_logger()

_PULSE: Final = 0.25
"""Seconds between two looks at what slurmctld counts: a change is to be seen within a second."""

_STATES_IDLE: Final = 15.0
_NODES_IDLE: Final = 5.0
_REFRESH: Final = 1.0
_USERS: Final = 5.0
_SHARES: Final = 60.0
_KEPT: Final = frozenset({"comment", "dependency", "features", "scheduled_nodes", "work_directory"})


class _Caches:
    """Takes what a world registers."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def cache(self, name: str, cache: Any) -> None:
        self.found[name] = cache


class Watch:
    """Keeps `world` up to date while `run` runs."""

    def __init__(self, kube: KubeClient, slurm: SlurmClient, config: Config, *, cluster: str) -> None:
        self._slurm = slurm
        self._users = UserNames()
        self.accounting = Accounting(slurm.calls)
        self.poller = Poller(
            slurm,
            idle=_STATES_IDLE,
            nodes_idle=_NODES_IDLE,
            refresh=_REFRESH,
            rounds=None,
            records=SlimRecords(slurm, Slimmer(keep=_KEPT)),
            slim=self._users.named,
        )
        self.world = World(
            kube,
            slurm,
            cluster=cluster,
            scheduler_name=config.scheduler_name,
            without_policy=config.without_policy,
            poller=self.poller,
        )
        self.healths = Informer(kube, NODE_HEALTHS, optional=True)
        self.health_policies = Informer(kube, HEALTH_POLICIES, optional=True)
        caches = _Caches()
        self.world.register(caches)
        self._caches = caches.found | {"healths": self.healths, "health policies": self.health_policies}
        self.shares: tuple[Share, ...] = ()
        self.associations: tuple[Association, ...] = ()
        self._pulse: tuple[int, ...] = ()
        self._heard_at: float | None = None
        self._trouble = ""
        self._drained = asyncio.Event()

    async def run(self) -> None:
        """Follow both sides until `drain` is called."""
        async with TaskGroup() as group:
            tasks = [group.create_task(cache.run()) for cache in self._caches.values()]
            tasks.append(group.create_task(self._repeat(self._look, _PULSE)))
            tasks.append(group.create_task(self._repeat(self._name_users, _USERS)))
            tasks.append(group.create_task(self._repeat(self._read_shares, _SHARES)))
            tasks.append(group.create_task(self._repeat(self._read_limits, _SHARES)))
            await self._drained.wait()
            for task in tasks:
                task.cancel()

    def drain(self) -> None:
        self._drained.set()

    @property
    def slurm_trouble(self) -> str:
        """Why Slurm does not answer; empty while it does."""
        if self._trouble:
            return self._trouble
        return "" if self.poller.contact.in_touch else self.poller.contact.trouble or "not contacted yet"

    @property
    def slurm_age(self) -> float | None:
        """Seconds since Slurm answered last; None if it never did."""
        heard = [it for it in (self.poller.heard_at, self._heard_at) if it is not None]
        return time.monotonic() - max(heard) if heard else None

    @property
    def has_read_slurm(self) -> bool:
        """Whether every job and node has been read: before that, an empty list means nothing."""
        return self.poller.has_read and self.poller.knows_jobs_since(0)

    @property
    def kube_trouble(self) -> str:
        lost = (self._caches[name].contact for name in ("pods", "nodes"))
        return next((it.trouble or "not in touch" for it in lost if not it.in_touch), "")

    @property
    def has_read_kube(self) -> bool:
        return all(self._caches[name].synced.is_set() for name in ("pods", "nodes"))

    def snapshot(self, namespace: str) -> Snapshot:
        """What the commands read by lists, from the caches."""
        troubles = {name: it.contact.trouble for name, it in self._caches.items() if not it.contact.in_touch}
        if self.slurm_trouble:
            troubles["slurm"] = self.slurm_trouble
        return Snapshot(self.world, namespace, tuple(self.poller.jobs.values()), troubles)

    def check_slurm(self) -> Check:
        """Readiness does not depend on Slurm: a page that says that Slurm is away is of use."""
        return Check(ok=True, sentence=self.slurm_trouble or "in touch")

    def check_kube(self) -> Check:
        return Check(ok=self.has_read_kube, sentence=self.kube_trouble or "in touch")

    async def _repeat(self, do: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            try:
                await do()
            except IsthmusError as error:
                log.debug("could not read, keeping what was known", error=str(error))
            await asyncio.sleep(pause)

    async def _look(self) -> None:
        try:
            told = await self._slurm.diagnose()
        except IsthmusError as error:
            self._trouble = error.what
            raise
        self._trouble = ""
        self._heard_at = time.monotonic()
        now = pulse(told)
        if now != self._pulse:
            self._pulse = now
            self.poller.nudge()

    async def _name_users(self) -> None:
        await self._users.read(self.poller, self.accounting)

    async def _read_shares(self) -> None:
        self.shares = await self._slurm.shares()

    async def _read_limits(self) -> None:
        self.associations = await self.accounting.associations()
