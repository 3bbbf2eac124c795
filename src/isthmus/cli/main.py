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

app = typer.Typer(
    name="isthmus",
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


app.command()(lifecycle.up)
app.command()(lifecycle.down)
app.command()(info.status)
app.command()(info.kubeconfig)
app.command()(logs.logs)
app.command()(submit.submit)
app.command()(version.version)
app.command()(completion.completion)
app.command()(top.top)
app.command()(jobs.jobs)
app.command()(nodes.nodes)
app.command()(drain.drain)
app.command()(drain.resume)
app.command()(why.why)
app.command()(explain.explain)
app.command()(doctor.doctor)
app.command()(plan.plan)
app.command()(report.report)
app.command(cls=GoCommand)(operator.operator)
app.command(cls=GoCommand)(sconfig.sconfig)
app.command(cls=GoCommand)(exporter.exporter)
app.command(cls=GoCommand)(soperatorchecks.soperatorchecks)
app.command(cls=GoCommand)(rebooter.rebooter)
app.command(cls=GoCommand)(web.web)
app.command(context_settings=passthrough.SETTINGS)(passthrough.kubectl)
app.command(context_settings=passthrough.SETTINGS)(passthrough.helm)
app.add_typer(health.app, name="health")
app.add_typer(elastic.app, name="elastic")
app.add_typer(cluster.app, name="cluster")
app.add_typer(jail.app, name="jail")
app.add_typer(bridge.app, name="bridge")
app.add_typer(node.app, name="node")
app.add_typer(images.app, name="images")
app.add_typer(addon.app, name="addon")
app.add_typer(chart.app, name="chart")


def main() -> None:
    """Run the command that the arguments name."""
    run(app, "isthmus")
