"""Carries out what was decided for a cluster's nodes: one list of actions, in its order.

    in Kubernetes   records here, pods and machines by `machines`, Jobs by `nodetests`
    in Slurm        `slurm_actions`

Repairs and tests of different nodes go on side by side, and what is left of them after a while is decided anew: a
hundred repairs do not hold up the drain of a node that is found meanwhile.

What fails for one node is not continued for it, and the others go on; in the end the most urgent error is raised,
and the cluster is looked at again. Without Slurm, its actions fail, and nothing that follows them is done.
"""

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

import msgspec
import structlog

from isthmus.clock import utc_now
from isthmus.domain.health.actions import (
    Action,
    Climb,
    Comment,
    Drain,
    Forget,
    Notify,
    Record,
    Release,
    Requeue,
    Reserve,
    RunTest,
    SetCondition,
    Unreserve,
)
from isthmus.domain.health.view import ClusterView
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.health.gatherer import Memory
from isthmus.health.machines import Machines
from isthmus.health.metrics import HealthMetrics
from isthmus.health.nodetests import NodeTests
from isthmus.health.notifications import Notice, Notifications
from isthmus.health.receivers import Receivers
from isthmus.health.reservations import Run
from isthmus.health.slurm_actions import SlurmActions
from isthmus.health.world import HealthWorld, record_name
from isthmus.kube import errors
from isthmus.kube.recorder import Recorder
from isthmus.model.health import NODE_HEALTHS, HealthPolicy, NodeHealth, NodeHealthStatus
from isthmus.model.meta import Key
from isthmus.model.slinky import CONTROLLERS
from isthmus.operator.slurms import Slurm
from isthmus.runtime.controller import most_urgent
from isthmus.tasks import TaskGroup

log = structlog.get_logger()

_AT_ONCE: Final = 16
"""Records that are written at a time."""

_NODES_AT_ONCE: Final = 8
_NODES_S: Final = 2.0
"""So many nodes are repaired and tested at a time, and for so many seconds none is begun with after the first."""

_SLURM_TIMEOUT_S: Final = 20.0
_SLURM_AGAIN_S: Final = 2.0
_REQUEUE_AGAIN_S: Final = 60.0
_REFUSED_AGAIN_S: Final = 60.0
"""After so many seconds it is decided again about a node for which something was refused."""
_FIELDS: Final = tuple(NodeHealthStatus.__struct_encode_fields__)


class Batch:
    """One decision that is being carried out."""

    def __init__(
        self, view: ClusterView, slurm: Slurm | None, memory: Memory, policy: HealthPolicy | None, run: Run
    ) -> None:
        self.view = view
        self.slurm = slurm
        self.memory = memory
        self.policy = policy
        self.healths = {name: it.health for name, it in view.nodes.items() if it.health}
        """As of our last writes."""
        self.reserved = {name for name, it in view.nodes.items() if it.reserved}
        self.failed: dict[str, IsthmusError | TimeoutError] = {}
        """Nodes for which an action failed; a condition of a machine is about none, and stands by its name."""
        seen = {name: it.slurm for name, it in view.nodes.items()}
        self.in_slurm = SlurmActions(slurm.client, seen, run) if slurm else None
        self.slurm_trouble: IsthmusError | TimeoutError | None = None
        """Why Slurm did not do something: it is not asked again for this decision."""

    @property
    def cluster(self) -> Key:
        return self.view.cluster

    def status(self, node: str) -> NodeHealthStatus:
        found = self.healths.get(node)
        return found.status if found else NodeHealthStatus()


@dataclass(eq=False)
class ActionRunner:
    world: HealthWorld
    machines: Machines
    tests: NodeTests
    receivers: Receivers
    notifications: Notifications
    recorder: Recorder
    metrics: HealthMetrics

    async def run(self, batch: Batch, actions: Iterable[Action]) -> None:
        """Carry out all of a decision, as far as it goes."""
        for how, some in groupby(actions, _how):
            alike = list(some)
            if how == "records":
                await self._side_by_side(batch, [[it] for it in alike], at_once=_AT_ONCE)
            elif how == "nodes":
                await self._nodes(batch, alike)
            else:
                for action in alike:
                    await self._one(batch, action)
        if batch.failed:
            decisive = most_urgent(BaseExceptionGroup("actions", list(batch.failed.values())))
            raise decisive

    async def _nodes(self, batch: Batch, actions: Iterable[Action]) -> None:
        """Carry out what is done to single nodes and machines, for each in its order."""
        chains: dict[str, list[Action]] = {}
        for action in actions:
            chains.setdefault(next(iter(nodes_of(action)), ""), []).append(action)
        await self._side_by_side(batch, chains.values(), at_once=_NODES_AT_ONCE, seconds=_NODES_S)

    async def _side_by_side(
        self, batch: Batch, chains: Iterable[list[Action]], *, at_once: int, seconds: float = math.inf
    ) -> None:
        gate, until = asyncio.Semaphore(at_once), time.monotonic() + seconds

        async def carry_out(chain: list[Action]) -> None:
            async with gate:
                if time.monotonic() >= until:
                    later = Wait("others came first", after=0.0)
                    batch.failed |= dict.fromkeys((it for action in chain for it in nodes_of(action)), later)
                for action in chain:
                    await self._one(batch, action)

        async with TaskGroup() as group:
            for chain in chains:
                group.create_task(carry_out(chain))

    async def _one(self, batch: Batch, action: Action) -> None:
        """Carry out one action, for the nodes for which nothing has failed yet."""
        left = _without(action, batch.failed)
        if left is None:
            return
        try:
            await self.carry_out(batch, left)
        except Terminal as error:
            # It will not get better by itself, and the deadlines of the record decide what comes next.
            log.warning("an action failed", action=type(left).__name__, nodes=nodes_of(left), error=error.line)
            for node in nodes_of(left) or (type(left).__name__,):
                self._event(batch, node, "ActionFailed", error.line, warning=True)
                batch.failed[node] = Wait(error.what, after=_REFUSED_AGAIN_S, remedy=error.remedy)
        except (IsthmusError, TimeoutError) as error:
            log.info("an action has to wait", action=type(left).__name__, nodes=nodes_of(left), error=str(error))
            batch.failed |= dict.fromkeys(nodes_of(left) or (type(left).__name__,), error)

    async def carry_out(self, batch: Batch, action: Action) -> None:
        match action:
            case Record(node, status):
                await self._record(batch, node, status)
            case Forget(node):
                await self._forget(batch, node)
            case RunTest():
                await self.tests.start(batch.view, action, reserved=action.node in batch.reserved)
            case Climb():
                await self.machines.climb(batch.view, action)
            case SetCondition():
                await self.machines.set_condition(action)
            case Notify():
                self._notify(batch, action)
            case _:
                await self._in_slurm(batch, action)

    # Records

    async def _record(self, batch: Batch, node: str, status: NodeHealthStatus) -> None:
        before = batch.healths.get(node)
        known = before or await self._create(batch.cluster, node)
        wanted: dict[str, Any] = msgspec.to_builtins(status)
        patch = {
            "metadata": {"resourceVersion": known.metadata.resource_version},
            "status": {**dict.fromkeys(_FIELDS), **wanted},
        }
        try:
            written = await self.world.kube.merge_patch(
                NODE_HEALTHS, known.metadata.key, patch, subresource="status"
            )
        except errors.NotFound as error:
            raise Wait(f"the record of {node} was deleted", after=_SLURM_AGAIN_S) from error
        self.world.wrote(written)
        batch.healths[node] = written
        self.metrics.recorded(before.status if before else None, status)

    async def _create(self, cluster: Key, node: str) -> NodeHealth:
        metadata: dict[str, Any] = {"namespace": cluster.namespace, "name": record_name(cluster.name, node)}
        controller = self.world.operator.controllers.get(cluster)
        if controller is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": CONTROLLERS.api_version,
                    "kind": CONTROLLERS.name,
                    "name": controller.metadata.name,
                    "uid": controller.metadata.uid,
                }
            ]
        body = {"metadata": metadata, "spec": {"cluster": cluster.name, "node": node}}
        try:
            return await self.world.kube.create(NODE_HEALTHS, body)
        except errors.AlreadyExists:
            # The process before us made it, and our cache does not show it yet.
            return await self.world.kube.get(NODE_HEALTHS, Key(cluster.namespace, metadata["name"]))

    async def _forget(self, batch: Batch, node: str) -> None:
        health = batch.healths.pop(node, None)
        if health is not None:
            with suppress(errors.NotFound, errors.Conflict):
                meta = health.metadata
                await self.world.kube.delete(NODE_HEALTHS, meta.key, uid=meta.uid, version=meta.resource_version)

    # Slurm

    async def _in_slurm(self, batch: Batch, action: Action) -> None:
        if batch.in_slurm is None or batch.slurm is None:
            raise Wait(self.world.operator.slurms.trouble(batch.cluster), after=_SLURM_AGAIN_S)
        if batch.slurm_trouble is not None:
            raise batch.slurm_trouble
        slurm = batch.in_slurm
        try:
            async with asyncio.timeout(_SLURM_TIMEOUT_S):
                match action:
                    case Drain(nodes, reason):
                        await slurm.drain(nodes, reason)
                    case Release(nodes, reason):
                        await slurm.release(nodes, reason)
                    case Comment(node, text):
                        await slurm.comment(node, text)
                    case Reserve(node):
                        await slurm.reserve(node, users=self._users(batch.cluster))
                        batch.reserved.add(node)
                    case Unreserve(node):
                        await slurm.unreserve(node)
                        batch.reserved.discard(node)
                    case Requeue(node, why):
                        await self._requeue(batch, slurm, node, why)
        except (Retry, TimeoutError) as error:
            batch.slurm_trouble = error
            raise
        finally:
            batch.memory.wrote_slurm_at = time.monotonic()
            batch.slurm.hurry()

    async def _requeue(self, batch: Batch, slurm: SlurmActions, node: str, why: str) -> None:
        now, asked = time.monotonic(), batch.memory.requeued
        if now - asked.get(node, float("-inf")) < _REQUEUE_AGAIN_S:
            return
        asked[node] = now
        told = await slurm.requeue(node)
        log.info("requeued jobs", node=node, told=told)
        self._event(batch, node, "JobsRequeued", f"{told}: {why}")

    def _users(self, cluster: Key) -> set[str]:
        """Who submits the jobs of a cluster's checks."""
        specs = (it.spec.slurm_job_spec for it in self.world.checks.by("cluster", cluster))
        return {it.user for it in specs if it and it.user}

    # People

    def _notify(self, batch: Batch, action: Notify) -> None:
        self._event(batch, action.node, action.phase, action.message, warning=action.warning)
        notice = Notice(
            cluster=batch.cluster,
            node=action.node,
            phase=action.phase,
            message=action.message,
            machine=batch.status(action.node).machine,
            at=utc_now(),
        )
        self.notifications.put(notice, self.receivers.of(batch.policy, batch.cluster))

    def _event(self, batch: Batch, node: str, reason: str, note: str, *, warning: bool = False) -> None:
        health = batch.healths.get(node)
        if health is not None:
            self.recorder.event(NODE_HEALTHS, health, reason, note, warning=warning)


def nodes_of(action: Action) -> tuple[str, ...]:
    """The Slurm nodes that an action is about; a condition of a machine is about none."""
    match action:
        case Drain(nodes) | Release(nodes):
            return nodes
        case SetCondition():
            return ()
        case _:
            return (action.node,)


def _how(action: Action) -> Literal["records", "nodes", "alone"]:
    match action:
        case Record():
            return "records"
        case Climb() | Reserve() | Unreserve() | RunTest() | Requeue() | Comment() | SetCondition():
            return "nodes"
        case Release(nodes) if len(nodes) == 1:
            return "nodes"
        case _:
            return "alone"


def _without(action: Action, failed: Iterable[str]) -> Action | None:
    """Take nodes out of an action; None if none is left."""
    gone = set(failed)
    nodes = nodes_of(action)
    left = tuple(it for it in nodes if it not in gone)
    if nodes and not left:
        return None
    if isinstance(action, Drain | Release) and left != nodes:
        return msgspec.structs.replace(action, nodes=left)
    return action
