"""`isthmus bridge …`: the processes that let Slurm place pods, and their status."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.flags import HealthAddress, Json, Kubeconfig, LeaseNamespace, MetricsAddress, Verbosity, show
from isthmus.cli.goflags import GoCommand
from isthmus.cli.loglevels import level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from isthmus.inspect.status import Status
    from isthmus.processes.bridge import Part

app = typer.Typer(
    help="Let Slurm place pods: run the processes, and show their status.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Config = Annotated[
    Path | None, typer.Option(help="Configuration file. [default: /etc/slurm-bridge/config.yaml]", metavar="FILE")
]
SlurmRestApi = Annotated[
    str | None, typer.Option(help="URL of slurmrestd. [default: from the configuration]", metavar="URL")
]
_Webhook = Annotated[
    str, typer.Option(help="Address of the webhook server; 0 disables admission in `all`.", metavar="ADDRESS")
]
_ElectionId = Annotated[str, typer.Option(help="Name of the Lease. [default: by process]", metavar="NAME")]
_Installation = Annotated[str, typer.Option(help="Name prefix of webhooks and service accounts.", metavar="NAME")]
_LeaderElect = Annotated[
    bool | None,
    typer.Option(
        "--leader-elect/--no-leader-elect", help="Elect a leader among replicas. [default: from the configuration]"
    ),
]
_SecureMetrics = Annotated[
    bool | None,
    typer.Option(
        "--metrics-secure/--no-metrics-secure", help="Serve metrics over TLS. [default: from the configuration]"
    ),
]
_Http2 = Annotated[
    bool | None, typer.Option("--enable-http2/--no-enable-http2", help="No effect: only HTTP/1.1 is served.")
]


def _process(*parts: "Part") -> "Callable[..., None]":
    """Make the command that runs these parts; all such commands take the same flags."""

    def command(
        *,
        config: Config = None,
        kubeconfig: Kubeconfig = None,
        metrics_bind_address: MetricsAddress = ":8080",
        health_probe_bind_address: HealthAddress = ":8081",
        webhook_bind_address: _Webhook = ":9443",
        leader_election_id: _ElectionId = "",
        leader_election_namespace: LeaseNamespace = "",
        name: _Installation = "slurm-bridge",
        v: Verbosity = "0",
        leader_elect: _LeaderElect = None,
        metrics_secure: _SecureMetrics = None,
        enable_http2: _Http2 = None,
    ) -> None:
        from isthmus.bridge.config import load
        from isthmus.processes import bridge
        from isthmus.runtime import logs, loop

        features = {
            "features.enableLeaderElection": leader_elect,
            "features.secureMetrics": metrics_secure,
            "features.enableHTTP2": enable_http2,
        }
        options = bridge.Options(
            name=name,
            kubeconfig=kubeconfig,
            metrics_address=metrics_bind_address,
            health_address=health_probe_bind_address,
            webhook_address=webhook_bind_address,
            election_id=leader_election_id,
            election_namespace=leader_election_namespace,
        )
        settings = load(config, overrides=features)
        logs.configure(level=level(v))
        loop.run(bridge.run(frozenset(parts), settings, options))

    return command


_PROCESSES: "dict[str, tuple[tuple[Part, ...], str]]" = {
    "scheduler": (("scheduler",), "Run the scheduler: pods become jobs, and jobs that start become bindings."),
    "controllers": (
        ("controllers",),
        "Run the controllers, which keep pods, jobs and nodes in sync between Kubernetes and Slurm.",
    ),
    "admission": (("admission",), "Run the webhooks, which hand new pods to Slurm."),
    "all": (("admission", "scheduler", "controllers"), "Run everything in one process."),
}
for _name, (_parts, _sentence) in _PROCESSES.items():
    app.command(name=_name, help=_sentence, cls=GoCommand)(_process(*_parts))


@app.command()
def status(
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    slurm_rest_api: SlurmRestApi = None,
    *,
    json: Json = False,
) -> None:
    """Show the leader, whether Slurm answers, which pods wait and why, and what needs attention."""
    import asyncio
    import time

    from isthmus.bridge.config import load
    from isthmus.inspect import snapshot
    from isthmus.inspect import status as apps

    settings = load(config, overrides={"slurmRestApi": slurm_rest_api})

    async def look() -> "Status":
        async with snapshot.look(settings, kubeconfig=kubeconfig) as found:
            return await apps.status(found, settings, now=time.time())

    found = asyncio.run(look())
    show(found, _lines(found), json=json)
    if not found.well:
        raise typer.Exit(1)


_NAMED = 5
"""So many of a kind are named."""


def _lines(found: "Status") -> "Iterator[str]":
    from isthmus.domain.bridge.explain import ago

    yield f"Scheduler: {found.scheduler}"
    for leader in found.leaders:
        when = f", renewed {ago(leader.renewed)} ago" if leader.renewed is not None else ""
        who = f"led by {leader.holder}{when}" if leader.alive else f"✗ no leader{when}"
        yield f"  {leader.process:<12} {who}"
    if not found.leaders and "leases" not in found.troubles:
        yield "  there is no Lease: the bridge is not installed here, or runs without leader election"
    yield from _slurm_lines(found)
    yield f"Pods: {found.bound} have a node, {sum(it.pods for it in found.waiting)} wait"
    for it in found.waiting:
        yield f"  {it.pods:>6} {it.reason}, the longest for {ago(it.longest)}: isthmus explain {_words(it.example)}"
    if found.returned:
        yield f"Returned: ✗ {len(found.returned)} allocations that Kubernetes could not use, in the last hour"
        yield from (f"  {it.pod}, {ago(it.ago)} ago: {it.why}" for it in found.returned[:_NAMED])
    yield f"Policies: {found.policies or 'none'}"
    yield from (f"  ! {warning}" for warning in found.warnings)
    yield from (f"✗ {what} cannot be read: {why}" for what, why in found.troubles.items())


def _slurm_lines(found: "Status") -> "Iterator[str]":
    slurm, nodes = found.slurm, found.nodes
    if not slurm.answers:
        yield f"Slurm: ✗ does not answer: {slurm.trouble}"
        yield "  → set SLURM_REST_API and SLURM_JWT, or give --config"
        return
    yield f"Slurm: {slurm.cluster} answers, release {slurm.release}, API {slurm.api}"
    states = ", ".join(f"{count} {state.lower()}" for state, count in sorted(found.jobs.items()))
    yield f"Jobs of the bridge: {states or 'none'}"
    registered = f"{nodes.registered} registered by the bridge"
    yield f"Nodes: {nodes.kubernetes} in Kubernetes, {nodes.slurm} in Slurm, {registered}"
    for listed, what in (
        (nodes.unregistered, "labelled as external, but not in Slurm"),
        (nodes.drained, "drained or down in Slurm"),
        (nodes.unmapped, "in Slurm, but not in this Kubernetes"),
    ):
        if listed:
            yield f"  {len(listed):>6} {what}: {_some(listed)}"


def _words(key: str) -> str:
    namespace, _, name = key.rpartition("/")
    return f"pod/{name} -n {namespace}"


def _some(listed: "tuple[str, ...]") -> str:
    from isthmus.domain.languages.hostlist import fold

    text = fold(listed)
    most = 80
    return text if len(text) <= most else f"{text[:most]}…"
