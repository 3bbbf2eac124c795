"""The command tree."""

import typer

import isthmus
from isthmus.cli import (
    addon,
    bridge,
    chart,
    cluster,
    completion,
    doctor,
    drain,
    elastic,
    explain,
    exporter,
    health,
    images,
    info,
    jail,
    jobs,
    lifecycle,
    logs,
    node,
    nodes,
    operator,
    passthrough,
    plan,
    rebooter,
    report,
    sconfig,
    soperatorchecks,
    submit,
    top,
    version,
    web,
    why,
)
from isthmus.cli.entry import run
from isthmus.cli.goflags import GoCommand
from isthmus.cli.helppage import CLUSTERS, JOBS, LOCAL, PROCESSES, PROGRAM, Sections

app = typer.Typer(
    name="isthmus",
    cls=Sections,
    help="Slurm and Kubernetes, joined. Start with: isthmus up",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich costs more time than the whole rest of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(f"isthmus {isthmus.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: FBT003 - typer's default
) -> None:
    pass


app.command(rich_help_panel=JOBS)(jobs.jobs)
app.command(rich_help_panel=JOBS)(nodes.nodes)
app.command(rich_help_panel=JOBS)(why.why)
app.command(rich_help_panel=JOBS)(logs.logs)
app.command(rich_help_panel=JOBS)(submit.submit)
app.command(rich_help_panel=JOBS)(top.top)
app.command(rich_help_panel=JOBS)(report.report)
app.command(rich_help_panel=JOBS)(drain.drain)
app.command(rich_help_panel=JOBS)(drain.resume)

app.add_typer(cluster.app, name="cluster", cls=Sections, rich_help_panel=CLUSTERS)
app.command(rich_help_panel=CLUSTERS)(doctor.doctor)
app.command(rich_help_panel=CLUSTERS)(plan.plan)
app.add_typer(health.app, name="health", rich_help_panel=CLUSTERS)
app.add_typer(elastic.app, name="elastic", rich_help_panel=CLUSTERS)
app.add_typer(bridge.app, name="bridge", cls=Sections, rich_help_panel=CLUSTERS)
app.command(rich_help_panel=CLUSTERS)(explain.explain)
app.add_typer(chart.app, name="chart", cls=Sections, rich_help_panel=CLUSTERS)

app.command(rich_help_panel=LOCAL)(lifecycle.up)
app.command(rich_help_panel=LOCAL)(lifecycle.down)
app.command(rich_help_panel=LOCAL)(info.status)
app.command(rich_help_panel=LOCAL)(info.kubeconfig)
app.command(context_settings=passthrough.SETTINGS, rich_help_panel=LOCAL)(passthrough.kubectl)
app.command(context_settings=passthrough.SETTINGS, rich_help_panel=LOCAL)(passthrough.helm)
app.add_typer(node.app, name="node", cls=Sections, rich_help_panel=LOCAL)
app.add_typer(addon.app, name="addon", cls=Sections, rich_help_panel=LOCAL)
app.add_typer(images.app, name="images", cls=Sections, rich_help_panel=LOCAL)

app.command(cls=GoCommand, rich_help_panel=PROCESSES)(web.web)
app.command(cls=GoCommand, rich_help_panel=PROCESSES)(operator.operator)
app.command(cls=GoCommand, rich_help_panel=PROCESSES)(exporter.exporter)
app.command(cls=GoCommand, rich_help_panel=PROCESSES)(soperatorchecks.soperatorchecks)
app.command(cls=GoCommand, rich_help_panel=PROCESSES)(sconfig.sconfig)
app.command(cls=GoCommand, rich_help_panel=PROCESSES)(rebooter.rebooter)
app.add_typer(jail.app, name="jail", cls=Sections, rich_help_panel=PROCESSES)

app.command(rich_help_panel=PROGRAM)(version.version)
app.command(rich_help_panel=PROGRAM)(completion.completion)


def main() -> None:
    """Run the command that the arguments name."""
    run(app, "isthmus")
