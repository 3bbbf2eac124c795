"""The processes of the bridge: admission, scheduler and controllers, each by itself or several in one.

    health and metrics ─► which cluster is this ─► caches ─► webhooks everywhere, the rest in the leader

Health comes first, so that `/readyz` tells what is waited for: the API server, the token, Slurm. None of these ends
the process, before or after. Admission needs no Slurm; a process that serves it stays ready while Slurm is away.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final, Literal

import structlog

from isthmus import names
from isthmus.bridge.admission import registration
from isthmus.bridge.admission.webhook import Admission, Caches, OwnCaches
from isthmus.bridge.cache.metrics import WorldMetrics
from isthmus.bridge.cache.world import World, cluster_id
from isthmus.bridge.config import Config, tls, tokens
from isthmus.bridge.nodes.sync import NodeSync
from isthmus.bridge.pods.sync import PodSync
from isthmus.bridge.scheduler.scheduler import Scheduler
from isthmus.domain.bridge.devices import Profile
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.bridge.noderules import Rules
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.recorder import Recorder
from isthmus.runtime import addresses, process
from isthmus.runtime.certkeeper import Place
from isthmus.runtime.events import Events
from isthmus.runtime.health import Check
from isthmus.runtime.manager import Manager, Worker
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.process import Lease
from isthmus.runtime.start import StoppedError, answer_of
from isthmus.slurm.allocation import Allocator
from isthmus.slurm.client import connect
from isthmus.slurm.completion import Completer, to_helper
from isthmus.slurm.transport import Transport

log = structlog.get_logger()

Part = Literal["admission", "scheduler", "controllers"]
PARTS: Final[frozenset[Part]] = frozenset({"admission", "scheduler", "controllers"})


class Options(process.Options, frozen=True, kw_only=True):
    """How one process runs, as its flags say."""

    name: str = "slurm-bridge"
    """What the installation is called: the webhooks, their Service and Secret, and the service accounts."""
    webhook_address: str = ":9443"
    election_id: str = ""
    election_namespace: str = ""


async def run(
    parts: frozenset[Part], config: Config, options: Options, *, environ: Mapping[str, str] = os.environ
) -> None:
    """Run these parts until SIGTERM; without an address for webhooks, all but admission."""
    if addresses.parse(options.webhook_address) is None:
        parts -= {"admission"}
    if not parts:
        raise Terminal("admission needs the webhook server", remedy="give --webhook-bind-address=:9443")
    _require_slurm(parts, config)
    with suppress(StoppedError):
        await _run(parts, config, options, environ=environ)


async def _run(parts: frozenset[Part], config: Config, options: Options, *, environ: Mapping[str, str]) -> None:
    if config.features.enable_http2:
        log.warning("HTTP/2 is not served: enableHTTP2 has no effect")
    elects = config.features.enable_leader_election and parts - {"admission"}
    lease = Lease(options.election_id or lease_of(parts, config), options.election_namespace) if elects else None
    async with AsyncExitStack() as stack:
        begun = await stack.enter_async_context(
            process.begin(
                options,
                environ=environ,
                lease=lease,
                metrics_tls=addresses.own_certificate() if config.features.secure_metrics else None,
            )
        )
        client, manager, metrics = begun.client, begun.manager, begun.metrics
        world, completer = None, None
        if parts - {"admission"}:
            calls, source = metrics.client("slurmrestd"), tokens(config, environ)
            helper = await _helper(stack, config, environ, metrics) if config.slurm_completer else None
            slurm = await stack.enter_async_context(
                connect(
                    config.slurm_rest_api,
                    source,
                    tls=tls(config),
                    observe=calls,
                    allocator=Allocator(helper) if helper else None,
                )
            )
            cluster = await answer_of(lambda: cluster_id(client), what="cluster", manager=manager)
            world = World(
                client,
                slurm,
                cluster=cluster,
                scheduler_name=config.scheduler_name,
                without_policy=config.without_policy,
                profiles=_profiles(config),
            )
            WorldMetrics(world, source, metrics)
            completer = Completer(helper, cluster=cluster) if helper else None
        if "admission" in parts:
            _admit(manager, client, config, options, namespace=begun.kube.namespace, world=world, metrics=metrics)
        if world:
            world.register(manager)
            recorder = Recorder(client, controller=config.scheduler_name, instance=socket.gethostname())
            manager.work(Events(recorder))
            for worker in _workers(parts, world, config, recorder=recorder, metrics=metrics, completer=completer):
                manager.lead(worker)
            if "admission" in parts:
                _tolerate_absence_of_slurm(manager)
        log.info(
            "starting",
            parts=sorted(parts),
            scheduler=config.scheduler_name,
            election=str(begun.lease),
        )
        await manager.run()


async def _helper(stack: AsyncExitStack, config: Config, environ: Mapping[str, str], metrics: Metrics) -> Transport:
    """Connect to `isthmus-complete`."""
    observe = metrics.client("isthmus-complete")
    return await stack.enter_async_context(
        to_helper(config.slurm_completer, tokens(config, environ), tls=tls(config), observe=observe)
    )


def lease_of(parts: frozenset[Part], config: Config) -> str:
    """Name of the Lease by which one process of several leads. A process that schedules uses the scheduler's."""
    return config.scheduler_name if "scheduler" in parts else names.CONTROLLERS_LEASE


def _require_slurm(parts: frozenset[Part], config: Config) -> None:
    if parts - {"admission"} and not config.slurm_rest_api:
        raise Terminal(
            "slurmRestApi is not set",
            remedy="set slurmRestApi in the configuration, or SLURM_REST_API, for example http://slurm-restapi.slurm:6820",
        )


def _admit(
    manager: Manager,
    client: Client,
    config: Config,
    options: Options,
    *,
    namespace: str,
    world: World | None,
    metrics: Metrics,
) -> None:
    """Add the webhooks. Their certificates come before the caches of `world`, which may have to wait for Slurm."""
    caches: Caches
    if world is None:
        caches = own = OwnCaches(client)
        own.register(manager)
    else:
        caches = world
    place = Place(namespace, f"{options.name}-admission")
    admission = Admission(
        client,
        config,
        caches=caches,
        metrics=metrics,
        bridge_users=registration.bridge_users(namespace, prefix=options.name),
    )
    keeper = registration.certificates(client, place, metrics=metrics)
    manager.cache("certificates", keeper)
    address = addresses.parse(options.webhook_address)
    addresses.check(address)
    manager.serve(addresses.listen(address, admission.routes, tls=keeper.context))


def _tolerate_absence_of_slurm(manager: Manager) -> None:
    """Stay ready without Slurm, or the API server would find no webhook that admits pods."""
    look = manager.checks["slurm"]

    def check() -> Check:
        found = look()
        return found if found.ok else Check(ok=True, sentence=f"{found.sentence} (pods are admitted meanwhile)")

    manager.check("slurm", check)


def _workers(
    parts: frozenset[Part],
    world: World,
    config: Config,
    *,
    recorder: Recorder,
    metrics: Metrics,
    completer: Completer | None,
) -> Iterator[Worker]:
    """Make what only the leader runs."""
    if "scheduler" in parts:
        choose = config.placeholder == "auto"
        scheduler = Scheduler(
            world,
            _defaults(config),
            choose=choose,
            nodes_on_demand=config.nodes_on_demand,
            recorder=recorder,
            metrics=metrics,
        )
        yield from scheduler.workers
    if "controllers" in parts:
        yield from PodSync(world, recorder, metrics, completer=completer).workers
        yield from NodeSync(world, _node_rules(world, config), recorder=recorder, metrics=metrics).workers


def _profiles(config: Config) -> list[Profile]:
    return [
        Profile(it.name, it.driver, it.selector, it.backend.gres_name)
        for it in config.device_profiles
        if it.backend.type == "indexed-gres"
    ]


def _node_rules(world: World, config: Config) -> Rules:
    return Rules(
        cluster=world.cluster,
        scheduler_name=config.scheduler_name,
        taint=config.taint,
        gres=config.gres,
        feature_labels=config.feature_labels,
    )


def _defaults(config: Config) -> Defaults:
    return Defaults(
        partition=config.partition,
        mcs_label=config.mcs_label,
        exclusive=config.exclusive,
        placeholder="batch" if config.placeholder == "batch" else "external",
        gres=config.gres,
        nice_from_priority=config.nice_from_priority_class,
    )
