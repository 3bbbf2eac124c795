"""soperatorchecks: one process that finds bad nodes, drains and repairs them, tests them, and returns them.

    health and metrics ─► caches ─► connections to every Slurm everywhere, the health loop and checks in the leader

The name is Soperator's. It looks after the clusters of both API families, beside the operator and not below it:
while one of the two is away, the other goes on.
"""

import os
import socket
from collections.abc import Mapping
from typing import Final

import structlog

from isthmus import names
from isthmus.domain.health.observations import Settings
from isthmus.domain.health.replacement import Replacement
from isthmus.domain.operator.manifests.common import Settings as OperatorSettings
from isthmus.health.activechecks import ActiveCheckSync
from isthmus.health.checkcaches import CheckCaches
from isthmus.health.checkjobs import CheckJobSync
from isthmus.health.metrics import HealthMetrics
from isthmus.health.notifications import Notifications
from isthmus.health.sync import HealthSync
from isthmus.health.world import HealthWorld
from isthmus.kube.recorder import Recorder
from isthmus.operator.applier import Applier
from isthmus.operator.connections import SlurmReach
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import ClusterCaches
from isthmus.runtime import process
from isthmus.runtime.events import Events

log = structlog.get_logger()

NAME: Final = "soperatorchecks"
LEASE_LABELS: Final = {names.NAME_LABEL: NAME}
"""On the Lease, whatever the installation is called."""


class Options(process.LeaderOptions, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    settings: Settings = Settings()
    replacement: Replacement = Replacement()
    slurm_image: str = ""
    """For checks that run in pods and name no image."""
    name: str = NAME


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    async with process.begin(options, environ=environ, lease=options.lease(LEASE_LABELS)) as begun:
        client, manager, metrics = begun.client, begun.manager, begun.metrics
        recorder = Recorder(client, controller=NAME, instance=socket.gethostname())
        manager.work(Events(recorder))
        counts = HealthMetrics(metrics)
        notifications = Notifications(counter=counts.notifications)
        manager.lead(notifications)
        images = OperatorSettings(slurm_image=options.slurm_image) if options.slurm_image else OperatorSettings()
        worlds = [
            HealthWorld(ClusterCaches(client, images, namespace=namespace, metrics=metrics))
            for namespace in options.namespaces or ("",)
        ]
        counts.follow(worlds)
        for world in worlds:
            world.register(manager)
            for worker in SlurmReach(world.operator, metrics).workers:
                manager.work(worker)
            reporter = Reporter(client)
            sync = HealthSync(
                world,
                options.settings,
                replacement=options.replacement,
                recorder=recorder,
                reporter=reporter,
                notifications=notifications,
                metrics=metrics,
                health_metrics=counts,
            )
            caches = CheckCaches(world.operator, world.checks)
            caches.register(manager)
            applier = Applier(client)
            made = ActiveCheckSync(caches, applier=applier, reporter=reporter, recorder=recorder, metrics=metrics)
            runs = CheckJobSync(
                caches,
                counted=counts.ran,
                applier=applier,
                reporter=reporter,
                recorder=recorder,
                metrics=metrics,
            )
            for worker in (*sync.workers, *made.workers, *runs.workers):
                manager.lead(worker)
        log.info("starting", namespaces=options.namespaces or "all", election=str(begun.lease))
        await manager.run()
