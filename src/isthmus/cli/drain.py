"""`isthmus drain NODE...` and `isthmus resume NODE...`: no new jobs of Slurm on a node, and jobs again."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.completion import complete_nodes
from isthmus.cli.query import Sources, complain, query, with_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isthmus.inspect.worlds import Observation

_Nodes = Annotated[
    list[str],
    typer.Argument(
        help="Nodes, by their names in Slurm or in Kubernetes.", metavar="NODE...", autocompletion=complete_nodes
    ),
]


@with_sources
def drain(
    nodes: _Nodes,
    *,
    reason: Annotated[
        str,
        typer.Option("--reason", "-r", help="Why they are not to be used, for others to read.", metavar="TEXT"),
    ],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until no job is left on them.")] = False,
    where: Sources,
) -> None:
    """Drain nodes in Slurm: running jobs finish, and no new ones start.

    Pods of Kubernetes stay; to move them too, use kubectl drain, which drains the node in Slurm first.
    """
    from isthmus.inspect import drains, worlds

    def told(busy: "Sequence[str]") -> None:
        complain(f"jobs are still on {', '.join(busy)}")

    async def change(observed: "Observation") -> tuple[str, ...]:
        return await drains.drain(observed, nodes, reason, wait=told if wait else None)

    for name in query(change, where, kinds=worlds.NODE_KINDS):
        typer.echo(f"node/{name} {'drained' if wait else 'drains'}")


@with_sources
def resume(
    nodes: _Nodes,
    *,
    where: Sources,
) -> None:
    """Let Slurm use nodes again that were drained or down."""
    from isthmus.inspect import drains, worlds

    async def change(observed: "Observation") -> tuple[str, ...]:
        return await drains.resume(observed, nodes)

    for name in query(change, where, kinds=worlds.NODE_KINDS):
        typer.echo(f"node/{name} resumed")
