"""`isthmus nodes`: machines as Slurm and as Kubernetes see them, in one table."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.completion import complete_nodes
from isthmus.cli.flags import words
from isthmus.cli.query import Output, OutputOption, Sources, conclude, safe, see, show_items, with_sources
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HEADS = ("NAME", "SLURM", "KUBERNETES", "PARTITIONS", "CPUS", "MEMORY", "GPUS", "PODS", "REASON")
_WIDE = ("NODE", "BLOCK", "HEALTH", "POD-CPUS", "SET-BY", "SINCE")
_MAX_CHARS = 60


@with_sources
def nodes(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Only these nodes. [default: all]", metavar="NAME...", autocompletion=complete_nodes),
    ] = None,
    *,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            "-t",
            help="Only nodes in these states, separated by commas: idle, mixed, drained, down, cordoned, …",
            metavar="STATES",
        ),
    ] = "",
    partition: Annotated[
        str, typer.Option("--partition", "-p", help="Only nodes of this partition.", metavar="NAME")
    ] = "",
    output: OutputOption = Output.TABLE,
    where: Sources,
) -> None:
    """List the nodes of Slurm and Kubernetes; a machine that is in both is one line."""
    import time

    from isthmus.domain.views.rows import NODE_COLUMNS
    from isthmus.inspect import worlds

    found = see(where, kinds=worlds.NODE_KINDS)
    every = [dict(zip(NODE_COLUMNS, it, strict=True)) for it in worlds.node_rows(found)]
    if missing := sorted({*(names or ())} - {name for it in every for name in (it["id"], it["kube"])}):
        raise Terminal(f"there is no node {', '.join(missing)}", remedy="isthmus nodes lists them")
    named = [it for it in every if not names or it["id"] in names or it["kube"] in names]
    chosen = [it for it in named if _wanted(it, state, partition)]
    if output in {Output.TABLE, Output.WIDE}:
        for line in _lines(chosen, among=len(every), wide=output is Output.WIDE, now=time.time()):
            typer.echo(line)
    else:
        show_items(chosen, found, output, ref=lambda it: f"node/{it['id']}")
    conclude(found, worlds.NODE_KINDS, quiet=bool(chosen))


def _wanted(node: "Mapping[str, Any]", state: str, partition: str) -> bool:
    states = {it.lower() for it in words(state)}
    return (not states or bool(states & {node["state"], node["kubeState"]})) and (
        not partition or partition in node["partitions"]
    )


def _lines(chosen: "Sequence[Mapping[str, Any]]", *, among: int = 0, wide: bool, now: float) -> "Iterator[str]":
    from isthmus.cli.render import columns

    if not chosen:
        yield f"None of {among} nodes: isthmus nodes" if among else "No nodes."
        return
    heads = (*HEADS, *_WIDE) if wide else HEADS
    yield from columns(heads, [tuple(map(safe, row(it, wide=wide, now=now))) for it in chosen])


def row(node: "Mapping[str, Any]", *, now: float, wide: bool = False) -> tuple[str, ...]:
    """The cells of a node; used and there, as 2/8."""
    from isthmus.cli.jobs import size
    from isthmus.domain.views.queue import short

    in_slurm = node["state"] != "kubernetes"
    cpus = f"{node['cpusUsed']}/{node['cpus']}" if in_slurm else f"{node['podCpus']:g}/{node['kubeCpus']:g}"
    memory = f"{size(node['memoryUsed']) if node['memoryUsed'] else '0'}/{size(node['memory'])}"
    reason = node["reason"] or "-"
    cells = (
        node["id"],
        node["state"] if in_slurm else "-",
        node["kubeState"] or "-",
        ",".join(node["partitions"]) or "-",
        cpus,
        memory if in_slurm else size(node["memory"]),
        f"{node['gpusUsed']}/{node['gpus']}" if node["gpus"] else "-",
        str(node["pods"]) if node["kube"] else "-",
        reason if wide or len(reason) <= _MAX_CHARS else f"{reason[: _MAX_CHARS - 1]}…",
    )
    if not wide:
        return cells
    since = short(now - node["reasonAt"]) if node["reasonAt"] else "-"
    return (
        *cells,
        node["kube"] or "-",
        node["block"] or "-",
        node["health"] or "-",
        f"{node['podCpus']:g}",
        node["reasonBy"] or "-",
        since,
    )
