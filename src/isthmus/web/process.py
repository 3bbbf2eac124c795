"""The process `isthmus web`. It stands above `inspect`, which it asks, and so not among `processes`.

There is no election: each replica shows what it sees itself. Sessions are in the memory of one process, so an
ingress in front of several has to keep a browser with the one where it logged in.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec
import structlog
import yaml

from isthmus.bridge.cache.world import cluster_id
from isthmus.bridge.config import Config, tls, tokens
from isthmus.errors import Terminal
from isthmus.kube.recorder import Recorder
from isthmus.runtime import addresses, process
from isthmus.runtime.events import Events
from isthmus.runtime.start import StoppedError, answer_of
from isthmus.slurm.client import connect
from isthmus.web import oidc
from isthmus.web.access import Access
from isthmus.web.actions import Actions
from isthmus.web.hub import Hub
from isthmus.web.server import Server, is_loopback
from isthmus.web.sessions import Sessions
from isthmus.web.state import State
from isthmus.web.watch import Watch
from isthmus.web.why import Explainer

log = structlog.get_logger()

_MAX_BYTES = 1 << 20


class Options(process.Options, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    address: str = ":8082"
    name: str = ""
    """What the page calls the cluster."""
    key: Path | None = None
    """Signs tokens of users, for what they do in Slurm."""
    users: Path | None = None
    user_prefix: str = ""
    login: bool = True
    provider: oidc.Settings | None = None
    """Where people log in without a token of their own."""


async def run(config: Config, options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    """Run until SIGTERM."""
    if not config.slurm_rest_api:
        raise Terminal(
            "slurmRestApi is not set", remedy="set --slurm-rest-api, such as http://slurm-restapi.slurm:6820"
        )
    address = addresses.parse(options.address)
    if address is None:
        raise Terminal("the page needs an address", remedy="set --bind-address, such as :8082")
    if not options.login and not is_loopback(options.address):
        raise Terminal(
            f"without login the page must not listen on {address.host or 'all addresses'}",
            remedy="set --bind-address=127.0.0.1:8082, or leave out --insecure-no-login",
        )
    addresses.check(address)
    with suppress(StoppedError):
        await _run(config, options, address, environ=environ)


async def _run(config: Config, options: Options, address: addresses.Address, *, environ: Mapping[str, str]) -> None:
    async with AsyncExitStack() as stack:
        begun = await stack.enter_async_context(process.begin(options, environ=environ))
        client, manager = begun.client, begun.manager
        slurm = await stack.enter_async_context(
            connect(
                config.slurm_rest_api,
                tokens(config, environ),
                tls=tls(config),
                observe=begun.metrics.client("slurmrestd"),
            )
        )
        cluster = await answer_of(lambda: cluster_id(client), what="cluster", manager=manager)
        watch = Watch(client, slurm, config, cluster=cluster)
        state = State(watch)
        hub = Hub(state.tables, settle=state.settle, sample=state.sample, about=lambda: about(watch, options.name))
        recorder = Recorder(client, controller="isthmus-web", instance=socket.gethostname())
        sessions, actions = None, None
        if options.login:
            access = Access(client, users=read_users(options.users), prefix=options.user_prefix)
            provider = oidc.Provider(options.provider) if options.provider else None
            sessions = Sessions(
                access, namespaces=lambda: {it.namespace for it in watch.world.pods}, provider=provider
            )
            actions = Actions(watch, state, access, recorder, config=config, kube=begun.kube, key=options.key)
        explainer = Explainer(watch, state, config)
        server = Server(hub, watch, state, explainer, kube=begun.kube, sessions=sessions, actions=actions)
        manager.serve(addresses.listen(address, server.routes()))
        manager.check("slurm", watch.check_slurm)
        manager.check("kubernetes", watch.check_kube)
        for worker in (watch, hub, Events(recorder)):
            manager.work(worker)
        log.info("starting", address=options.address, cluster=options.name, login=options.login)
        await manager.run()


def about(watch: Watch, name: str) -> dict[str, object]:
    """How fresh what is shown is. An unreachable Slurm must never look like one without jobs."""
    age = watch.slurm_age
    return {
        "name": name,
        "now": round(time.time(), 1),
        "slurm": {
            "ok": not watch.slurm_trouble,
            "read": watch.has_read_slurm,
            "age": None if age is None else round(age, 1),
            "trouble": watch.slurm_trouble[:300],
        },
        "kubernetes": {
            "ok": not watch.kube_trouble,
            "read": watch.has_read_kube,
            "trouble": watch.kube_trouble[:300],
        },
    }


def read_users(path: Path | None) -> dict[str, str]:
    """Read the table of users: a YAML mapping from names in Kubernetes to names in Slurm."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            return msgspec.convert(yaml.safe_load(file.read(_MAX_BYTES)) or {}, dict[str, str])
    except (OSError, yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Terminal(
            f"the table of users {path} cannot be used: {error}",
            remedy='write lines such as "ann@example.org": ann',
        ) from error
