"""The work queue: hands the keys of a backlog to workers, and spaces out what fails.

    async for key in queue:
        try:
            ...                     # work on the key
            queue.forget(key)       # it went well: the next failure starts from a short pause again
        except SomeError:
            queue.retry(key)        # put it back, later every time
        finally:
            queue.done(key)

The invariants of `backlog` hold. Keys are dropped, not worked off, when the queue is closed: the next process
finds what is to be done by looking at the world, so a queue holds nothing worth saving.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from typing import Generic

import msgspec

from isthmus.runtime.backlog import Backlog, KeyT
from isthmus.runtime.metrics import QueueMetrics

# The highest power of two that matters; a larger exponent would only overflow.
_MAX_EXPONENT = 60


class Backoff(msgspec.Struct, frozen=True):
    """The pause after the n-th failure of one key in a row: it doubles, up to a limit.

    There is no jitter, because `Pace` already spreads keys that fail together.
    """

    first: float = 0.05
    limit: float = 60.0

    def delay(self, failures: int) -> float:
        """Return the pause after so many failures in a row, the first being 1."""
        return float(min(self.limit, self.first * 2 ** min(failures - 1, _MAX_EXPONENT)))


class Pace:
    """How fast keys are retried in all: `per_second`, after a burst that is not delayed."""

    def __init__(self, *, per_second: float = 50.0, burst: int = 200) -> None:
        self._interval = 1.0 / per_second
        self._burst = self._interval * burst
        self._full_at = 0.0

    def reserve(self, now: float) -> float:
        """Claim the next place and return how long to wait for it."""
        # The bucket is full again at `_full_at`; each place taken moves that moment on by one interval.
        self._full_at = max(self._full_at, now) + self._interval
        return max(0.0, self._full_at - now - self._burst)


class Queue(Generic[KeyT]):
    """Keys for any number of workers in one event loop.

    Of keys that are due, the one with the higher priority is taken first, so keys of low priority may wait for as
    long as there are others: the lists that fill caches at the start belong there.
    """

    def __init__(
        self,
        *,
        metrics: QueueMetrics,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backlog: Backlog[KeyT] = Backlog()
        self._backoff = backoff
        self._pace = pace or Pace()
        self._clock = clock
        self._failures: dict[KeyT, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._closed = False
        self._metrics = metrics
        metrics.watch(depth=self._depth, running=self._running)

    def __len__(self) -> int:
        return len(self._backlog)

    def __repr__(self) -> str:
        return f"<Queue: {self._backlog!r}, {len(self._failures)} failing{', closed' if self._closed else ''}>"

    @property
    def taken(self) -> Collection[KeyT]:
        """The keys that are being worked on."""
        return self._backlog.taken.keys()

    def add(self, key: KeyT, *, after: float = 0.0, priority: int = 0) -> None:
        """Ask for a key, now or after so many seconds."""
        if self._closed:
            return
        now = self._clock()
        self._metrics.adds.inc()
        self._backlog.add(key, now, due=now + after, priority=priority)
        self._rouse(now)

    def retry(self, key: KeyT) -> float:
        """Put a key back that failed, and return the pause: longer with every failure in a row."""
        self._metrics.retries.inc()
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = max(self._backoff.delay(failures), self._pace.reserve(self._clock()))
        self.add(key, after=pause)
        return pause

    def forget(self, key: KeyT) -> None:
        self._failures.pop(key, None)

    def failures(self, key: KeyT) -> int:
        """How often in a row the key has failed."""
        return self._failures.get(key, 0)

    def done(self, key: KeyT) -> None:
        """Say that the work on a key is over; every key that was taken needs this, whatever came of it."""
        now = self._clock()
        self._metrics.work.observe(now - self._backlog.taken[key])
        self._backlog.done(key, now)
        self._rouse(now)

    def close(self) -> None:
        """Hand out nothing more: each worker's loop ends when it asks for its next key."""
        self._closed = True
        if self._alarm:
            self._alarm.cancel()
        while self._waiters:
            self._wake_one()

    def take(self) -> KeyT | None:
        """Hand out a key that is due, without waiting."""
        now = self._clock()
        taken = None if self._closed else self._backlog.take(now)
        if taken is None:
            return None
        key, due = taken
        self._metrics.wait.observe(now - due)
        return key

    def __aiter__(self) -> AsyncIterator[KeyT]:
        return self

    async def __anext__(self) -> KeyT:
        while (key := self.take()) is None:
            if self._closed:
                raise StopAsyncIteration
            self._set_alarm()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # We were woken for a key that we will not take: another worker must.
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        return key

    def _rouse(self, now: float) -> None:
        """Wake as many workers as there are keys for, and see to it that the next one is woken in time."""
        if not self._waiters:
            return
        for _ in range(min(self._backlog.ready_count(now), len(self._waiters))):
            self._wake_one()
        self._set_alarm()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_alarm(self) -> None:
        due = self._backlog.next_due()
        if due is None or self._closed:
            return
        if self._alarm and not self._alarm.cancelled() and self._alarm_at <= due:
            return
        if self._alarm:
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, due - self._clock()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._rouse(self._clock())

    def _depth(self) -> int:
        return self._backlog.ready_count(self._clock())

    def _running(self) -> list[float]:
        now = self._clock()
        return [now - since for since in self._backlog.taken.values()]
