"""Looks at Slurm shortly before scrapes: at what slurmctld counts, and at what has changed if that has.

scrapes ─► rhythm ─► diag ─► pulse ─► poller: states, nodes
"""

import asyncio
import time
from contextlib import suppress
from typing import Final

from isthmus.domain.exporter.pulse import pulse
from isthmus.domain.exporter.rhythm import LEAST, Rhythm
from isthmus.model.slurm import Statistics
from isthmus.slurm.poller import Poller

_IDLE_EACH: Final = 0.012
_PAUSE_EACH: Final = 0.002
"""For each node, seconds between two lists of nodes: while nothing that is counted changes, and while it does.

Also where no node has changed, slurmctld goes through all of them before it says so.
"""


class Looks:
    """When to look, and what for."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._rhythm = Rhythm(time.monotonic())
        self._was_scraped = asyncio.Event()
        self._pulse: tuple[int, ...] = ()
        self._changed_at = 0.0
        """When the pulse was last seen to have changed."""
        self._nodes_asked = self._nodes_as_of = 0.0
        """When nodes were asked about, and the change that was the reason."""

    def scraped(self, who: str) -> None:
        """Take note that somebody has read the page."""
        read = self._poller.as_of("states") or 0.0
        too_early = self._poller.is_behind or read < self._changed_at
        self._rhythm.scraped(who, time.monotonic(), too_early=too_early)
        self._was_scraped.set()

    def take(self, told: Statistics) -> None:
        """Have lists read if there may be something new in them."""
        found, now = pulse(told), time.monotonic()
        if found != self._pulse:
            self._pulse, self._changed_at = found, now
            self._poller.nudge("states")
        pause = _PAUSE_EACH if self._nodes_as_of < self._changed_at else _IDLE_EACH
        if now >= self._nodes_asked + pause * len(self._poller.nodes):
            self._nodes_asked, self._nodes_as_of = now, self._changed_at
            self._poller.nudge("nodes")

    def missed(self) -> None:
        """Slurm did not answer: let the poller find out, which asks again soon."""
        self._poller.nudge()

    async def until_next(self) -> None:
        """Wait until it is time for the next look; soon, while Slurm does not answer."""
        looked = time.monotonic()
        while (left := self._due(looked) - time.monotonic()) > 0:
            self._was_scraped.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._was_scraped.wait()

    def _due(self, looked: float) -> float:
        return self._rhythm.next_look(looked) if self._poller.contact.in_touch else looked + LEAST
