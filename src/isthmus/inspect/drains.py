"""Draining nodes for people: under the names that either side has for them, and until their jobs are over."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from isthmus.domain.exporter import nodestates
from isthmus.domain.views.rows import NODE_COLUMNS
from isthmus.errors import Terminal
from isthmus.inspect import worlds
from isthmus.inspect.slurmsource import SlurmSource
from isthmus.inspect.worlds import SLURM, Observation, SilentError

_PAUSE: Final = 2.0


async def drain(
    observed: Observation,
    names: Sequence[str],
    reason: str,
    *,
    wait: Callable[[Sequence[str]], object] | None = None,
) -> tuple[str, ...]:
    """Let nodes have no new jobs. With `wait`, which hears of nodes that still have some, until none is left."""
    source, chosen = _choose(observed, names)
    for name in chosen:
        await source.drain(name, reason)
    told: tuple[str, ...] = ()
    while wait is not None:
        states = {it.name: nodestates.state(it.state) for it in await source.nodes()}
        busy = tuple(it for it in chosen if states.get(it) == "draining")
        if not busy:
            break
        if busy != told:
            wait(busy)
            told = busy
        await asyncio.sleep(_PAUSE)
    return chosen


async def resume(observed: Observation, names: Sequence[str]) -> tuple[str, ...]:
    """Let nodes have jobs again."""
    source, chosen = _choose(observed, names)
    for name in chosen:
        await source.resume(name)
    return chosen


def _choose(observed: Observation, names: Sequence[str]) -> tuple[SlurmSource, tuple[str, ...]]:
    """Find the Slurm nodes that are meant, before any of them is changed."""
    if observed.source is None:
        raise Terminal(f"nodes cannot be changed: {observed.absent.get(SLURM, 'there is no Slurm here')}")
    if trouble := observed.troubles.get(SLURM):
        raise SilentError(f"nodes cannot be changed: {trouble}")
    rows = [dict(zip(NODE_COLUMNS, it, strict=True)) for it in worlds.node_rows(observed)]
    in_slurm = {it["id"]: it["id"] for it in rows if it["state"] != "kubernetes"}
    known = {it["kube"]: it["id"] for it in rows if it["id"] in in_slurm} | in_slurm
    if strange := sorted({it for it in names if it not in known}):
        raise Terminal(f"Slurm has no node {', '.join(strange)}", remedy="list them: isthmus nodes")
    return observed.source, tuple(dict.fromkeys(known[it] for it in names))
