"""`isthmus elastic`: what jobs need, which nodes there are, what is done about it; and what a policy would cost."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from isthmus.cli import connection
from isthmus.cli.defaultgroup import ShowsByDefault
from isthmus.cli.flags import Kubeconfig, show_json
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from isthmus.domain.elastic.comparison import Figures
    from isthmus.domain.elastic.traces import Trace
    from isthmus.inspect.elastic import Demand, Overview
    from isthmus.model.elastic import Autoscale

_EXAMPLES: Final = 3

app = typer.Typer(
    help="Show demand, supply and decisions of elastic nodes; simulate a policy. Without a command: show.",
    cls=ShowsByDefault,
    rich_markup_mode=None,
)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command()
def show(
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the clusters. [default: all]", metavar="NAME")
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.TABLE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show jobs that wait for nodes, the nodes of each elastic NodeSet, and what was decided and why."""
    import time

    from isthmus.inspect import elastic

    now = time.time()
    found = connection.with_client(lambda it: elastic.overview(it, namespace=namespace, now=now), kubeconfig)
    if output is Output.JSON:
        show_json(found)
    else:
        for line in overview(found, now=now):
            typer.echo(line)
    for what, why in found.troubles.items():
        typer.echo(f"isthmus: {what} cannot be read: {why}", err=True)
    if found.troubles:
        raise typer.Exit(1)


def overview(found: "Overview", *, now: float) -> "Iterator[str]":
    """Everything for people: demand, supply, decisions."""
    from isthmus.cli.render import columns

    for cluster in found.clusters:
        yield f"{cluster.name}: {_demand(cluster)}"
        for job in cluster.waiting[:_EXAMPLES]:
            why = "its nodes are starting" if job.state == "CONFIGURING" else f"{job.state}, {job.reason}"
            why += f": {job.limit}" if job.limit else ""
            yield f"  job {job.id} of {job.user}: {_counted(job.nodes, 'node')}, {why}"
        if len(cluster.waiting) > _EXAMPLES:
            yield f"  and {len(cluster.waiting) - _EXAMPLES} more: isthmus elastic -o json"
    if not found.nodesets:
        yield "No NodeSet is elastic. Set spec.autoscale of a NodeSet, or ephemeralNodes of a Soperator NodeSet."
        return
    heads = ("NODESET", "CLUSTER", "ANNOUNCED", "ON", "STARTING", "STOPPING", "OFF", "HELD", "LIMITS", "NEXT STEP")
    rows = [
        (
            it.name,
            it.cluster,
            *(str(number) for number in (it.announced, it.on, it.starting, it.stopping, it.off, it.held)),
            it.limits,
            it.next_step,
        )
        for it in found.nodesets
    ]
    yield ""
    yield from columns(heads, rows)
    told = [(it.name, each) for it in found.nodesets for each in it.decisions]
    if told:
        yield ""
        rows = [(name, _ago(it.when, now), it.reason, it.message) for name, it in told]
        yield from columns(("NODESET", "AGO", "DECISION", "WHY"), rows)


def _demand(cluster: "Demand") -> str:
    if cluster.trouble:
        return f"Slurm does not answer: {cluster.trouble}"
    nodes = sum(it.nodes for it in cluster.waiting)
    if not cluster.waiting:
        return "no job waits for nodes"
    starting = sum(it.state == "CONFIGURING" for it in cluster.waiting)
    jobs = f"{_counted(len(cluster.waiting), 'job')} {'waits' if len(cluster.waiting) == 1 else 'wait'}"
    return f"{jobs} for {_counted(nodes, 'node')}, {starting} of them for nodes that are starting"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ago(moment: float | None, now: float) -> str:
    from isthmus.domain.bridge.explain import ago

    return "-" if moment is None else ago(max(0.0, now - moment))


@app.command()
def simulate(
    *,
    trace: Annotated[
        Path, typer.Option(help="Trace of jobs: SWF, or what `sacct --parsable2` prints.", metavar="FILE")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            help="A NodeSet, or the content of its spec.autoscale, as YAML. [default: no limits]", metavar="FILE"
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Number of nodes. [default: replicas of the NodeSet, or as the trace says]",
            metavar="COUNT",
            min=1,
        ),
    ] = None,
    boot: Annotated[
        str,
        typer.Option(
            help="How long nodes take to start; several for a distribution: 30s,60s,3m. [default: 20 s to 3 m]",
            metavar="TIMES",
        ),
    ] = "",
    cpus_per_node: Annotated[
        int | None,
        typer.Option(help="Processors of a node, for SWF. [default: as the trace says]", metavar="COUNT", min=1),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw it, as SVG.", metavar="FILE")] = None,
) -> None:
    """Replay a trace of jobs against a policy: the waiting times, node-hours and waste that would have resulted.

    The same trace is replayed on a static cluster, with slinky's KEDA recipe, and with Slurm's plain power saving.
    Nothing is changed, and no cluster is needed.
    """
    from isthmus.domain.elastic import comparison, picture, traces
    from isthmus.domain.elastic.simulation import Machine

    jobs = traces.read(_text(trace), cpus_per_node=cpus_per_node)
    rules, replicas = _policy(policy)
    size = nodes or replicas or jobs.nodes or jobs.largest
    machine = Machine(boots=_times(boot)) if boot else Machine()
    found = comparison.compare(jobs, rules, size=size, machine=machine)
    if plot:
        try:
            plot.write_text(picture.draw(found, size=size))
        except OSError as error:
            raise Terminal(f"{plot} cannot be written: {error.strerror}") from error
    figures = {name: it for name, (it, _) in found.items()}
    if as_json:
        show_json({"nodes": size, "jobs": len(jobs.jobs), "skipped": jobs.skipped, "ways": figures})
        return
    for line in simulated(jobs, figures, size=size):
        typer.echo(line)


def simulated(jobs: "Trace", found: "Mapping[str, Figures]", *, size: int) -> "Iterator[str]":
    """A table of all ways, what they are, and what was left out."""
    from isthmus.cli.render import columns
    from isthmus.domain.elastic.comparison import MEANINGS, STATIC

    left_out = f", {jobs.skipped} lines left out" if jobs.skipped else ""
    yield f"{len(jobs.jobs):,} jobs on {size} nodes{left_out}"
    yield ""
    heads = ("", "WAIT", "P50", "P95", "QUEUE", "BOOT", "NODE-HOURS", "SHARE", "IDLE", "GANGS", "UNUSED", "THRASH")
    whole = found[STATIC].node_hours or 1.0
    rows = [
        (
            name,
            *(_seconds(it) for it in (each.wait.mean, each.wait.p50, each.wait.p95)),
            *(_seconds(it) for it in (each.queue.mean, each.boot.mean)),
            f"{each.node_hours:,.0f}",
            f"{100 * each.node_hours / whole:.0f} %",
            *(f"{it:,.0f}" for it in (each.waste.idle, each.waste.partial_gangs, each.waste.unused)),
            str(each.thrash),
        )
        for name, each in found.items()
    ]
    yield from columns(heads, rows)
    yield ""
    yield from (f"{name + ':':<14}{what}" for name, what in MEANINGS.items() if name in found)
    yield "WAIT, QUEUE and BOOT are means. IDLE, GANGS (waiting for other nodes of a job), UNUSED are node-hours."
    for name, each in found.items():
        if each.unstarted:
            yield f"{name}: {each.unstarted} jobs never got nodes, and are not included in its times."


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise Terminal(f"{path} cannot be read: {error.strerror}") from error


def _policy(path: Path | None) -> "tuple[Autoscale, int | None]":
    """Read spec.autoscale and replicas of a NodeSet, or a policy alone."""
    import msgspec
    import yaml

    from isthmus.domain.elastic.policy import problems
    from isthmus.model.elastic import Autoscale

    if path is None:
        return Autoscale(), None
    try:
        given = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise Terminal(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise Terminal(f"{path} has no policy", remedy="give a NodeSet, or fields such as `warm: 2`")
    spec = given.get("spec") if "spec" in given else {"autoscale": given.get("autoscale", given)}
    spec = spec if isinstance(spec, dict) else {}
    try:
        policy = msgspec.convert(spec.get("autoscale") or {}, Autoscale)
        replicas = msgspec.convert(spec.get("replicas"), int | None)
    except msgspec.ValidationError as error:
        raise Terminal(f"{path}: {error}") from error
    if unknown := set(spec.get("autoscale") or {}) - {it.encode_name for it in msgspec.structs.fields(Autoscale)}:
        raise Terminal(f"{path} has unknown fields: {', '.join(sorted(map(str, unknown)))}")
    if wrong := [f"{where}: {why}" for where, why in problems(policy)]:
        raise Terminal(f"{path}: {'; '.join(wrong)}")
    return policy, replicas


def _times(text: str) -> tuple[float, ...]:
    from isthmus.domain.languages.gotime import parse_duration

    return tuple(parse_duration(it.strip()) for it in text.split(","))
