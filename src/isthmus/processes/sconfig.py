"""sconfigcontroller: one process for each cluster, which mounts the shared root and writes files onto it.

There is no election. A second one, as there may be for a moment when a node is lost, would write the same.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from isthmus.runtime import process
from isthmus.sharedroot.configs import ConfigWriter
from isthmus.sharedroot.files import Root

log = structlog.get_logger()


class Options(process.Options, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    cluster: str
    namespace: str = ""
    """Where its JailedConfigs are; empty for our own."""
    root: Path = Path("/mnt/jail")
    covered: tuple[str, ...] = ()
    """Places in the shared root on which nodes mount something else."""


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    os.umask(0o022)  # new directories can be entered by all users
    async with process.begin(options, environ=environ) as begun:
        client, manager = begun.client, begun.manager
        writer = ConfigWriter(
            client,
            Root(options.root, covered=options.covered),
            namespace=options.namespace or begun.kube.namespace,
            cluster=options.cluster,
            metrics=begun.metrics,
        )
        manager.cache("jailedconfigs", writer.informer)
        manager.cache("configmaps", writer.references)
        manager.work(writer.controller)
        log.info("starting", cluster=options.cluster, root=str(options.root))
        await manager.run()
