"""`isthmus top`: jobs, pods and nodes of both worlds, live in a terminal."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.flags import Json, show_json
from isthmus.cli.query import Namespace, Sources, conclude, query, safe, see, silence, with_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from isthmus.domain.views.queue import Entry
    from isthmus.domain.views.screen import Intent, Table, Tone
    from isthmus.inspect.worlds import Observation

_TAIL = 1000
_PEOPLE = ("ACCOUNT", "USER", "RUNNING", "CPUS", "GPUS", "WAITING", "LONGEST WAIT")
_COUNTS = ("running", "cpus", "gpus", "waiting")
_BAD = frozenset({"down", "drained", "draining", "failed", "not_responding", "unknown", "error", "not ready"})


@with_sources
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print both tables once and exit.")] = False,
    json: Json = False,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", metavar="SECONDS", min=1)] = 5.0,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Without colours, as with the variable NO_COLOR.")
    ] = False,
    namespace: Namespace = "",
    where: Sources,
) -> None:
    """Show jobs, pods, nodes and people of Slurm and Kubernetes, live: what runs where, what waits and why.

    Tab changes the view, Enter says why, l shows a log, / filters, ? lists the keys, q ends. Without a terminal it
    prints jobs and nodes once.
    """
    from isthmus.inspect import worlds

    where = where._replace(namespace=namespace)
    if json or once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        found = see(where, kinds=worlds.NODE_KINDS)
        if json:
            show_json(_values(found, namespace))
        else:
            for line in _printed(found, namespace):
                typer.echo(line)
        conclude(found, worlds.NODE_KINDS, quiet=True)
        return
    from isthmus.cli import cursesui

    cursesui.run(
        lambda: look(where),
        lambda what, ref: opened(what, ref, where),
        interval=interval,
        colours=not (no_color or os.environ.get("NO_COLOR")),
    )


def look(where: Sources) -> "tuple[str, list[str], dict[str, Table]]":
    """Read both worlds: a title, what is wrong, and the tables."""
    from isthmus.inspect import worlds

    async def keep(observed: "Observation") -> "Observation":
        return observed

    found = query(keep, where, kinds=worlds.NODE_KINDS)
    notes = [safe(it) for it in silence(found, worlds.NODE_KINDS) if " is not shown: " not in it or found.blind]
    return title(found), notes, tables(found, namespace=where.namespace)


def opened(what: "Intent", ref: str, where: Sources) -> tuple[str, ...]:
    """Why a job or pod waits, or the end of its log; of a node, what is known of it."""
    import time

    from isthmus.bridge.config import load
    from isthmus.cli.why import lines
    from isthmus.domain.views import targets
    from isthmus.domain.views.screen import Intent
    from isthmus.errors import IsthmusError
    from isthmus.inspect import why, worklogs, worlds

    async def explain(observed: "Observation") -> tuple[str, ...]:
        if what is Intent.LOG:
            written = bytearray()
            await worklogs.show(observed, targets.parse(ref), written.extend, worklogs.LogOptions(tail=_TAIL))
            text = written.decode(errors="replace").expandtabs()
            return tuple(map(safe, text.splitlines())) or ("Nothing has been written yet.",)
        if ref.startswith("node/"):
            return tuple(_of_node(worlds.node_rows(observed), ref.removeprefix("node/")))
        found = await why.why(observed, load(where.config), targets.parse(ref), now=time.time())
        return tuple(lines(found, now=time.time(), styled=False))

    try:
        return query(explain, where)
    except IsthmusError as error:
        return tuple(str(error).splitlines())


def title(found: "Observation") -> str:
    """Both worlds in a line."""
    import time
    from collections import Counter

    from isthmus.domain.views.queue import LIVING
    from isthmus.inspect import worlds

    jobs = Counter(it.phase for it in worlds.entries(found, now=time.time()) if it.phase in LIVING)
    nodes = _nodes(found)
    states = Counter(it["state"] for it in nodes if it["state"] != "kubernetes")
    counted = ", ".join(f"{count} {name}" for name, count in jobs.most_common()) or "none"
    machines = ", ".join(f"{count} {name}" for name, count in states.most_common(4))
    used, there = sum(it["cpusUsed"] for it in nodes), sum(it["cpus"] for it in nodes)
    return f"Jobs: {counted}   Nodes: {len(nodes)}{f' ({machines})' if machines else ''}   CPUs: {used}/{there}"


def tables(found: "Observation", *, namespace: str = "") -> "dict[str, Table]":
    """The tables of `isthmus jobs` and `isthmus nodes`, with what each row is."""
    import time

    from isthmus.cli import jobs, nodes
    from isthmus.domain.views.screen import Tone

    now = time.time()
    tones = {"running": Tone.GOOD, "waiting": Tone.WAITS, "failed": Tone.BAD, "unknown": Tone.BAD}
    chosen = _chosen(found, namespace, now=now)
    machines = _nodes(found)
    return {
        "jobs": _table(
            jobs.HEADS,
            [jobs.row(it, now=now) for it in chosen],
            [it.ref for it in chosen],
            [tones.get(it.phase, Tone.PLAIN) for it in chosen],
        ),
        "nodes": _table(
            nodes.HEADS,
            [nodes.row(it, now=now) for it in machines],
            [f"node/{it['id']}" for it in machines],
            [_node_tone(it) for it in machines],
        ),
        "people": _people(found, now),
    }


def _people(found: "Observation", now: float) -> "Table":
    from isthmus.domain.views.people import people
    from isthmus.domain.views.queue import short
    from isthmus.domain.views.screen import Tone

    listed = people(found.jobs, now=now)
    rows = [
        (
            it["account"] or "-",
            it["user"] or "-",
            *(str(it[count]) for count in _COUNTS),
            short(it["wait"]) if it["wait"] else "-",
        )
        for it in listed
    ]
    tones = [Tone.GOOD if it["running"] else Tone.WAITS for it in listed]
    return _table(_PEOPLE, rows, [f"user/{it['user']}" for it in listed], tones)


def _table(
    heads: "Sequence[str]", rows: "Sequence[Sequence[str]]", refs: "Sequence[str]", tones: "Sequence[Tone]"
) -> "Table":
    from isthmus.cli.render import columns
    from isthmus.domain.views.screen import Table

    head, *lines = columns(heads, [tuple(map(safe, row)) for row in rows])
    return Table(head, tuple(lines), tuple(refs), tuple(tones))


def _chosen(found: "Observation", namespace: str, *, now: float) -> "tuple[Entry, ...]":
    """The same as in `isthmus jobs`: what is not over, without the pods of other namespaces."""
    from isthmus.domain.views.queue import Filter, select
    from isthmus.inspect import worlds

    return tuple(select(worlds.entries(found, now=now), Filter(namespace=namespace, home=found.namespace)))


def _node_tone(node: "dict[str, Any]") -> "Tone":
    from isthmus.domain.views.screen import Tone

    if {node["state"], node["kubeState"]} & _BAD:
        return Tone.BAD
    return Tone.GOOD if node["cpusUsed"] or node["pods"] else Tone.PLAIN


def _nodes(found: "Observation") -> "list[dict[str, Any]]":
    from isthmus.domain.views.rows import NODE_COLUMNS
    from isthmus.inspect import worlds

    return [dict(zip(NODE_COLUMNS, it, strict=True)) for it in worlds.node_rows(found)]


def _of_node(rows: "Sequence[Sequence[Any]]", name: str) -> "Iterator[str]":
    from isthmus.domain.views.rows import NODE_COLUMNS

    yield f"Node {safe(name)}"
    for row in rows:
        if row[0] == name:
            for key, value in zip(NODE_COLUMNS[1:], row[1:], strict=True):
                text = ", ".join(value) if isinstance(value, list) else str(value)
                if value:
                    yield f"  {key:<12} {safe(text)}"


def _printed(found: "Observation", namespace: str) -> "Iterator[str]":
    yield title(found)
    for name, table in tables(found, namespace=namespace).items():
        if table.lines and name in {"jobs", "nodes"}:
            yield ""
            yield table.head
            yield from table.lines


def _values(found: "Observation", namespace: str) -> "dict[str, Any]":
    import time

    return {
        "title": title(found),
        "jobs": _chosen(found, namespace, now=time.time()),
        "nodes": _nodes(found),
        "troubles": dict(found.troubles),
        "absent": dict(found.absent),
    }
