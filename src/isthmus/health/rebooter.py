"""The rebooter of one machine: watches its Node and the pods there, and does what `domain.health.reboots` decides.

It writes to no other Node, whatever its rights are, and every change is refused if the Node has changed since it
was read. Out of touch with Kubernetes it waits: what it cannot see may be a pod.
"""

import asyncio
import ctypes
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health import reboots
from isthmus.domain.health.reboots import (
    Boot,
    Evict,
    Lock,
    Mark,
    Reboot,
    ReleaseLock,
    Rest,
    Seen,
    SetCondition,
    SetNode,
    Step,
    TakeLock,
)
from isthmus.errors import Retry, Wait
from isthmus.health.rebootlock import RebootLock
from isthmus.kube.client import Client, path
from isthmus.kube.errors import NotFound, TooManyRequests
from isthmus.kube.informer import Informer
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES, Node
from isthmus.model.nodeconfigurator import EvictionMethod
from isthmus.model.pod import PODS, Pod
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics

log = structlog.get_logger()

RebootNow = Callable[[], Awaitable[None]]
"""Makes the machine reboot; raises `Retry` if that did not work."""

KERNEL: Final = ("kernel",)
"""Instead of a command: let the kernel reboot at once, as `reboot -f` does, whatever runs the machine."""

_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_MAX_STEPS: Final = 20
"""In one pass; more would be a decision that turns in circles."""
_AGAIN_S: Final = 1.0
_COMMAND_WITHIN: Final = 120.0
_MAX_CHARS: Final = 300
_RESTART: Final = 0x01234567
"""LINUX_REBOOT_CMD_RESTART. In a machine of a local cluster it ends that machine alone: see reboot(2)."""


class Rebooter:
    """One machine's rebooter. Its caches and its controller are for a `Manager`."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        lock: RebootLock,
        boot: Callable[[], Boot],
        reboot: RebootNow,
        recorder: Recorder,
        metrics: Metrics,
        method: EvictionMethod = "evict",
        ignore_protection: bool = False,
        recheck: float = reboots.SLOW,
    ) -> None:
        self._client = client
        self._key = Key("", node)
        self._lock = lock
        self._boot = boot
        self._reboot_now = reboot
        self._recorder = recorder
        self._method: EvictionMethod = method
        self._ignore_protection = ignore_protection
        self._recheck = recheck
        self._written: Node | None = None
        self.nodes: Informer[Node] = Informer(client, NODES, fields=f"metadata.name={node}")
        self.pods: Informer[Pod] = Informer(client, PODS, fields=f"spec.nodeName={node}")
        self.controller: Controller[Key] = Controller("rebooter", self.reconcile, metrics=metrics, workers=1)
        self.nodes.store.on_change(lambda *_: self.controller.queue.add(self._key))
        self.pods.store.on_change(lambda *_: self.controller.queue.add(self._key))

    async def reconcile(self, key: Key) -> None:
        if not (self.nodes.contact.in_touch and self.pods.contact.in_touch):
            raise Wait("Kubernetes does not answer", after=_AGAIN_S)
        node = self._newest()
        if node is None:
            raise Wait(f"there is no Node {key.name}", after=self._recheck)
        for _ in range(_MAX_STEPS):
            step = await self._decide(node, self._pods())
            log.debug("next", step=type(step).__name__)
            match step:
                case Rest(after=after, why=why):
                    log.debug("resting", reason=why)
                    self.controller.queue.add(key, after=min(after, self._recheck))
                    return
                case Evict(pods=pods):
                    await self._evict(pods)
                    self.controller.queue.add(key, after=reboots.PODS_AGAIN)
                    return
                case Reboot():
                    await self._reboot()
                    self.controller.queue.add(key, after=self._recheck)
                    return
                case _:
                    node = await self._act(node, step)
        raise Retry(f"Node {key.name} keeps changing")

    def _newest(self) -> Node | None:
        """Return the Node as it is; the cache may not have heard of our last write yet."""
        node, written = self.nodes.store.get(self._key), self._written
        if node is None or written is None or node.metadata.uid != written.metadata.uid:
            return node
        return max(node, written, key=lambda it: int(it.metadata.resource_version))

    def _pods(self) -> tuple[Pod, ...]:
        return tuple(it for it in self.pods.store.values() if it.spec.node_name == self._key.name)

    async def _decide(self, node: Node, pods: Sequence[Pod]) -> Step:
        lock = await self._lock.look() if reboots.needs_lock(node) else Lock()
        return reboots.next_step(
            Seen(
                node=node,
                pods=tuple(pods),
                boot=self._boot(),
                now=utc_now(),
                lock=lock,
                method=self._method,
                ignore_protection=self._ignore_protection,
            )
        )

    async def _act(self, node: Node, step: Step) -> Node:
        match step:
            case SetNode():
                node = await self._set_node(node, step)
            case SetCondition():
                node = await self._set_condition(node, step)
            case TakeLock():
                await self._lock.take()
            case ReleaseLock():
                await self._lock.release()
        return node

    async def _set_node(self, node: Node, step: SetNode) -> Node:
        mark = None if step.mark is None else msgspec.json.encode(step.mark).decode()
        spec: dict[str, Any] = {}
        if step.unschedulable != node.spec.unschedulable:
            spec["unschedulable"] = step.unschedulable or None
        if step.taints != node.spec.taints:
            spec["taints"] = msgspec.to_builtins(step.taints) or None
        metadata = {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {names.REBOOTER_ANNOTATION: mark},
        }
        log.info("changing the node", cordoned=step.unschedulable, mark=mark)
        patch = {"metadata": metadata, **({"spec": spec} if spec else {})}
        self._written = await self._client.merge_patch(NODES, self._key, patch)
        return self._written

    async def _set_condition(self, node: Node, step: SetCondition) -> Node:
        moment = utc_now().replace(microsecond=0)
        there = condition(node.status.conditions, step.type)
        same = there is not None and there.status == step.status
        written = {
            "type": step.type,
            "status": step.status,
            "reason": step.reason,
            "message": step.message,
            "lastHeartbeatTime": moment,
            "lastTransitionTime": there.last_transition_time if there and same else moment,
        }
        patch = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": [written]},
        }
        log.info("telling", condition=step.type, status=step.status, reason=step.reason, message=step.message)
        # Of the conditions of others, none is touched: a strategic patch merges them by type.
        target = path(NODES, self._key, "status")
        answer = await self._client.send("PATCH", target, body=msgspec.json.encode(patch), content=_STRATEGIC_PATCH)
        self._written = NODES.decoder.decode(answer)
        if there is None or there.reason != step.reason:
            self._recorder.event(NODES, node, step.reason, step.message, action="Reboot")
        return self._written

    async def _evict(self, pods: Sequence[tuple[Key, str]]) -> None:
        for pod, uid in pods:
            try:
                await self._client.evict(pod, uid=uid)
            except NotFound:
                continue
            except TooManyRequests as error:
                log.info("a disruption budget forbids the eviction of a pod", pod=str(pod), error=error.what)

    async def _reboot(self) -> None:
        """Look again at everything, by the API server and not by caches; then note it, then do it."""
        node = await self._client.get(NODES, self._key)
        pods = await self._client.list(PODS, fields=f"spec.nodeName={self._key.name}")
        step = await self._decide(node, pods.items)
        if not isinstance(step, Reboot):
            raise Wait("something changed before the reboot", after=_AGAIN_S)
        node = await self._set_mark(node, step.mark)
        log.warning("rebooting the machine", boot=step.mark.boot)
        try:
            await self._reboot_now()
        except Retry as error:
            await self._set_mark(node, msgspec.structs.replace(step.mark, told=None))
            self._recorder.event(NODES, node, "RebootFailed", error.what, warning=True, action="Reboot")
            raise

    async def _set_mark(self, node: Node, mark: Mark) -> Node:
        return await self._set_node(node, SetNode(node.spec.unschedulable, node.spec.taints, mark))


def by_command(words: Sequence[str]) -> RebootNow:
    """Make the machine reboot by a program, or by the kernel itself."""

    async def run() -> None:
        if tuple(words) == KERNEL:
            _by_kernel()
            return
        try:
            process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
        except OSError as error:
            raise Retry(f"the reboot command {words[0]} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(_COMMAND_WITHIN):
                said, _ = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise Retry(f"the reboot command did not end within {_COMMAND_WITHIN:.0f} s") from error
        if process.returncode:
            tail = " ".join(said.decode(errors="replace").split())[-_MAX_CHARS:]
            raise Retry(f"the reboot command ended with {process.returncode}: {tail or 'no output'}")

    return run


def _by_kernel() -> None:
    os.sync()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.reboot(_RESTART):
        raise Retry(f"the kernel refuses to reboot: {os.strerror(ctypes.get_errno())}")
