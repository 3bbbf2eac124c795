"""How a process begins: its client, health and metrics before anything that may have to wait, and who leads."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from isthmus.kube import config as kube_config
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import Key
from isthmus.runtime import addresses, server
from isthmus.runtime.election import Election
from isthmus.runtime.fuse import Fuse
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics


@dataclass(frozen=True)
class Lease:
    """By what replicas of a process elect a leader."""

    name: str
    namespace: str = ""
    """Empty for that of this pod."""
    labels: Mapping[str, str] = field(default_factory=dict)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a process runs, as its flags say: what all have."""

    kubeconfig: Path | None = None
    metrics_address: str = ":8080"
    health_address: str = ":8081"


class LeaderOptions(Options, frozen=True, kw_only=True):
    """What those have of which one leads."""

    name: str
    """What the installation is called, and its Lease."""
    namespaces: tuple[str, ...] = ()
    """The namespaces that it looks after; none means all."""
    elect: bool = True
    election_namespace: str = ""

    def lease(self, labels: Mapping[str, str]) -> Lease | None:
        return Lease(self.name, self.election_namespace, labels) if self.elect else None


@dataclass(frozen=True)
class Process:
    """What every process has."""

    kube: Config
    client: Client
    manager: Manager
    metrics: Metrics
    lease: Key | None
    """None if there is no election."""


@asynccontextmanager
async def begin(
    options: Options,
    *,
    environ: Mapping[str, str],
    lease: Lease | None = None,
    metrics_tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Process]:
    metrics = Metrics()
    kube = kube_config.load(options.kubeconfig, environ=environ)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(kube, observe=metrics.client(kube.server)))
        key, election = None, None
        if lease is not None:
            # A client of its own: requests of others must not delay the renewal.
            lease_client = await stack.enter_async_context(Client(kube))
            key = Key(lease.namespace or kube.namespace, lease.name)
            election = Election(lease_client, key, metrics=metrics, fuse=Fuse(), labels=lease.labels)
        manager = Manager(election=election)
        health, scrape = addresses.parse(options.health_address), addresses.parse(options.metrics_address)
        for address in (health, scrape):
            addresses.check(address)
        await stack.enter_async_context(addresses.listen(health, server.health_routes(manager.checks)))
        await stack.enter_async_context(addresses.listen(scrape, server.metrics_routes(metrics), tls=metrics_tls))
        yield Process(kube, client, manager, metrics, key)
