"""`isthmus health`: nodes with findings, what happens to them, and the switches that people have."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from isthmus.cli import connection
from isthmus.cli.defaultgroup import ShowsByDefault
from isthmus.cli.flags import Kubeconfig, show_json
from isthmus.cli.query import Output, OutputOption
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.inspect.health import Governance, NodeLine, Overview
    from isthmus.inspect.healthcontrol import Switch
    from isthmus.kube.client import Client
    from isthmus.model.health import Finding, RepairStep

_FAILED: Final = 1
_ERROR: Final = 2
_COLOURS: Final = {"OutOfService": "red", "Waiting": "yellow", "Suspect": "yellow", "Recovered": "green"}

app = typer.Typer(
    help="Show nodes with findings, run checks, pause and resume repair. Without a command: show.",
    cls=ShowsByDefault,
    rich_markup_mode=None,
)


_Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the clusters. [default: all]", metavar="NAME")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def show(
    node: Annotated[str, typer.Argument(help="Name of a node in Slurm. [default: all]", metavar="NODE")] = "",
    *,
    namespace: _Namespace = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default.")
    ] = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what was found on nodes, what happens next, and the limits; with NODE, everything about it."""
    import time

    from isthmus.inspect import health

    place = "" if everywhere else namespace
    now = time.time()
    if node:
        line, governance = connection.with_client(lambda it: health.node(it, node, namespace=place), kubeconfig)
        _print(line, (line,), output, lambda: details(line, governance, now=now))
        return

    async def look(client: "Client") -> "Overview":
        return await health.overview(client, namespace=place)

    found = connection.with_client(look, kubeconfig)
    _print(found, found.nodes, output, lambda: _tabulate(found, now=now, wide=output is Output.WIDE))
    if found.troubles:
        for what, why in found.troubles.items():
            typer.echo(f"isthmus: {what} cannot be read: {why}", err=True)
        raise typer.Exit(1)


@app.command()
def run(
    check: Annotated[str, typer.Argument(help="Name of an ActiveCheck.", metavar="CHECK")],
    *,
    node: Annotated[
        str, typer.Option(help="Node to check. [default: all that the check is for]", metavar="NAME")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result.")] = False,
    namespace: _Namespace = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run a check now. With --wait, exit codes: 0 passed, 1 failed, 2 the check itself had an error."""
    from isthmus.inspect import checkrun
    from isthmus.model.meta import Key

    async def work(client: "Client") -> int:
        job = await checkrun.start(client, check, node=node, namespace=namespace)
        key = job.metadata.key
        typer.echo(f"Started {check}{f' on {node}' if node else ''}: Job {key}")
        if node and (reason := await checkrun.holding(client, node, namespace=key.namespace)):
            typer.echo(f"  {node} is drained: {reason}")
            typer.echo(f"  a check that runs in Slurm waits until it is open: isthmus health release {node}")
        if not wait:
            typer.echo(f"  kubectl get job {key.name} -n {key.namespace}")
            return 0
        ended, job = await checkrun.follow(client, key, lambda line: typer.echo(f"  … {line}", err=True))
        for each in () if node else await checkrun.results(client, Key(key.namespace, check), job):
            typer.echo(f"  {each.node}: {each.result}{_said(each.evidence)}")
        sign, colour, code = _verdict(ended.verdict)
        typer.echo(f"{typer.style(sign, fg=colour)} {check} {ended.verdict}{_said(ended.detail)}")
        return code

    try:
        code = connection.with_client(work, kubeconfig)
    except IsthmusError as error:
        typer.echo(f"isthmus: {error}", err=True)
        raise typer.Exit(_ERROR) from error
    raise typer.Exit(code)


def _verdict(verdict: str) -> tuple[str, str, int]:
    return {"passed": ("✓", "green", 0), "failed": ("✗", "red", _FAILED)}.get(verdict, ("!", "yellow", _ERROR))


@app.command()
def pause(namespace: _Namespace = "", kubeconfig: Kubeconfig = None) -> None:
    """Start no new drain or repair until resumed. Those in progress finish; findings are still recorded."""
    _switch(namespace, kubeconfig, paused=True)


@app.command()
def resume(namespace: _Namespace = "", kubeconfig: Kubeconfig = None) -> None:
    """Act on findings again."""
    _switch(namespace, kubeconfig, paused=False)


def _switch(namespace: str, kubeconfig: Kubeconfig, *, paused: bool) -> None:
    from isthmus.inspect import healthcontrol

    async def work(client: "Client") -> "tuple[Switch, ...]":
        return await healthcontrol.set_paused(client, paused=paused, namespace=namespace)

    done = connection.with_client(work, kubeconfig)
    for line in switched(done, paused=paused):
        typer.echo(line)


def switched(done: "tuple[Switch, ...]", *, paused: bool) -> "Iterator[str]":
    """Say what was done to each policy."""
    word = "paused" if paused else "resumed"
    if not done:
        yield "Nothing is paused: there is no HealthPolicy."
    for each in done:
        if each.done:
            yield f"HealthPolicy {each.policy} was {word} already."
        elif each.new:
            yield f"HealthPolicy {each.policy} created, {word}."
        else:
            yield f"HealthPolicy {each.policy} {word}."
    if paused and done:
        yield "Repairs that have begun go on. Resume with: isthmus health resume"


@app.command()
def release(
    node: Annotated[str, typer.Argument(help="Name of the node in Slurm.", metavar="NODE")],
    *,
    namespace: _Namespace = "",
    yes: _Yes = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Return a node to service without a test: resume it in Slurm and clear its findings until seen again."""
    import time

    from isthmus.inspect import health, healthcontrol

    async def work(client: "Client") -> None:
        line, _ = await health.node(client, node, namespace=namespace)
        found = ", ".join(line.checks)
        typer.echo(f"{line.cluster} {line.health.spec.node}: {line.phase} because of {found}")
        if not yes and not typer.confirm("It has not passed the check that failed. Return it to service anyway?"):
            typer.echo("Nothing was changed.")
            return
        await healthcontrol.release(client, line.health, now=time.time())
        typer.echo(
            f"{line.health.spec.node} is back in service. A finding counts again only when it is seen again."
        )

    connection.with_client(work, kubeconfig)


def _print(found: object, nodes: "tuple[NodeLine, ...]", output: Output, people: "Any") -> None:
    if output is Output.JSON:
        show_json(found)
    elif output is Output.YAML:
        import msgspec
        import yaml

        typer.echo(yaml.safe_dump(msgspec.to_builtins(found, str_keys=True), sort_keys=False).rstrip())
    elif output is Output.NAME:
        for line in nodes:
            typer.echo(f"nodehealth.isthmus.dev/{line.health.metadata.name}")
    else:
        for line in people():
            typer.echo(line)


def _tabulate(found: "Overview", *, now: float, wide: bool) -> "Iterator[str]":
    from isthmus.cli.render import columns

    if found.nodes:
        heads = ("NODE", "CLUSTER", "PHASE", "SINCE", "FINDINGS", "NEXT STEP")
        more = ("MACHINE", "TEST", "POLICY", "MESSAGE") if wide else ()
        yield from columns((*heads, *more), [row(it, now=now, wide=wide) for it in found.nodes])
        yield ""
    else:
        yield "Nothing was found on any node."
    yield from summary(found)


def row(line: "NodeLine", *, now: float, wide: bool = False) -> tuple[str, ...]:
    """The cells of one node."""
    from isthmus.domain.languages.prose import some

    status = line.health.status
    cells = (
        line.health.spec.node,
        str(line.cluster),
        line.phase,
        _ago(status.since.timestamp() if status.since else None, now),
        some(line.checks, 2) or "-",
        line.next_step,
    )
    return (
        (*cells, status.machine or "-", status.test or "-", line.policy or "-", status.message or "-")
        if wide
        else cells
    )


def summary(found: "Overview") -> "Iterator[str]":
    """Say for each cluster how many nodes are held, by which limit, and what stops repair."""
    if not found.clusters:
        yield "There is no cluster. Create one: isthmus cluster create NAME"
    for it in found.clusters:
        limit = f"{it.limit} of each NodeSet" if it.limit.endswith("%") else f"{it.limit} of each NodeSet's nodes"
        yield f"{it.cluster}: {it.held} held, limit {limit}, policy {it.policy or 'built-in'}{_stops(it)}"
        for storm in it.storms:
            yield f"  {typer.style('!', fg='yellow')} storm: {storm}"
        if it.rivals:
            rivals = ", ".join(it.rivals)
            yield f"  {typer.style('!', fg='yellow')} not in effect beside {it.policy}: {rivals}"


def _stops(it: "Governance") -> str:
    stops = [word for word, so in (("PAUSED", it.paused), ("shadow mode", it.shadow)) if so]
    return f", {', '.join(stops)}" if stops else ""


def details(line: "NodeLine", governance: "Governance", *, now: float) -> "Iterator[str]":
    """Everything about one node: its findings, what was tried, and what would return it."""
    status = line.health.status
    phase = typer.style(line.phase, fg=_COLOURS.get(line.phase, "cyan"))
    since = f" for {_ago(status.since.timestamp(), now)}" if status.since else ""
    yield f"{line.health.spec.node} of {line.cluster}: {phase}{since}"
    told = {
        "why": status.message,
        "machine": status.machine,
        "drained as": status.reason,
        "next": line.next_step,
        "policy": f"{line.policy or 'built-in'}{_stops(governance)}",
    }
    yield from (f"  {name:<11}{text}" for name, text in told.items() if text)
    yield "Findings"
    yield from (it for finding in status.findings for it in _finding(finding, now))
    if status.steps:
        yield "Repair steps"
        yield from (_step(it, now) for it in status.steps)
    if line.way_back:
        yield "In use again when"
        yield from (f"  {it}" for it in line.way_back)
    if status.test:
        yield f"  → kubectl describe job {status.test} -n {line.cluster.namespace}"


def _finding(finding: "Finding", now: float) -> "Iterator[str]":
    sign, colour = ("✗", "red") if finding.cleared is None else ("✓", "green")
    seen = finding.last_seen or finding.first_seen
    times = f"{finding.count} times" if finding.count > 1 else "once"
    when = f", last {_ago(seen.timestamp(), now)} ago" if seen else ""
    gone = f", gone for {_ago(finding.cleared.timestamp(), now)}" if finding.cleared else ""
    yield f"  {typer.style(sign, fg=colour)} {finding.check or '-'} ({finding.source}) {times}{when}{gone}"
    if finding.evidence:
        yield f"      {finding.evidence}"
    if finding.devices:
        yield f"      devices: {', '.join(finding.devices)}"


def _step(step: "RepairStep", now: float) -> str:
    took = f"took {_ago(step.started.timestamp(), step.ended.timestamp())}" if step.ended else "under way"
    return f"  {step.rung:<12}{_ago(step.started.timestamp(), now)} ago, {took}{_said(step.outcome)}"


def _said(text: str) -> str:
    return f": {text}" if text else ""


def _ago(moment: float | None, now: float) -> str:
    from isthmus.domain.bridge.explain import ago

    return "-" if moment is None else ago(now - moment)
