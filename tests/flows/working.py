"""Controllers at work in the process of a test."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from isthmus.domain.operator.manifests.common import Settings
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.recorder import Recorder
from isthmus.operator.world import World
from isthmus.runtime.health import report
from isthmus.runtime.manager import Manager, Worker
from tests.flows.kube.waiting import eventually


class Caches(Protocol):
    """The world of the bridge, or of the operator."""

    @property
    def in_touch(self) -> bool: ...

    def register(self, manager: Manager) -> None: ...


class Connection(NamedTuple):
    """How controllers reach the API server, and the requests by which they wrote anything."""

    kube: Client
    recorder: Recorder
    writes: list[str]


@asynccontextmanager
async def connected(kubeconfig: Path, *, controller: str = "isthmus-operator") -> AsyncIterator[Connection]:
    writes: list[str] = []

    def observe(method: str, *_: object) -> None:
        if method != "GET":
            writes.append(method)

    config = load(kubeconfig)
    # Events are sent beside everything else, are counted up later, and do not count here.
    async with Client(config, observe=observe) as kube, Client(config) as for_events:
        yield Connection(kube, Recorder(for_events, controller=controller, instance="test"), writes)


class Seat(NamedTuple):
    """What controllers of the operator work with, and the requests by which they wrote anything."""

    world: World
    recorder: Recorder
    writes: list[str]


@asynccontextmanager
async def seated(kubeconfig: Path, namespace: str) -> AsyncIterator[Seat]:
    """Connect controllers of the operator, for one namespace."""
    async with connected(kubeconfig) as found:
        world = World(found.kube, Settings(cgroup="none"), namespace=namespace)
        yield Seat(world, found.recorder, found.writes)


@asynccontextmanager
async def at_work(world: Caches, recorder: Recorder, workers: Iterable[Worker]) -> AsyncIterator[Manager]:
    """Run workers on a world until the block ends; it begins when everything has been read."""
    manager = Manager(grace=1.0)
    world.register(manager)
    for worker in workers:
        manager.lead(worker)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        events = tasks.create_task(recorder.run())
        try:
            await eventually(lambda: world.in_touch and report(manager.checks)[0])
            yield manager
        finally:
            manager.stop()
            events.cancel()
