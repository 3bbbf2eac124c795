"""The course that every library runs against the same API server, each in a process of its own.

    with_NAME.py list NAMESPACE                    all pods of a namespace, to objects whose fields can be read
    with_NAME.py watch NAMESPACE VERSION COUNT     the changes since a version, which the server has in stock

Answers with the best times in JSON. Every library is given uvloop, an open connection and a round to warm up on.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import uvloop

from bench.stopwatch import Times, measured

_ROUNDS = 3
_ENOUGH = 10.0
"""Seconds after which no further round is run: the slower libraries would keep us for minutes."""


class Runner(Protocol):
    """A library, opened."""

    async def list_pods(self, namespace: str) -> int:
        """List pods and read a field of each; return how many there were."""

    async def watch_pods(self, namespace: str, version: str, count: int) -> None:
        """Watch until so many changes came, and read a field of each."""


def run(opened: Callable[[], AbstractAsyncContextManager[Runner]]) -> None:
    """Run what the command line asks for."""
    match sys.argv[1:]:
        case ["list", namespace]:
            best = uvloop.run(_list(opened, namespace))
        case ["watch", namespace, version, count]:
            best = uvloop.run(_watch(opened, namespace, version, int(count)))
        case _:
            sys.exit(__doc__)
    print(json.dumps({"elapsed": best.elapsed, "processor": best.processor}))


async def _list(opened: Callable[[], AbstractAsyncContextManager[Runner]], namespace: str) -> Times:
    async with opened() as runner:

        async def round_() -> None:
            if not await runner.list_pods(namespace):
                raise RuntimeError(f"there are no pods in {namespace}")

        await runner.list_pods("default")
        return await _best(round_, "list")


async def _watch(
    opened: Callable[[], AbstractAsyncContextManager[Runner]], namespace: str, version: str, count: int
) -> Times:
    async with opened() as runner:
        await runner.watch_pods(namespace, version, 10)
        return await _best(lambda: runner.watch_pods(namespace, version, count), "watch")


async def _best(round_: Callable[[], Awaitable[None]], what: str) -> Times:
    best = Times(float("inf"), float("inf"))
    spent = 0.0
    for _ in range(_ROUNDS):
        with measured(what) as times:
            await round_()
        best = Times(min(best.elapsed, times.elapsed), min(best.processor, times.processor))
        spent += times.elapsed
        if spent > _ENOUGH:
            break
    return best
