"""The node controller: gathers what both sides say of a node, asks `domain.bridge.noderules`, and acts.

Its keys are nodes of Kubernetes by name, and nodes of Slurm that belong to none. A heartbeat wakes no key, because
nothing that we read has changed; and a pass sends nothing unless there is something to do. While one side does not
answer, nothing is done at all.
"""

import time
from typing import Final, Literal, NamedTuple

import msgspec

from isthmus import names
from isthmus.bridge.cache.ledger import amount
from isthmus.bridge.cache.nodemap import is_external
from isthmus.bridge.cache.world import World
from isthmus.bridge.nodes.actions import NodeActions
from isthmus.bridge.nodes.capabilities import CapabilityReader
from isthmus.clock import utc_now
from isthmus.domain.bridge import noderecord
from isthmus.domain.bridge.devices import NO_DEVICES
from isthmus.domain.bridge.held import Held
from isthmus.domain.bridge.noderecord import NO_RESERVE, Reserve
from isthmus.domain.bridge.noderules import COMPLAINT_PAUSE, Complaint, Rules, decide, kube_facts, slurm_facts
from isthmus.domain.kube.podshape import requests_of
from isthmus.errors import Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics

_WORKERS: Final = 256
"""Each waits for Slurm most of the time; together they fill the lines that make many nodes at once."""

_OUT_OF_TOUCH: Final = 1.0


class NodeKey(NamedTuple):
    """A node by its name in Kubernetes or in Slurm."""

    side: Literal["kubernetes", "slurm"]
    name: str


class NodeSync:
    """The node controller of one process; `workers` are for its manager."""

    def __init__(
        self,
        world: World,
        rules: Rules,
        *,
        recorder: Recorder,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._rules = rules
        self._held = Held()
        self._mismatched: set[NodeKey] = set()
        """External nodes that Slurm does not have as Kubernetes describes them."""
        metrics.read(names.NODE_MISMATCH, lambda: [((), float(len(self._mismatched)))])
        self._capabilities = CapabilityReader(world.slurm)
        self._actions = NodeActions(world.kube, world.slurm, recorder=recorder, metrics=metrics)
        self.controller: Controller[NodeKey] = Controller(
            "nodes", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.nodes.on_change(self._kube_changed)
        world.map.on_change(self._wake)
        world.slurm_nodes.on_change(self._slurm_changed)
        world.capacity.on_change(self._capacity_changed)
        world.devices.on_change(self._devices_changed)
        for name in world.slurm_nodes:
            self._wake(name)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def reconcile(self, key: NodeKey) -> None:
        """Bring one node into step."""
        if not self._world.in_touch:
            raise Wait("Kubernetes or Slurm does not answer", after=_OUT_OF_TOUCH)
        kube, name = self._gather(key)
        if kube is None and name is None:
            self._mismatched.discard(key)
            return
        if name is None:
            self._mismatched.add(key)
            self._look_again(key, COMPLAINT_PAUSE)
            self._actions.complain(kube, [Complaint("NameTaken", "another node has its name in Slurm")])
            return
        capabilities = await self._capabilities.of(kube)
        # Read after the last await: the decision is about what is known now.
        slurm = self._world.slurm_nodes.get(name)
        decision = decide(
            kube,
            slurm,
            name=name,
            rules=self._rules,
            now=utc_now(),
            capabilities=capabilities,
            reserved=self._reserved(key) if kube else NO_RESERVE,
            devices=self._world.devices.on(key.name) if kube else NO_DEVICES,
        )
        self._actions.complain(kube, decision.complaints)
        if decision.look_again is not None:
            self._look_again(key, decision.look_again)
        refusal = await self._actions.act(kube, slurm, decision.actions)
        if refusal:
            self._actions.complain(kube, [refusal])
            self._look_again(key, COMPLAINT_PAUSE)
        external = kube is not None and names.EXTERNAL_NODE_LABEL in kube.metadata.labels
        if external and (refusal or decision.complaints or decision.differs):
            self._mismatched.add(key)
        else:
            self._mismatched.discard(key)

    def _gather(self, key: NodeKey) -> tuple[Node | None, str | None]:
        """Find the Kubernetes node, and the name in Slurm; neither, if there is nothing to look at (any more)."""
        if key.side == "slurm":
            # Whoever belongs to a Kubernetes node is looked at under that one's name.
            orphan = self._world.map.kube_name(key.name) is None and key.name in self._world.slurm_nodes
            return None, key.name if orphan else None
        node = self._world.nodes.get(Key("", key.name))
        if node is None:
            return None, None
        name = self._world.map.slurm_name(key.name)
        if name is None and names.EXTERNAL_NODE_LABEL not in node.metadata.labels:
            return None, None
        return node, name

    def _reserved(self, key: NodeKey) -> Reserve:
        """Add up what others hold on a Kubernetes node. That it became less is believed after a while only."""
        world = self._world
        workers = [
            (node, requests_of(pod, read=amount))
            for name, pod_key in world.map.workers_on(key.name)
            if (node := world.slurm_nodes.get(name)) and (pod := world.pods.get(pod_key))
        ]
        found = noderecord.reserve(world.capacity.reserved(key.name), workers)
        held, wait = self._held.settle(key.name, found.amounts, now=time.monotonic())
        if wait:
            self._look_again(key, wait)
        return msgspec.structs.replace(found, amounts=held)

    def _look_again(self, key: NodeKey, after: float) -> None:
        self.controller.queue.add(key, after=after)

    # What wakes a node

    def _kube_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if new is None:
            self._held.forget(key.name)
            self._mismatched.discard(NodeKey("kubernetes", key.name))
        elif old is None or kube_facts(old) != kube_facts(new):
            self.controller.queue.add(NodeKey("kubernetes", key.name))

    def _capacity_changed(self, name: str) -> None:
        node = self._world.nodes.get(Key("", name))
        if node is not None and is_external(node):
            self.controller.queue.add(NodeKey("kubernetes", name))

    def _devices_changed(self, name: str) -> None:
        self.controller.queue.add(NodeKey("kubernetes", name))

    def _slurm_changed(self, name: str, old: SlurmNode | None, new: SlurmNode | None) -> None:
        if old is None or new is None or slurm_facts(old) != slurm_facts(new):
            self._wake(name)

    def _wake(self, slurm_node: str) -> None:
        kube = self._world.map.kube_name(slurm_node)
        self.controller.queue.add(NodeKey("kubernetes", kube) if kube else NodeKey("slurm", slurm_node))
