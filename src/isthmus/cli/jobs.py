"""`isthmus jobs`: jobs of Slurm and pods in one table."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.flags import words
from isthmus.cli.query import (
    Namespace,
    Output,
    OutputOption,
    Sources,
    conclude,
    safe,
    see,
    show_items,
    with_sources,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isthmus.domain.views.queue import Entry

HEADS = ("TYPE", "ID", "NAME", "USER", "PARTITION", "STATE", "TIME", "NODES", "NODELIST(REASON)")
_WIDE = ("ACCOUNT", "QOS", "PRIORITY", "CPUS", "MEMORY", "GPUS", "LIMIT", "WORKLOAD", "PODS")
_MAX_CHARS = 60


@with_sources
def jobs(
    *,
    user: Annotated[str, typer.Option("--user", "-u", help="Only jobs of this user.", metavar="NAME")] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state",
            "-t",
            help="Only jobs in these states, separated by commas: running, pending, failed, …, or all. "
            "[default: jobs that are not over]",
            metavar="STATES",
        ),
    ] = "",
    partition: Annotated[
        str, typer.Option("--partition", "-p", help="Only jobs in this partition.", metavar="NAME")
    ] = "",
    namespace: Namespace = "",
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", "-A", help="Also pods of other namespaces that Slurm does not place."),
    ] = False,
    output: OutputOption = Output.TABLE,
    where: Sources,
) -> None:
    """List the jobs of Slurm and the pods of Kubernetes: which is which, what runs where, what waits and why.

    Pods that Slurm places are shown with their job. Of other pods, those of your namespace are shown.
    """
    import time

    from isthmus.domain.views.queue import Filter, select
    from isthmus.inspect import worlds

    found = see(where._replace(namespace=namespace), kinds=worlds.JOB_KINDS)
    now = time.time()
    by = Filter(
        user=user,
        states=words(state),
        partition=partition,
        namespace=namespace,
        home="" if all_namespaces else found.namespace,
    )
    every = worlds.entries(found, now=now)
    chosen = tuple(select(every, by))
    if output in {Output.TABLE, Output.WIDE}:
        for line in _lines(chosen, among=len(every), wide=output is Output.WIDE, now=now):
            typer.echo(line)
    else:
        show_items(chosen, found, output, ref=lambda it: it.ref)
    conclude(found, worlds.JOB_KINDS, quiet=bool(chosen))


def _lines(chosen: "Sequence[Entry]", *, among: int = 0, wide: bool, now: float) -> "Iterator[str]":
    from isthmus.cli.render import columns

    if not chosen:
        yield f"None of {among} jobs and pods: isthmus jobs -A --state all" if among else "No jobs."
        return
    heads = (*HEADS, *_WIDE) if wide else HEADS
    cells = [tuple(safe(it) for it in (*row(each, now=now, wide=wide),)) for each in chosen]
    yield from columns(heads, cells)


def row(entry: "Entry", *, now: float, wide: bool = False) -> tuple[str, ...]:
    """The cells of a job or a pod."""
    from isthmus.domain.views.queue import age, short, where

    told = where(entry)
    cells = (
        entry.kind,
        entry.label or "-",
        entry.name or "-",
        entry.user or "-",
        entry.partition or "-",
        entry.state,
        age(entry, now=now),
        str(entry.nodes or "-"),
        told if wide or len(told) <= _MAX_CHARS else f"{told[: _MAX_CHARS - 1]}…",
    )
    if not wide:
        return cells
    limit = {-1: "none", 0: "-"}.get(entry.limit) or short(entry.limit)
    return (
        *cells,
        entry.account or "-",
        entry.qos or "-",
        str(entry.priority or "-"),
        f"{entry.cpus:g}",
        size(entry.memory),
        str(entry.gpus or "-"),
        limit,
        entry.workload or "-",
        str(len(entry.pods) or "-"),
    )


def size(count: float) -> str:
    """Bytes, as kubectl writes them."""
    if not count:
        return "-"
    for unit in ("", "Ki", "Mi", "Gi"):
        if count < 10240:  # noqa: PLR2004 - up to four digits stay readable
            return f"{count:.0f}{unit}"
        count /= 1024
    return f"{count:.0f}Ti"
