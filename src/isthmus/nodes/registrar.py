"""Makes nodes in Slurm, all that are wanted at the moment with as few requests as possible.

For each request slurmctld builds its tables of nodes anew, so that a node costs the more the more there are: 17 ms
with 3,600 of them. One line may name hundreds of nodes that are alike, and costs little more than a line for one.

    callers ──► waiting ──► one line per kind of node ──► made ──► one request that writes the records of all

A line is taken as a whole or not at all. If Slurm refuses one, each of its nodes is tried alone, so that each
caller gets the answer that is his.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from isthmus.domain import noderecord
from isthmus.domain.noderecord import Record, Wanted
from isthmus.errors import IsthmusError, Retry, Terminal
from isthmus.model.slurm import NodeChange
from isthmus.slurm.client import Client

_PER_LINE: Final = 500
"""Nodes in one line: slurmctld answers nobody else while it makes them, which takes it a tenth of a second."""

_Order = tuple[Wanted, "asyncio.Future[None]"]


class Registrar:
    """Gathers what is asked for while a request is under way."""

    def __init__(self, slurm: Client) -> None:
        self._slurm = slurm
        self._waiting: list[_Order] = []
        self._turn = asyncio.Lock()

    async def register(self, wanted: Wanted) -> None:
        """Make a node and write its record. Raises `AlreadyExists` if the name is taken."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, done))
        await asyncio.sleep(0)  # Callers that are about to ask may do so first.
        async with self._turn:
            if not done.done():
                await self._serve()
        await done

    async def _serve(self) -> None:
        """Serve everybody who waits now, one kind of node after the other."""
        orders, self._waiting = self._waiting, []
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
            await self._slurm.update_nodes(
                [node.name for node in nodes], NodeChange(extra=nodes[0].record.write(), reason="")
            )
        except IsthmusError as error:
            if isinstance(error, Terminal) and len(orders) > 1:
                for order in orders:
                    await self._make([order])
                return
            for _, done in orders:
                done.set_exception(error)
        else:
            for _, done in orders:
                done.set_result(None)
