"""The nodes of a Slurm cluster as a change stream, for callers that need no jobs.

A list of nodes costs next to nothing while none changed, so one question every two seconds is enough. Who
has just changed something calls `hurry`, and is told within a quarter of a second.

`as_of` is when the latest successful reading began. A caller that drained a node decides by a state that was read
after that: until then the node may have begun a job that we do not know.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

from isthmus.errors import IsthmusError
from isthmus.hooks import Faults
from isthmus.model.slurm import Node
from isthmus.slurm.client import Client
from isthmus.slurm.contact import Contact
from isthmus.slurm.restarts import Restarts
from isthmus.slurm.store import Store

_IDLE: Final = 2.0
_QUICK: Final = 0.25
_HURRY_SECONDS: Final = 10.0
_RESTARTS_PAUSE: Final = 6.0
_BACKOFF_FIRST: Final = 0.2
_MAX_BACKOFF_S: Final = 5.0
_PATIENCE: Final = 15.0
"""A little more than slurmrestd waits for slurmctld before it gives up with an error of its own."""

_OVERLAP: Final = 5
"""Seconds before the last answer from which on changes are asked for.

slurmctld marks a change with the second in which it was asked for it. Until it holds all locks and makes the
change, an answer without it may have gone out, with a later stamp.
"""

_DRAIN: Final = "DRAIN"

Clock = Callable[[], float]


class NodeReader:
    """Keeps `nodes` as Slurm has them, each time that it is asked to read."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock = time.monotonic,
        restarted: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`restarted` is asked before a drain is taken to be over: slurmctld may have forgotten it in a crash."""
        self.nodes = Store[str, Node](failed=Faults("Slurm nodes"))
        self.as_of: float | None = None
        """When the latest successful reading began, by the clock; None before the first."""
        self._client = client
        self._clock = clock
        self._restarted = restarted
        self._since: int | None = None

    async def read(self) -> bool:
        """Read all nodes if one changed since the last time; say whether that was so."""
        began = self._clock()
        listing = await self._client.nodes(newer_than=self._since, patience=_PATIENCE)
        while listing and self._restarted and self._opens(listing.nodes) and await self._restarted():
            began = self._clock()
            listing = await self._client.nodes(patience=_PATIENCE)
        self.as_of = began
        if listing is None:
            return False
        self._since = listing.last_update - _OVERLAP
        names = {node.name for node in listing.nodes}
        for gone in [name for name in self.nodes if name not in names]:
            self.nodes.drop(gone)
        for node in listing.nodes:
            self.nodes.put(node.name, node)
        return True

    def _opens(self, nodes: Iterable[Node]) -> bool:
        """Whether one of them was drained when it was read last, and is not now."""
        return any(
            _DRAIN in before.state and _DRAIN not in node.state
            for node in nodes
            if (before := self.nodes.get(node.name))
        )

    def read_everything(self) -> None:
        """Do not rely on stamps the next time: slurmctld may be another, with another clock."""
        self._since = None


class NodeWatch:
    """Follows the nodes of one cluster while `run` runs."""

    def __init__(self, client: Client, *, idle: float = _IDLE) -> None:
        self._client = client
        self._reader = NodeReader(client, restarted=self._look_for_restart)
        self._idle = idle
        self._contact = Contact(in_touch=False, since=time.monotonic(), trouble="not contacted yet")
        self._hooks: list[Callable[[], None]] = []
        self._restart_hooks: list[Callable[[], None]] = []
        self._hurry_until = 0.0
        self._hurried = asyncio.Event()
        self._restarts_due = 0.0
        self._restarts = Restarts()
        self.nodes = self._reader.nodes

    @property
    def contact(self) -> Contact:
        """Whether Slurm answers at the moment."""
        return self._contact

    @property
    def as_of(self) -> float | None:
        """When the latest successful reading began; None before the first."""
        return self._reader.as_of

    def on_contact(self, hook: Callable[[], None]) -> None:
        """Call this whenever contact is lost or found again."""
        self._hooks.append(hook)

    def on_restart(self, hook: Callable[[], None]) -> None:
        """Call this when slurmctld has been restarted, or has taken another configuration."""
        self._restart_hooks.append(hook)

    def hurry(self) -> None:
        """Ask at once, and often for some seconds, because something is expected to change."""
        self._hurry_until = time.monotonic() + _HURRY_SECONDS
        self._restarts_due = 0.0
        self._hurried.set()

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        backoff = _BACKOFF_FIRST
        while True:
            self._hurried.clear()
            began = time.monotonic()
            try:
                if time.monotonic() >= self._restarts_due:
                    await self._look_for_restart()
                await self._reader.read()
            except IsthmusError as error:
                self._note(str(error))
                # Another one may answer next: ask before it has run for so long that it looks like the old one.
                self._restarts_due = 0.0
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF_S)
                continue
            self._note("")
            backoff = _BACKOFF_FIRST
            # A slow Slurm is left alone for a good part of the time.
            least = max(_QUICK, time.monotonic() - began)
            await asyncio.sleep(least)
            if time.monotonic() >= self._hurry_until:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._idle - least)):
                        await self._hurried.wait()

    async def _look_for_restart(self) -> bool:
        self._restarts_due = time.monotonic() + _RESTARTS_PAUSE
        noticed = self._restarts.noticed(await self._client.diagnose())
        if noticed:
            self._reader.read_everything()
            for hook in self._restart_hooks:
                hook()
        return noticed

    def _note(self, trouble: str) -> None:
        in_touch = not trouble
        changed = in_touch != self._contact.in_touch
        since = time.monotonic() if changed else self._contact.since
        self._contact = Contact(in_touch=in_touch, since=since, trouble=trouble)
        if changed:
            for hook in self._hooks:
                hook()
