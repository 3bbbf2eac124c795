"""The operator: one process that turns custom resources into Slurm clusters.

    health and metrics ─► caches ─► webhooks and connections to every Slurm everywhere, the rest in the leader

A cluster whose Slurm does not answer delays no other: its nodes stay as they are, and the process stays ready.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import structlog

from isthmus import names
from isthmus.domain.operator.manifests.common import Settings
from isthmus.kube.client import Client
from isthmus.kube.recorder import Recorder
from isthmus.operator import registration
from isthmus.operator.accountings import AccountingSync
from isthmus.operator.applier import Applier
from isthmus.operator.clusters.sync import ClusterSync, NebiusNodeSetSync
from isthmus.operator.connections import SlurmReach
from isthmus.operator.jailedconfigs import JailedConfigSync
from isthmus.operator.loginsets import LoginSetSync
from isthmus.operator.metrics import ClusterMetrics
from isthmus.operator.nodeconfigurators import NodeConfiguratorSync
from isthmus.operator.nodesets.sync import NodeSetSync
from isthmus.operator.restapis import RestApiSync
from isthmus.operator.slurmctld import ControllerSync
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.tokens import TokenSync
from isthmus.operator.webhook import Webhook
from isthmus.operator.world import World
from isthmus.runtime import addresses, process
from isthmus.runtime.certkeeper import Place
from isthmus.runtime.events import Events
from isthmus.runtime.manager import Manager, Worker
from isthmus.runtime.metrics import Metrics

log = structlog.get_logger()

PARTS: Final = (
    ControllerSync,
    NodeSetSync,
    LoginSetSync,
    RestApiSync,
    AccountingSync,
    TokenSync,
    ClusterSync,
    NebiusNodeSetSync,
    JailedConfigSync,
    NodeConfiguratorSync,
)
LEASE_LABELS: Final = {names.NAME_LABEL: names.OPERATOR}

_UNIFIED: Final = Path("/sys/fs/cgroup/cgroup.controllers")
_RESOLVER: Final = Path("/etc/resolv.conf")


class Options(process.LeaderOptions, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    settings: Settings
    name: str = "isthmus-operator"
    """What the installation is called: its Lease, webhooks, their Service and Secret."""
    webhook_address: str = ":9443"


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    async with process.begin(options, environ=environ, lease=options.lease(LEASE_LABELS)) as begun:
        client, manager, metrics = begun.client, begun.manager, begun.metrics
        _answer(manager, client, options, namespace=begun.kube.namespace, metrics=metrics)
        recorder = Recorder(client, controller="isthmus-operator", instance=socket.gethostname())
        manager.work(Events(recorder))
        worlds = [
            World(client, options.settings, namespace=namespace, metrics=metrics)
            for namespace in options.namespaces or ("",)
        ]
        metrics.registry.register(ClusterMetrics(worlds))
        for world in worlds:
            world.register(manager)
            for worker in SlurmReach(world, metrics).workers:
                manager.work(worker)
            for worker in _workers(world, recorder, metrics):
                manager.lead(worker)
        log.info("starting", namespaces=options.namespaces or "all", election=str(begun.lease))
        await manager.run()


def _workers(world: World, recorder: Recorder, metrics: Metrics) -> Iterator[Worker]:
    """Make what only the leader runs."""
    applier, reporter = Applier(world.kube), Reporter(world.kube)
    for part in PARTS:
        yield from part(world, applier=applier, reporter=reporter, recorder=recorder, metrics=metrics).workers


def _answer(manager: Manager, client: Client, options: Options, *, namespace: str, metrics: Metrics) -> None:
    """Add the webhooks, unless they are switched off."""
    address = addresses.parse(options.webhook_address)
    if address is None:
        return
    addresses.check(address)
    place = Place(namespace, f"{options.name}-webhook")
    keeper = registration.certificates(client, place, metrics=metrics)
    manager.cache("certificates", keeper)
    manager.serve(addresses.listen(address, Webhook(client, metrics).routes, tls=keeper.context))


def cgroup_here() -> Literal["v2", "none"]:
    """Whether Slurm can use control groups: the nodes are taken to be like the one that we run on."""
    return "v2" if _UNIFIED.exists() else "none"


def domain_here() -> str:
    """Find the domain of Services, in which every pod looks up names."""
    try:
        lines = _RESOLVER.read_text().splitlines()
    except OSError:
        return "cluster.local"
    searched = (word for line in lines if line.startswith("search") for word in line.split()[1:])
    return next((word.removeprefix("svc.") for word in searched if word.startswith("svc.")), "cluster.local")
