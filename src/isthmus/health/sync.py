"""The health loop: one look at all nodes of a cluster, one decision, its actions, and what its policy shows.

    Slurm nodes ─┐
    pods, nodes ─┼─► (gathered for a moment) ─► look ─► decide ─► runner ─► look again at a deadline
    checks, … ───┘

Nothing is written while nothing changes. While Kubernetes or a Slurm does not answer, nothing is begun.
"""

import asyncio
import math
import time
from contextlib import suppress
from typing import Final

import structlog

from isthmus.domain.health import decision, policies
from isthmus.domain.health.actions import Action
from isthmus.domain.health.observations import Settings
from isthmus.domain.health.replacement import Replacement
from isthmus.domain.health.view import ClusterView, TestView
from isthmus.domain.kube import conditions
from isthmus.errors import IsthmusError, Wait
from isthmus.health.checknotices import CheckNotices
from isthmus.health.gatherer import Gatherer, Memory
from isthmus.health.machines import Machines, is_reboot
from isthmus.health.metrics import HealthMetrics
from isthmus.health.nodetests import NodeTests
from isthmus.health.notifications import Notifications
from isthmus.health.passivetests import Execute, PassiveTest, PassiveTests, in_pods
from isthmus.health.receivers import Receivers
from isthmus.health.reservations import in_workers, reserved_nodes
from isthmus.health.runner import ActionRunner, Batch
from isthmus.health.waker import Waker
from isthmus.health.world import HealthWorld
from isthmus.kube.recorder import Recorder
from isthmus.model.health import HEALTH_POLICIES
from isthmus.model.meta import Key
from isthmus.operator.slurms import Slurm
from isthmus.operator.statuswriter import Reporter
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

_WORKERS: Final = 4
_UNREAD_S: Final = 0.3
"""After so many seconds Slurm has been read again, and shows what we wrote."""

_OUT_OF_TOUCH_S: Final = 2.0
_SLURM_TIMEOUT_S: Final = 20.0
_UNDER_WAY: Final = frozenset({None, "Waiting", "Draining", "Repairing", "Testing"})
_PAUSE_S: Final = 0.5
_PAUSE_PER_NODE_S: Final = 0.005
_MAX_PAUSE_S: Final = 5.0
_SELDOM_S: Final = 60.0
"""Seconds between two looks for the sake of deadlines: a look costs fifty microseconds for each node."""

_IN_USE: Final = conditions.yes(conditions.READY, "InUse", "findings are handled by this policy")


class HealthSync:
    """The health loop of one process; `workers` are for its manager."""

    def __init__(
        self,
        world: HealthWorld,
        settings: Settings,
        *,
        replacement: Replacement = Replacement(),  # noqa: B008 - frozen
        recorder: Recorder,
        reporter: Reporter,
        notifications: Notifications,
        metrics: Metrics,
        health_metrics: HealthMetrics,
        execute: Execute | None = None,
    ) -> None:
        self._world = world
        self._reporter = reporter
        self._metrics = health_metrics
        self._memories: dict[Key, Memory] = {}
        self._storms: dict[Key, tuple[str, ...]] = {}
        self.controller: Controller[Key] = Controller(
            "node-health", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        waker = Waker(world, self.controller.queue.add)
        self._wake = waker.wake
        world.operator.slurms.on_restart(self._slurm_restarted)
        self._execute = execute = execute or in_pods(world.kube)
        self._passive = PassiveTests(execute, self._tested)
        self._gatherer = Gatherer(world, settings, replacement, self._passive)
        receivers = Receivers(world.operator.references, waker.wake)
        self._notices = CheckNotices(notifications, receivers)
        self.runner = ActionRunner(
            world,
            Machines(world, execute, may_replace=replacement.allowed),
            NodeTests(world, self._passive),
            receivers,
            notifications,
            recorder,
            health_metrics,
        )

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self.controller, self._passive)

    async def reconcile(self, cluster: Key) -> None:
        """Look at all nodes of a cluster."""
        if cluster not in self._world.operator.controllers:
            self._memories.pop(cluster, None)
            self._storms.pop(cluster, None)
            return  # its records go with it
        if not self._world.in_touch:
            raise Wait("Kubernetes does not answer", after=_OUT_OF_TOUCH_S)
        memory = self._memories.setdefault(cluster, Memory())
        slurm = self._world.operator.slurms.of(cluster)
        await self._learn(cluster, slurm, memory)
        restarted_at = memory.restarted_at
        view = self._gatherer.look(cluster, memory)
        actions = decision.decide(view)
        self._claim(actions)
        if actions:
            log.info("acting", actions=len(actions), first=type(actions[0]).__name__)
        policy = self._gatherer.governing(cluster)
        self._notices.tell(cluster, policy, self._world.checks.by("cluster", cluster))
        batch = Batch(view, slurm, memory, policy, in_workers(self._world, self._execute, cluster))
        try:
            await self.runner.run(batch, actions)
            memory.first = False
            if view.slurm_forgot and memory.restarted_at == restarted_at:
                memory.restarted_at = math.inf
        finally:
            self._look_again(view, slurm, memory)
        await self._report(view)

    async def _learn(self, cluster: Key, slurm: Slurm | None, memory: Memory) -> None:
        """Find out what this Slurm can do, and which nodes our reservations hold, where there can be any."""
        held = any(it.status.reason for it in self._world.healths_of(cluster).values())
        if memory.reserved == frozenset() and not held:
            return
        memory.reserved = None
        if slurm is not None and slurm.in_touch:
            with suppress(IsthmusError, TimeoutError):
                async with asyncio.timeout(_SLURM_TIMEOUT_S):
                    by_rest = (await slurm.client.server()).has(Feature.RESERVATIONS)
                    memory.can_reserve = by_rest or bool(self._world.operator.nodesets_of(cluster))
                    memory.reserved = await reserved_nodes(slurm.client) if memory.can_reserve else frozenset()

    def _claim(self, actions: list[Action]) -> None:
        """Count reboots from now on: between the decision and this, nobody else has decided."""
        for action in actions:
            if is_reboot(action):
                self._gatherer.claim_reboot(action.machine)

    def _look_again(self, view: ClusterView, slurm: Slurm | None, memory: Memory) -> None:
        if slurm is not None and slurm.in_touch and (slurm.as_of or 0.0) <= memory.wrote_slurm_at:
            # No event may come for it: what is read next can be what was decided by.
            self.controller.queue.add(view.cluster, after=_UNREAD_S)
        unknown = _OUT_OF_TOUCH_S if slurm is not None and slurm.in_touch and memory.reserved is None else None
        for pause in (self._pause(view), memory.not_ready_in, unknown):
            if pause is not None:
                self.controller.queue.add(view.cluster, after=max(pause, _UNREAD_S))

    def _pause(self, view: ClusterView) -> float | None:
        """When time alone may change a decision: soon while something is under way, seldom while it is not."""
        records = self._world.healths_of(view.cluster).values()
        if not records:
            return None
        if any(it.status.phase in _UNDER_WAY for it in records):
            return min(_MAX_PAUSE_S, _PAUSE_S + _PAUSE_PER_NODE_S * len(view.nodes))
        return _SELDOM_S

    def _slurm_restarted(self, cluster: Key) -> None:
        if cluster in self._memories:
            self._memories[cluster].restarted_at = time.monotonic()
            self._wake(cluster)

    def _tested(self, test: PassiveTest, result: TestView) -> None:
        if result.result != "running":
            self._metrics.ran(test.check, result.result)
        self._wake(test.cluster)

    # What policies show

    async def _report(self, view: ClusterView) -> None:
        """Write how the policy of a cluster stands; of others that claim it too, that they do not count."""
        claims = policies.candidates(self._world.policies.values(), view.cluster)
        self._storms[view.cluster] = decision.storm_texts(view)
        for policy in claims:
            key = policy.metadata.key
            mine = [it for it in self._world.operator.controllers if self._governs(it, key)]
            held = sum(1 for it in mine for health in self._world.healths_of(it).values() if health.status.reason)
            storms = sorted({storm for it in mine for storm in self._storms.get(it, ())})[:16]
            wrong = policies.conflict(policy, claims, view.cluster)
            told = conditions.no(conditions.READY, "Superseded", wrong) if wrong else _IN_USE
            await self._reporter.report(HEALTH_POLICIES, policy, {"storms": storms, "held": held}, [told])

    def _governs(self, cluster: Key, policy: Key) -> bool:
        found = self._gatherer.governing(cluster)
        return found is not None and found.metadata.key == policy
