"""The command tree, and the one place where an error becomes a message and an exit code."""

import sys

import typer

import isthmus
from isthmus.cli import (
    addon,
    bridge,
    chart,
    cluster,
    doctor,
    elastic,
    explain,
    exporter,
    health,
    images,
    info,
    jail,
    lifecycle,
    node,
    operator,
    passthrough,
    rebooter,
    report,
    sconfig,
    soperatorchecks,
    version,
)
from isthmus.cli.goflags import GoCommand
from isthmus.errors import IsthmusError

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
app.command()(info.logs)
app.command()(version.version)
app.command()(explain.explain)
app.command()(doctor.doctor)
app.command()(report.report)
app.command(cls=GoCommand)(operator.operator)
app.command(cls=GoCommand)(sconfig.sconfig)
app.command(cls=GoCommand)(exporter.exporter)
app.command(cls=GoCommand)(soperatorchecks.soperatorchecks)
app.command(cls=GoCommand)(rebooter.rebooter)
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
    try:
        app()
    except IsthmusError as error:
        print(f"isthmus: {error}", file=sys.stderr)
        sys.exit(1)
