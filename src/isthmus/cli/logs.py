"""`isthmus logs JOB|POD`, and the logs of the local cluster's own components."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import info
from isthmus.cli.completion import complete_targets
from isthmus.cli.options import Name
from isthmus.cli.query import PodNamespace, Sources, query, with_sources

if TYPE_CHECKING:
    from isthmus.inspect.worlds import Observation

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until it ends.")]
Tail = Annotated[int | None, typer.Option(help="Only the last lines.", metavar="COUNT", min=0)]
Container = Annotated[
    str, typer.Option("--container", "-c", help="Container of the pod. [default: its first]", metavar="NAME")
]


@with_sources
def logs(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A job (12, job/12), a pod (pod/NAME), or a component of the local cluster (kubelet, etcd …).",
            metavar="JOB|POD|COMPONENT",
            autocompletion=complete_targets,
        ),
    ] = None,
    *,
    follow: Follow = False,
    tail: Tail = None,
    namespace: PodNamespace = "",
    container: Container = "",
    name: Name = None,
    node: Annotated[
        str | None, typer.Option(help="Of a component: only the log of this node.", metavar="NODE")
    ] = None,
    where: Sources,
) -> None:
    """Show what a job or a pod writes; of a component of the local cluster, its log on all nodes that have one.

    A batch job's file is read on this machine where there is Slurm, else in a login pod. Without a name, the
    components that have logs are listed.
    """
    if target is None or not ("/" in target or target[:1].isdigit()):
        info.logs(target, name, node, follow=follow, tail=tail)
        return
    show_log(target, where._replace(namespace=namespace), follow=follow, tail=tail, container=container)


def show_log(target: str, where: Sources, *, follow: bool, tail: int | None, container: str) -> None:
    """Print the log of a job or pod as it is."""
    from isthmus.domain.views import targets
    from isthmus.inspect import worklogs, worlds

    asked, options = targets.parse(target), worklogs.LogOptions(follow, tail, container)

    async def show(observed: "Observation") -> None:
        await worklogs.show(observed, asked, write_out, options)

    query(show, where, kinds=worlds.JOB_KINDS)


def write_out(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
