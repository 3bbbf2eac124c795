"""A running node controller on a real API server and a real Slurm, and the nodes that it is tried with."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache.world import World, cluster_id
from isthmus.bridge.nodes.sync import NodeSync
from isthmus.domain.bridge.devices import Profile
from isthmus.domain.bridge.noderules import Rules
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.node import NODES, Node
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import NodeChange
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import WITHIN, until
from tests.flows.slurm.helpers import busy_on, new_key
from tests.flows.working import at_work

EXTERNAL = {names.EXTERNAL_NODE_LABEL: ""}


@pytest.fixture
def bed(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm that can make nodes, and knows GPUs."""
    bed = shared_slurm("26.05", nodes=1, accounting=False, settings={"GresTypes": "gpu"})
    yield bed
    bed.command("scancel", "--user=slurm")


@pytest.fixture
async def name(client: Client, bed: SlurmBed) -> AsyncIterator[str]:
    """A name for a node that is gone from both sides in the end."""
    name = f"k-{uuid4().hex[:8]}"
    yield name
    with suppress(NotFound):
        await client.delete(NODES, name)

    def forgotten() -> bool:
        bed.command("sh", "-c", f"scancel -w {name}; scontrol delete nodename={name} || true")
        return f"NodeName={name} " not in bed.scontrol("show", "--oneliner", "nodes")

    # A node whose job is still being ended cannot be deleted, and the next test's controller would meet it.
    await until(forgotten)


class Nodes:
    """A running node controller, and what tests do with nodes."""

    def __init__(self, world: World, sync: NodeSync, metrics: Metrics) -> None:
        self.world = world
        self.sync = sync
        self._metrics = metrics
        self.writes: list[str] = []
        """The methods of all requests to the API server that change something."""

    @property
    def kube(self) -> Client:
        return self.world.kube

    def did(self, action: str) -> int:
        """Count what the controller has done."""
        return int(self._metrics.node_action(action)._value.get())

    @property
    def mismatched(self) -> int:
        """How many nodes it says Slurm and Kubernetes describe differently."""
        return int(counted(self._metrics, names.NODE_MISMATCH))

    def node(self, name: str) -> Node | None:
        return self.world.nodes.get(Key("", name))

    def slurm(self, name: str) -> SlurmNode | None:
        return self.world.slurm_nodes.get(name)

    async def registered(self, name: str, **facts: Any) -> SlurmNode:
        """Wait until Slurm has the node, with our record, and with these facts."""

        def found() -> SlurmNode | None:
            node = self.slurm(name)
            good = node and node.extra and all(getattr(node, key) == value for key, value in facts.items())
            return node if good else None

        return msgspec.convert(await until(found), SlurmNode)

    async def in_state(self, name: str, *states: str, without: str = "") -> SlurmNode:
        """Wait until Slurm's node is in these states, and not in another."""

        def found() -> SlurmNode | None:
            node = self.slurm(name)
            return node if node and set(states) <= set(node.state) and without not in node.state else None

        return msgspec.convert(await until(found), SlurmNode)

    async def gone(self, name: str) -> None:
        await until(lambda: self.slurm(name) is None)

    async def cordoned(self, name: str, *, mark: str = "") -> Node:
        """Wait until a node is cordoned, and by whom."""

        def found() -> Node | None:
            node = self.node(name)
            return node if node and node.spec.unschedulable and mark in mark_of(node) else None

        return msgspec.convert(await until(found), Node)

    async def open(self, name: str) -> None:
        await until(lambda: (node := self.node(name)) and not node.spec.unschedulable and not mark_of(node))

    async def settled(self) -> None:
        """Wait until both caches have been read anew and nothing is left to be done."""
        for _ in range(2):
            async with asyncio.timeout(WITHIN):
                # Asked each time: a node with a slurmd may change by itself while we wait.
                while not await self._is_up_to_date():  # noqa: ASYNC110 - the condition is one of two worlds
                    await asyncio.sleep(0.05)
            await until(lambda: not self.sync.controller.queue.taken)

    async def _is_up_to_date(self) -> bool:
        listing = await self.world.slurm.nodes()
        assert listing
        states = {it.name: it.state for it in listing.nodes}
        return states == {name: node.state for name, node in self.world.slurm_nodes.items()}

    async def cordon(self, name: str, *, shut: bool = True) -> None:
        await self.kube.merge_patch(NODES, name, {"spec": {"unschedulable": shut}})

    async def tell(self, name: str, state: str, reason: str | None = None) -> None:
        """Do to a Slurm node what an administrator would."""
        await self.world.slurm.update_node(name, NodeChange(state=(state,), reason=reason))

    async def events(self, name: str) -> set[str]:
        listed = msgspec.json.decode(
            await self.kube.raw(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")
        )
        return {item["reason"] for item in listed["items"]}

    async def told(self, name: str, reason: str) -> None:
        """Wait for an Event."""
        async with asyncio.timeout(WITHIN):
            while reason not in await self.events(name):  # noqa: ASYNC110 - nobody watches Events
                await asyncio.sleep(0.05)

    async def busy(self, name: str, **changes: Any) -> int:
        """Let an external job run on a node; returns its id."""
        job = (await self.world.slurm.submit(busy_on(name, **changes), key=new_key())).job_id
        await until(lambda: (node := self.slurm(name)) and not {"MIXED", "ALLOCATED"}.isdisjoint(node.state))
        return job


def mark_of(node: Node) -> str:
    return node.metadata.annotations.get(names.NODE_CORDON_ANNOTATION, "")


@asynccontextmanager
async def running_nodes(
    config: Config,
    slurm: SlurmBed | str,
    *,
    key: Path | None = None,
    profiles: Sequence[Profile] = (),
    **rules: Any,
) -> AsyncIterator[Nodes]:
    """Run a node controller until the block ends; `slurm` is a bed, or the URL of a proxy before it."""
    url = slurm if isinstance(slurm, str) else slurm.rest_url
    jwt_key = slurm.jwt_key if isinstance(slurm, SlurmBed) else key
    assert jwt_key
    writes: list[str] = []

    def observe(method: str, _code: int, _seconds: float) -> None:
        if method != "GET":
            writes.append(method)

    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Client(config, observe=observe))
        client = await stack.enter_async_context(connect([url], MintedTokens(jwt_key, user="slurm")))
        world = World(kube, client, cluster=await cluster_id(kube), profiles=profiles)
        metrics = Metrics()
        recorder = Recorder(kube, controller="slurm-bridge", instance="test")
        sync = NodeSync(world, Rules(cluster=world.cluster, **rules), recorder=recorder, metrics=metrics)
        await stack.enter_async_context(at_work(world, recorder, sync.workers))
        nodes = Nodes(world, sync, metrics)
        nodes.writes = writes
        yield nodes


async def make_kube_node(
    client: Client,
    name: str,
    *,
    labels: Mapping[str, str] = EXTERNAL,
    annotations: Mapping[str, str] | None = None,
    address: str = "198.18.0.1",
    ready: str = "True",
    **resources: str,
) -> None:
    """Make a node as its kubelet would. The label comes last, so that it is registered as what it is."""
    await client.create(NODES, {"metadata": {"name": name, "annotations": dict(annotations or {})}})
    allocatable = {"cpu": "4", "memory": "1000Mi", "pods": "110"}
    allocatable |= {_resource(key): value for key, value in resources.items()}
    status = {
        "capacity": {**allocatable, "memory": "1200Mi"},
        "allocatable": allocatable,
        "addresses": [{"type": "InternalIP", "address": address}],
        **ready_condition(ready),
    }
    await client.merge_patch(NODES, name, {"status": status}, subresource="status")
    await client.merge_patch(NODES, name, {"metadata": {"labels": dict(labels)}, "spec": {"taints": None}})


def ready_condition(status: str) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "conditions": [
            {"type": "Ready", "status": status, "reason": "Test", "message": "", "lastTransitionTime": moment}
        ]
    }


async def resize(client: Client, name: str, **resources: str) -> None:
    """Change what a node has to give, as its kubelet would."""
    allocatable = {_resource(key): value for key, value in resources.items()}
    patch = {"status": {"capacity": allocatable, "allocatable": allocatable}}
    await client.merge_patch(NODES, name, patch, subresource="status")


def _resource(key: str) -> str:
    return {"gpu": "nvidia.com/gpu"}.get(key, key)


async def make_many(client: Client, prefix: str, count: int) -> list[str]:
    """Make many nodes that are alike, a few at a time."""
    made = [f"{prefix}{number}" for number in range(count)]
    gate = asyncio.Semaphore(16)

    async def make(number: int, name: str) -> None:
        async with gate:
            await make_kube_node(client, name, address=f"198.18.{number // 250}.{number % 250 + 1}")

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(made):
            group.create_task(make(number, name))
    return made


async def time_registration(
    config: Config, slurm: SlurmBed | str, names_: list[str], *, key: Path | None = None
) -> float:
    """Start a controller where Slurm knows none of these nodes; tell after how many seconds it has them all."""
    began = time.perf_counter()
    async with running_nodes(config, slurm, key=key) as nodes:
        wanted = frozenset(names_)

        def all_there() -> bool:
            return sum(1 for name, node in nodes.world.slurm_nodes.items() if node.extra and name in wanted) == len(
                wanted
            )

        await until(all_there, within=120)
        return time.perf_counter() - began
