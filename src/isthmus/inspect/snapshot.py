"""Kubernetes and Slurm as they are at this moment, for commands: the bridge's `World`, filled once by lists.

What cannot be read, because it is away or not allowed, stays empty, and `troubles` says why. So a command shows
what it can, to an administrator and to a user of one namespace.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from isthmus.bridge.cache.nodemap import OWNERS
from isthmus.bridge.cache.world import NAMESPACES, World, cluster_id
from isthmus.bridge.config import Config, tls, tokens
from isthmus.errors import IsthmusError
from isthmus.inspect.slurmsource import RestSource, SlurmSource
from isthmus.kube import config as kube_config
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.policy import POLICIES
from isthmus.model.slurm import Job
from isthmus.model.storage import CLAIMS, STORAGE_CLASSES, VOLUMES
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.client import connect

USUAL_REST_API: Final = "http://slurm-restapi.slurm:6820"
"""Where slurmrestd is by default: the Service that slurm-operator creates."""

_PATIENCE: Final = 20.0

T = TypeVar("T", bound=HasMeta)


class Snapshot(msgspec.Struct, frozen=True):
    """What was found. `jobs` are all jobs of Slurm, also those of others."""

    world: World
    namespace: str
    """The one that the kubeconfig, or the user, means."""
    jobs: tuple[Job, ...]
    troubles: Mapping[str, str]
    """By what could not be read: "pods", "nodes", "slurm" and so on."""


@asynccontextmanager
async def look(
    config: Config,
    *,
    kubeconfig: Path | None = None,
    namespace: str = "",
) -> AsyncIterator[Snapshot]:
    """Read everything once, all at the same time."""
    kube = kube_config.load(kubeconfig)
    endpoints = config.slurm_rest_api or (USUAL_REST_API,)
    async with (
        Client(kube) as client,
        connect(endpoints, tokens(config), tls=tls(config)) as slurm,
    ):
        yield await read(client, slurm, config, namespace=namespace or kube.namespace)


async def read(
    client: Client,
    slurm: SlurmClient,
    config: Config,
    *,
    namespace: str,
    source: SlurmSource | None = None,
    kinds: Collection[str] | None = None,
) -> Snapshot:
    """Read once: of Kubernetes all or only these kinds, and Slurm from another source, if one is given."""
    asked = source or RestSource(slurm)
    reading = _Reader(client, namespace, kinds)
    cluster = ""
    async with reading.noting("cluster"):
        cluster = await cluster_id(client)
    world = World(
        client,
        slurm,
        cluster=cluster,
        scheduler_name=config.scheduler_name,
        without_policy=config.without_policy,
    )
    jobs: tuple[Job, ...] = ()

    async def read_slurm() -> None:
        nonlocal jobs
        for node in await asked.nodes():
            world.poller.nodes.put(node.name, node)
        jobs = await asked.jobs()
        for job in jobs:
            world.poller.jobs.put(job.job_id, job)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reading.fill("pods", PODS, world.pods))
        tasks.create_task(reading.fill("nodes", NODES, world.nodes))
        tasks.create_task(reading.fill("claims", CLAIMS, world.claims))
        tasks.create_task(reading.fill("volumes", VOLUMES, world.volumes))
        tasks.create_task(reading.fill("storage classes", STORAGE_CLASSES, world.classes))
        tasks.create_task(reading.fill("namespaces", NAMESPACES, world.namespaces))
        tasks.create_task(reading.fill("policies", POLICIES, world.policies))
        for kind, store in zip(OWNERS, world.worker_owners, strict=True):
            tasks.create_task(reading.fill(f"{kind.plural}.{kind.group}", kind, store, optional=True))
        tasks.create_task(reading.note("slurm", read_slurm))
    return Snapshot(world, reading.namespace, jobs, reading.troubles)


class _Reader:
    def __init__(self, client: Client, namespace: str, kinds: Collection[str] | None) -> None:
        self._client = client
        self.namespace = namespace
        self._kinds = kinds
        self.troubles: dict[str, str] = {}

    async def fill(self, what: str, kind: Kind[T], store: Store[T], *, optional: bool = False) -> None:
        """List a kind into a store; where not all may be listed, those of the namespace."""

        async def read() -> None:
            try:
                listing = await self._client.list(kind)
            except NotFound:
                if optional:
                    return
                raise
            except Forbidden:
                if not kind.namespaced:
                    raise
                listing = await self._client.list(kind, namespace=self.namespace)
            for found in listing.items:
                store.put(found)

        if self._kinds is None or what in self._kinds:
            await self.note(what, read)

    async def note(self, what: str, read: Callable[[], Awaitable[None]]) -> None:
        """Read, or take note of why that failed."""
        async with self.noting(what):
            await read()

    @asynccontextmanager
    async def noting(self, what: str) -> AsyncIterator[None]:
        """Record a failure instead of failing."""
        try:
            async with asyncio.timeout(_PATIENCE):
                yield
        except IsthmusError as error:
            self.troubles[what] = error.what
        except TimeoutError:
            self.troubles[what] = f"no answer within {_PATIENCE:.0f} s"
