"""What is read over and over: one request each, and the text that follows from the answer.

A reading that fails leaves the text of the one before. One that takes longer than the pause is not repeated while
it is under way.
"""

import time
from collections.abc import Awaitable, Callable, Iterator

import structlog

from isthmus.errors import IsthmusError
from isthmus.exporter.metrics import CollectorMetrics
from isthmus.tasks import TaskGroup

log = structlog.get_logger()

Clock = Callable[[], float]


class Periodic:
    """Reads something over and over."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[str]],
        *,
        pause: Callable[[], Awaitable[None]],
        metrics: CollectorMetrics,
        inflight: int = 1,
        clock: Clock = time.monotonic,
    ) -> None:
        """`read` returns the families as text; `pause` is over when it is time for the next reading."""
        self.name = name
        self._read = read
        self._pause = pause
        self._metrics = metrics
        self._inflight = inflight
        self._clock = clock
        self._under_way = 0
        self._text = ""
        self._as_of: float | None = None
        self.trouble = ""

    @property
    def age(self) -> float | None:
        """Seconds since what is known was asked for; None before the first answer."""
        return None if self._as_of is None else self._clock() - self._as_of

    def text(self, _now: float) -> Iterator[str]:
        yield self._text

    async def run(self) -> None:
        """Read until cancelled."""
        async with TaskGroup() as group:
            while True:
                if self._under_way < self._inflight:
                    group.create_task(self.read())
                else:
                    self._metrics.skipped.inc()
                await self._pause()

    async def read(self) -> None:
        began = self._clock()
        self._under_way += 1
        self._metrics.begin(self._under_way)
        try:
            text = await self._read()
        except IsthmusError as error:
            self._metrics.fail()
            if self.trouble != str(error):
                log.warning("could not read, keeping what was known", collector=self.name, error=str(error))
            self.trouble = str(error)
        else:
            self._text, self._as_of, self.trouble = text, began, ""
        finally:
            self._under_way -= 1
            self._metrics.end(self._clock() - began, under_way=self._under_way)
