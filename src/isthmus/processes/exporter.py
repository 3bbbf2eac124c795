"""The exporter: one process for each Slurm cluster, which shows Prometheus what it knows of it.

There is no election. A second one would ask Slurm the same, and count for itself.
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from isthmus.domain.exporter.aliases import SETS
from isthmus.errors import Terminal
from isthmus.exporter.exporter import Exporter
from isthmus.exporter.jobhistory import JobHistory
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.settings import Settings
from isthmus.exporter.tokens import ScontrolToken
from isthmus.exporter.topology import Topology
from isthmus.kube import config as kube_config
from isthmus.kube.client import Client as KubeClient
from isthmus.runtime import addresses, server
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.auth import EnvironmentToken, FileToken, TokenSource
from isthmus.slurm.client import connect

log = structlog.get_logger()

Mode = Literal["in-cluster", "standalone", "static-token"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    servers: tuple[str, ...]
    mode: Mode = "in-cluster"
    cluster: str = ""
    namespace: str = ""
    token_file: Path | None = None
    user: str = ""
    metric_set: str = "own"
    settings: Settings = Settings()
    data_dir: Path | None = None
    usage_max_age: float = 90 * 86400.0
    usage_max_bytes: int = 500_000_000
    kubeconfig: Path | None = None
    metrics_address: str = ":8080"
    monitoring_address: str = ":8081"


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    """Run until SIGTERM."""
    if options.metric_set != "own" and options.metric_set not in SETS:
        known = ", ".join(["own", *SETS])
        raise Terminal(f"there is no metric set {options.metric_set[:40]!r}", remedy=f"use one of {known}")
    metrics = Metrics()
    manager = Manager()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            connect(options.servers, tokens(options, environ), observe=metrics.client(options.servers[0]))
        )
        exporter = Exporter(
            client,
            options.settings,
            ExporterMetrics(metrics.registry),
            alias=SETS.get(options.metric_set),
            topology=await _topology(options, environ, stack),
        )
        history = JobHistory(
            exporter.poller,
            directory=options.data_dir,
            limits=options.settings.limits,
            accounting=exporter.accounting,
            cluster=options.cluster,
            max_age=options.usage_max_age,
            max_bytes=options.usage_max_bytes,
        )
        exporter.follow(history)
        monitoring = addresses.parse(options.monitoring_address)
        scrape = addresses.parse(options.metrics_address)
        for address in (monitoring, scrape):
            addresses.check(address)
        about_us = [*server.health_routes(manager.checks), *server.metrics_routes(metrics), *history.routes()]
        await stack.enter_async_context(addresses.listen(monitoring, about_us))
        await stack.enter_async_context(addresses.listen(scrape, exporter.page.routes()))
        manager.check("slurm", exporter.contact.check)
        manager.work(exporter)
        log.info("starting", cluster=options.cluster, servers=options.servers, metric_set=options.metric_set)
        await manager.run()


async def _topology(options: Options, environ: Mapping[str, str], stack: AsyncExitStack) -> Topology | None:
    """Read where nodes are, if a kubeconfig says how, or if this is a pod whose account may be used."""
    if options.kubeconfig is None and not (kube_config.SERVICE_ACCOUNT / "token").exists():
        return None
    config = kube_config.load(options.kubeconfig, environ=environ)
    client = await stack.enter_async_context(KubeClient(config))
    return Topology(client, namespace=options.namespace or config.namespace, cluster=options.cluster)


def tokens(options: Options, environ: Mapping[str, str]) -> TokenSource:
    """Choose where tokens come from."""
    if options.mode == "standalone":
        return ScontrolToken(options.user)
    if options.token_file:
        return FileToken(options.token_file)
    if options.mode == "static-token" or environ.get("SLURM_JWT"):
        return EnvironmentToken(environ)
    raise Terminal(
        "there is no token for Slurm",
        remedy="set --token-file, or --standalone where scontrol works, or --static-token and SLURM_JWT",
    )
