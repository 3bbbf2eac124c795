"""`isthmus up` and `isthmus down`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Name, chosen, every
from isthmus.errors import Terminal

_LAST_PORT = 65535


class Slurm(StrEnum):
    """The versions of Slurm that there are images of."""

    NEW = "26.05"
    OLD = "24.11"


def up(
    name: Name = None,
    nodes: Annotated[int | None, typer.Option(help="Number of workers. [default: 3]", metavar="N")] = None,
    slurm: Annotated[Slurm | None, typer.Option(help="Version of Slurm. [default: 26.05]")] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(
            help="Port of localhost to publish a node port on. [default: 30022]", metavar="PORT[:NODEPORT]"
        ),
    ] = None,
    binaries: Annotated[
        Path | None,
        typer.Option(
            envvar="ISTHMUS_BINARIES",
            help="Use the programs in this directory instead of building them.",
            metavar="DIR",
        ),
    ] = None,
    *,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Add Prometheus, Alertmanager and metrics-server.")
    ] = False,
    web: Annotated[bool, typer.Option("--web", help="Add the web page of Slurm and Kubernetes.")] = False,
) -> None:
    """Create a cluster on this machine, or repair the existing one."""
    from isthmus.cli.render import progress
    from isthmus.local import lifecycle
    from isthmus.local import monitoring as prometheus
    from isthmus.local import web as page
    from isthmus.local.state import PublishedPort

    ports = None if publish is None else [PublishedPort(*_port_pair(text)) for text in publish]
    with progress() as shown:
        made = lifecycle.up(
            chosen(name),
            workers=nodes,
            slurm=slurm.value if slurm else None,
            publish=ports,
            given=binaries,
            monitored=monitoring or None,
            page=web or None,
            progress=shown,
        )
    workers = f"{made.settings.workers} worker{'s' if made.settings.workers != 1 else ''}"
    typer.echo(f"Cluster {made.settings.name} is up: {workers}, Slurm {made.settings.slurm}.")
    typer.echo("  isthmus kubectl get nodes")
    typer.echo("  export KUBECONFIG=$(isthmus kubeconfig)")
    for part, address in {**prometheus.addresses(made), **page.addresses(made)}.items():
        typer.echo(f"  {part}: {address}")
    if made.settings.web:
        typer.echo(f"  {page.LOGIN}   # prints a token to log in with")


def down(
    name: Name = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Delete every cluster of this machine.")] = False,
) -> None:
    """Remove a cluster and everything that it left on this machine; the cache stays."""
    from isthmus.cli.render import progress
    from isthmus.local import lifecycle

    with progress() as shown:
        for each in every() if everything else [chosen(name)]:
            lifecycle.down(each, shown)


def _port_pair(text: str) -> tuple[int, int]:
    """Read PORT or PORT:NODEPORT."""
    try:
        numbers = [int(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 < number <= _LAST_PORT for number in numbers):
        raise Terminal(f"{text!r} is not a port", remedy="write --publish 30022, or --publish 40022:30022")
    return numbers[0], numbers[-1]
