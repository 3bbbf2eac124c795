"""`isthmus addon install|list`: optional components of a cluster."""

from typing import Annotated

import typer

from isthmus.cli.options import Name, chosen

app = typer.Typer(
    help="Install JobSet, LeaderWorkerSet, PodGroup and monitoring.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def install(
    addons: Annotated[list[str], typer.Argument(help="Names from `isthmus addon list`.", metavar="ADDON")],
    name: Name = None,
) -> None:
    """Install add-ons into a running cluster, and wait until they are ready."""
    from isthmus.cli.render import progress
    from isthmus.local import lifecycle

    with progress() as shown:
        lifecycle.install_addons(chosen(name), addons, shown)


@app.command(name="list")
def list_() -> None:
    """List the available add-ons."""
    from isthmus.cli.render import table
    from isthmus.local.workloads import ADDONS

    table(("NAME", "WHAT IT IS"), [(addon.name, addon.title) for addon in ADDONS.values()])
