"""A running NodeSet controller on a real API server and a real Slurm, with the test in the place of kubelets.

There are no nodes that run anything: `up` does to pods what a scheduler, a kubelet and slurmd would do, and makes
the Slurm nodes that slurmd would register.
"""

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.kube.conditions import holds
from isthmus.domain.languages.slurmconf import Directive
from isthmus.domain.operator.manifests.common import labels
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.model.meta import Condition, Key, condition
from isthmus.model.node import NODES
from isthmus.model.objects import SECRETS
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import CONTROLLERS, NODESETS, NodeSet, NodeSetStatus
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import NodeChange
from isthmus.names import MetricName
from isthmus.operator.applier import Applier
from isthmus.operator.metrics import ClusterMetrics
from isthmus.operator.nodesets.sync import NodeSetSync
from isthmus.operator.slurms import Address, Slurm
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import World
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.slurm.helpers import busy_on, new_key
from tests.flows.working import seated

CONTROLLER = "slurm"
PLACES = "places-of"
"""Labels the Kubernetes nodes that were made for the pods of a namespace."""

FOR_OTHERS = 120.0
"""Seconds for what Kubernetes' own controllers do in their time: garbage collection, the end of a namespace."""


class NodeSets:
    """A running NodeSet controller, and what tests do with it."""

    def __init__(
        self, world: World, sync: NodeSetSync, kube: Client, requests: list[str], metrics: Metrics
    ) -> None:
        self.world = world
        self._metrics = metrics
        self.kube = kube
        """The test's own connection."""
        self.sync = sync
        self.requests = requests
        """The methods of all requests that the controller has sent and that change something, but Events."""

    def counted(self, metric: MetricName, suffix: str = "", /, **labels: str) -> float:
        """What the controller has counted in our namespace."""
        return counted(self._metrics, metric, suffix, namespace=self.namespace, **labels)

    @property
    def namespace(self) -> str:
        return self.world.namespace

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    @property
    def slurm(self) -> Slurm:
        found = self.world.slurms.of(self.key(CONTROLLER))
        assert found
        return found

    # NodeSets

    async def make(self, name: str = "w", **spec: Any) -> None:
        """Make a NodeSet."""
        wanted = {"controllerRef": {"name": CONTROLLER}, **spec}
        await self.kube.create(NODESETS, {"metadata": {"namespace": self.namespace, "name": name}, "spec": wanted})
        await eventually(lambda: self.key(name) in self.world.nodesets)

    async def change(self, name: str = "w", **spec: Any) -> None:
        await self.kube.merge_patch(NODESETS, self.key(name), {"spec": spec})

    def nodeset(self, name: str = "w") -> NodeSet:
        found = self.world.nodesets.get(self.key(name))
        assert found, f"there is no NodeSet {name}"
        return found

    def status(self, name: str = "w") -> NodeSetStatus:
        return self.nodeset(name).status

    def condition(self, type_: str, name: str = "w") -> Condition | None:
        return condition(self.status(name).conditions, type_)

    def ready(self, name: str = "w") -> bool:
        found = self.world.nodesets.get(self.key(name))
        if found is None:
            return False
        told = condition(found.status.conditions, "Ready")
        return holds(found.status.conditions, "Ready") and bool(
            told and told.observed_generation == found.metadata.generation
        )

    async def settled(self, name: str = "w", *, within: float = 60) -> None:
        """Wait until a NodeSet says that it is ready."""
        try:
            await eventually(lambda: self.ready(name), within=within)
        except AssertionError:
            raise AssertionError(f"NodeSet {name} is not ready: {self.status(name)}") from None

    async def serve(self, count: int) -> None:
        """Make a NodeSet of so many workers, and bring all of them up."""
        workers = [f"w-{ordinal}" for ordinal in range(count)]
        await self.make(replicas=count)
        await self.there(*workers)
        await self.up(*workers)
        await self.settled()

    # Pods

    def pods(self, name: str = "w") -> dict[str, Pod]:
        """Find the pods of a NodeSet that are not on their way out."""
        uid = self.nodeset(name).metadata.uid
        return {it.metadata.name: it for it in self.world.pods.by("owner", uid) if not it.leaving}

    async def there(self, *wanted: str, name: str = "w") -> None:
        """Wait until a NodeSet has exactly these pods."""
        try:
            await eventually(lambda: set(self.pods(name)) == set(wanted))
        except AssertionError:
            raise AssertionError(f"there are {sorted(self.pods(name))} and not {sorted(wanted)}") from None

    async def up(self, *pods: str, node: str = "", register: bool = True, **line: Any) -> None:
        """Do what scheduler, kubelet and slurmd do: place pods, register them, and say that they are ready."""
        found = [self.world.pods.get(self.key(it)) for it in pods]
        unbound = [it for it in found if it and not it.spec.node_name]
        await _all(self._place(it, node) for it in unbound)
        if register:
            await self.register(*(it.metadata.labels[names.POD_HOSTNAME_LABEL] for it in found if it), **line)
        await _all(self.tell(it) for it in pods)

    async def _place(self, pod: Pod, node: str) -> None:
        if not node:
            # Of its own, and there: Kubernetes removes pods from nodes that do not exist, after a minute at most.
            node = f"{self.namespace}-{pod.metadata.name}"
            with suppress(AlreadyExists):
                await self.kube.create(NODES, {"metadata": {"name": node, "labels": {PLACES: self.namespace}}})
        await self.kube.bind(pod.metadata.key, node)

    async def tell(self, pod: str, *, ready: bool = True, phase: str = "Running") -> None:
        """Say how a pod is, as kubelet does."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [
            {"type": type_, "status": "True" if ready else "False", "lastTransitionTime": moment}
            for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        status = {"phase": phase, "conditions": conditions, "startTime": moment}
        await self.kube.merge_patch(PODS, self.key(pod), {"status": status}, subresource="status")

    async def bury(self, *pods: str) -> None:
        """Let pods that were deleted go, as kubelet does when their containers have ended."""
        for key in map(self.key, pods):
            found = self.world.pods.get(key)
            if found is None or not found.leaving:
                continue  # it is gone, and this may be the one that takes its place
            uid = found.metadata.uid
            with suppress(NotFound, Conflict):
                await self.kube.delete(PODS, key, uid=uid, grace=0)
            await eventually(lambda: (it := self.world.pods.get(key)) is None or it.metadata.uid != uid)  # noqa: B023

    async def succeeded(self, *pods: Pod, within: float = 60) -> None:
        """Wait until each of these pods has another in its place."""

        def replaced(old: Pod) -> bool:
            new = self.world.pods.get(old.metadata.key)
            return new is not None and not new.leaving and new.metadata.uid != old.metadata.uid

        await eventually(lambda: all(map(replaced, pods)), within=within)

    def mirrored(self, pod: str) -> set[str]:
        """Which states of Slurm a pod shows."""
        found = self.world.pods.get(self.key(pod))
        conditions = found.status.conditions if found else ()
        return {it.type for it in conditions if it.type.startswith("SlurmNodeState")}

    def leaving(self, pod: str) -> bool:
        """Whether a pod was deleted."""
        found = self.world.pods.get(self.key(pod))
        return found is None or found.leaving

    # Slurm

    async def register(self, *slurm_names: str, **line: Any) -> None:
        """Make nodes in Slurm as slurmd would, with the features of the NodeSet."""
        for name in slurm_names:
            if name in self.slurm.nodes:
                continue
            feature = name.rpartition("-")[0]
            settings: dict[str, Any] = {"NodeName": name, "CPUs": 1, "RealMemory": 100, "Feature": feature}
            settings["State"] = "External"
            await self.slurm.client.create_node(Directive.of({**settings, "NodeAddr": "127.0.0.1", **line}))
        self.slurm.hurry()
        await eventually(lambda: all(name in self.slurm.nodes for name in slurm_names))

    def record(self, name: str) -> SlurmNode | None:
        return self.slurm.nodes.get(name)

    async def in_state(self, name: str, *states: str, without: str = "") -> SlurmNode:
        """Wait until Slurm's node is in these states, and not in another."""
        self.slurm.hurry()

        def found() -> bool:
            node = self.record(name)
            return bool(node and set(states) <= set(node.state) and without not in node.state)

        await eventually(found)
        return msgspec.convert(self.record(name), SlurmNode, from_attributes=True)

    async def tell_slurm(self, name: str, state: str, reason: str | None = None) -> None:
        """Do to a Slurm node what an administrator would."""
        await self.slurm.client.update_node(name, NodeChange(state=(state,), reason=reason))
        self.slurm.hurry()

    async def busy(self, name: str) -> int:
        """Let a job run on a node; returns its id."""
        job = (await self.slurm.client.submit(busy_on(name), key=new_key())).job_id
        self.slurm.hurry()
        await eventually(lambda: (node := self.record(name)) and not {"MIXED", "ALLOCATED"}.isdisjoint(node.state))
        return job

    async def end(self, job: int) -> None:
        await self.slurm.client.cancel_job(job)
        self.slurm.hurry()

    # Kubernetes nodes

    async def node(self, name: str, *, taints: Any = None, **metadata: Any) -> None:
        """Make a Kubernetes node."""
        await self.kube.create(NODES, {"metadata": {"name": name, **metadata}})
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {"capacity": allocatable, "allocatable": allocatable}
        await self.kube.merge_patch(NODES, name, {"status": status}, subresource="status")
        await self.kube.merge_patch(NODES, name, {"spec": {"taints": taints}})

    async def events(self, name: str = "w") -> dict[str, str]:
        """Read the Events of a NodeSet: reasons and notes."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={name}"
        listed = msgspec.json.decode(await self.kube.raw(path))
        return {item["reason"]: item["message"] for item in listed["items"]}

    async def told(self, reason: str, *, name: str = "w") -> str:
        """Wait for an Event, which is written some time after what it tells of; return its note."""
        async with asyncio.timeout(60):
            while reason not in (found := await self.events(name)):  # noqa: ASYNC110 - nobody tells of Events
                await asyncio.sleep(0.05)
            return found[reason]

    async def quiet(self, *, seconds: float = 3.0) -> None:
        """Give the controller time for what it should not do."""
        await asyncio.sleep(seconds)

    async def still(self, *, seconds: float = 3.0) -> None:
        """Wait until the controller writes nothing for a while: the last answers may be on their way."""
        async with asyncio.timeout(60):
            before = -1
            while before != len(self.requests):
                before = len(self.requests)
                await asyncio.sleep(seconds)


async def _all(work: Iterable[Any], *, at_once: int = 16) -> None:
    gate = asyncio.Semaphore(at_once)

    async def one(it: Any) -> None:
        async with gate:
            await it

    async with asyncio.TaskGroup() as tasks:
        for it in work:
            tasks.create_task(one(it))


async def make_controller(kube: Client, namespace: str, name: str = CONTROLLER) -> None:
    """Make a Controller, and the Secret that its own controller would make."""
    keys = {"slurmKeyRef": {"name": "keys", "key": "slurm.key"}, "jwtKeyRef": {"name": "keys", "key": "jwt.key"}}
    await kube.create(CONTROLLERS, {"metadata": {"namespace": namespace, "name": name}, "spec": keys})
    marks = labels("slurmctld", name, "controller", cluster=name)
    secret = {"slurm.jwks": b64encode(b"{}").decode()}
    metadata = {"namespace": namespace, "name": f"{name}-auth", "labels": marks}
    await kube.create(SECRETS, {"metadata": metadata, "data": secret})


@asynccontextmanager
async def running(
    control_plane: ControlPlaneBed,
    namespace: str,
    slurm: SlurmBed | str | None,
    *,
    jwt_key: bytes = b"",
    kubeconfig: Path | None = None,
) -> AsyncIterator[NodeSets]:
    """Run a NodeSet controller until the block ends; `slurm` is a bed, the URL of a proxy before it, or none.

    With `kubeconfig`, the controller takes another way to the API server than the test does.
    """
    async with (
        seated(kubeconfig or control_plane.kubeconfig, namespace) as (world, recorder, requests),
        Client(load(control_plane.kubeconfig)) as own,
    ):
        kube, metrics = world.kube, Metrics()
        metrics.registry.register(ClusterMetrics([world]))
        sync = NodeSetSync(
            world,
            applier=Applier(kube),
            reporter=Reporter(kube),
            recorder=recorder,
            metrics=metrics,
        )
        manager = Manager(grace=1.0)
        world.register(manager)
        for worker in sync.workers:
            manager.lead(worker)
        if slurm is not None:
            url = slurm if isinstance(slurm, str) else slurm.rest_url
            key = jwt_key if isinstance(slurm, str) else slurm.jwt_key.read_bytes()
            world.slurms.follow(Key(namespace, CONTROLLER), Address((url,), key))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(manager.run())
            tasks.create_task(world.slurms.run())
            events = tasks.create_task(recorder.run())
            try:
                await eventually(lambda: world.in_touch)
                if slurm is not None:
                    await eventually(lambda: world.slurms.of(Key(namespace, CONTROLLER)))
                yield NodeSets(world, sync, own, requests, metrics)
            finally:
                manager.stop()
                world.slurms.stop()
                events.cancel()
