"""sconfigcontroller: one process for each cluster, which mounts the shared root and writes files onto it.

There is no election. A second one, as there may be for a moment when a node is lost, would write the same.
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import structlog

from isthmus.kube import config as kube_config
from isthmus.kube.client import Client
from isthmus.runtime import addresses, server
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from isthmus.sharedroot.configs import ConfigWriter
from isthmus.sharedroot.files import Root

log = structlog.get_logger()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    cluster: str
    namespace: str = ""
    """Where its JailedConfigs are; empty for our own."""
    root: Path = Path("/mnt/jail")
    covered: tuple[str, ...] = ()
    """Places in the shared root on which nodes mount something else."""
    kubeconfig: Path | None = None
    metrics_address: str = ":8080"
    health_address: str = ":8081"


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    os.umask(0o022)  # new directories can be entered by all users
    metrics = Metrics()
    kube = kube_config.load(options.kubeconfig, environ=environ)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(kube, observe=metrics.client(kube.server)))
        manager = Manager()
        health, scrape = addresses.parse(options.health_address), addresses.parse(options.metrics_address)
        for address in (health, scrape):
            addresses.check(address)
        await stack.enter_async_context(addresses.listen(health, server.health_routes(manager.checks)))
        await stack.enter_async_context(addresses.listen(scrape, server.metrics_routes(metrics)))
        writer = ConfigWriter(
            client,
            Root(options.root, covered=options.covered),
            namespace=options.namespace or kube.namespace,
            cluster=options.cluster,
            metrics=metrics,
        )
        manager.cache("jailedconfigs", writer.informer)
        manager.cache("configmaps", writer.references)
        manager.work(writer.controller)
        log.info("starting", cluster=options.cluster, root=str(options.root))
        await manager.run()
