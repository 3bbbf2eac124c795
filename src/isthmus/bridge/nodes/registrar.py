"""Creates nodes in Slurm, many at a time with as few requests as possible.

For each request slurmctld builds its tables of nodes again, so that a node costs the more the more there are: 17 ms
with 3,600 of them. One line may name hundreds of nodes that are alike, and costs little more than a line for one.

    callers ──► waiting ──► one line per kind of node ──► made ──► one request that writes the records of all

A line is taken as a whole or not at all. If Slurm refuses one, its halves are tried, and so on, so that each caller
gets its own answer and no node fails because of another.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from isthmus.domain.bridge import noderecord
from isthmus.domain.bridge.noderecord import Record, Wanted
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.model.slurm import NodeChange
from isthmus.slurm.client import Client

_PER_LINE: Final = 500
"""Nodes in one line: slurmctld answers no other request while it creates them, which takes a tenth of a second."""

_UNSEEN: Final = 10.0
"""For so many seconds a node that we made may be missing in what was read of Slurm."""

_CATCH_UP: Final = 1.0

_Order = tuple[Wanted, "asyncio.Future[None]"]


class Registrar:
    """Collects requests while one is under way."""

    def __init__(self, slurm: Client) -> None:
        self._slurm = slurm
        self._made: dict[str, float] = {}
        self._waiting: list[_Order] = []
        self._turn = asyncio.Lock()

    async def register(self, wanted: Wanted) -> None:
        """Make a node and write its record. Raises `AlreadyExists` if the name is taken."""
        if time.monotonic() - self._made.get(wanted.name, -_UNSEEN) < _UNSEEN:
            raise Wait(f"{wanted.name} was just created and has not been read yet", after=_CATCH_UP)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, done))
        await asyncio.sleep(0)  # Callers that are about to ask may do so first.
        async with self._turn:
            if not done.done():
                await self._serve()
        await done

    def forget(self, name: str) -> None:
        """Record that a node was deleted, and may be made again."""
        self._made.pop(name, None)

    async def _serve(self) -> None:
        """Serve all waiting callers, one kind of node after the other."""
        orders, self._waiting = self._waiting, []
        long_ago = time.monotonic() - _UNSEEN
        self._made = {name: at for name, at in self._made.items() if at > long_ago}
        kinds: dict[Record, list[_Order]] = {}
        for order in orders:
            kinds.setdefault(order[0].record, []).append(order)
        try:
            for alike in kinds.values():
                for start in range(0, len(alike), _PER_LINE):
                    await self._make(alike[start : start + _PER_LINE])
        finally:
            for _, done in orders:
                if not done.done():  # We were cancelled: others must not wait for an answer that never comes.
                    done.set_exception(Retry("registering nodes was interrupted"))
                done.exception()  # Who asked may be gone as well.

    async def _make(self, orders: Sequence[_Order]) -> None:
        nodes = [wanted for wanted, _ in orders]
        try:
            await self._slurm.create_node(noderecord.line(nodes))
            self._made |= dict.fromkeys((node.name for node in nodes), time.monotonic())
            await self._slurm.update_nodes(
                [node.name for node in nodes], NodeChange(extra=nodes[0].record.write(), reason="")
            )
        except IsthmusError as error:
            if isinstance(error, Terminal) and len(orders) > 1:
                middle = len(orders) // 2
                await self._make(orders[:middle])
                await self._make(orders[middle:])
                return
            for _, done in orders:
                done.set_exception(error)
        else:
            for _, done in orders:
                done.set_result(None)
