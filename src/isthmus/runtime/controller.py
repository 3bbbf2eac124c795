"""Workers around one reconcile function.

A reconcile function gets a key, looks at the caches (gather), asks a pure function what to do (decide) and does it
(act). It returns when the key is as it should be, or raises what `errors` offers:

    Retry      put the key back after a pause that doubles with every failure in a row
    Wait       put it back after the time that the error names; not a failure
    Terminal   record it and leave the key alone until something adds it again
    any other  a bug: record it with its traceback, then as for Retry

Nothing that happens to one key stops the others. A reconcile that acts in a task group may raise several of these
together; the most urgent decides (a bug, then Retry, then Wait, then Terminal).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic

import structlog

from isthmus.errors import Retry, Terminal, Wait
from isthmus.runtime.backlog import KeyT
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import Queue
from isthmus.tasks import is_cancelled

log = structlog.get_logger()


class Controller(Generic[KeyT]):
    """Calls `reconcile` for the keys of its queue, never twice at a time for one key.

    `limit` bounds one reconcile: a call that hangs would hold its key and its worker forever.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[KeyT], Awaitable[None]],
        *,
        metrics: Metrics,
        workers: int = 4,
        limit: float = 300.0,
    ) -> None:
        self.name = name
        self.queue: Queue[KeyT] = Queue(metrics=metrics.queue(name))
        self._reconcile = reconcile
        self._workers = workers
        self._limit = limit
        self._metrics = metrics.controller(name, workers=workers)
        self._metrics.active.set_function(lambda: len(self.queue.taken))

    def __repr__(self) -> str:
        return f"<Controller {self.name}: {self.queue!r}>"

    async def run(self) -> None:
        """Work until `drain` is called.

        Cancelling stops at once instead: keys under way go back into the queue, and `run` may be called again.
        That is what happens when leadership is lost and won back.
        """
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._workers):
                workers.create_task(self._work())

    def drain(self) -> None:
        """Start no more reconciles; `run` returns when those under way are over."""
        self.queue.close()

    async def _work(self) -> None:
        # What is bound in this task stays in this task: every line that a reconcile logs says what it is about.
        structlog.contextvars.bind_contextvars(controller=self.name)
        async for key in self.queue:
            try:
                structlog.contextvars.bind_contextvars(key=_readable(key))
                await self._attempt(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _attempt(self, key: KeyT) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._limit):
                # In a task of its own: before Python 3.13 a task group that fails in there may swallow our
                # cancellation, or leave one behind that was not requested. Here they are counted right.
                await asyncio.ensure_future(self._reconcile(key))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            self._failed(key, error)  # Something that the reconcile awaited was cancelled, not this worker.
        except Exception as error:
            if is_cancelled():  # The reconcile failed at that moment, and its failure is what we heard of.
                raise asyncio.CancelledError from error
            self._failed(key, error)  # The one place where everything is caught, so that other keys are processed.
        else:
            self.queue.forget(key)
            self._metrics.results["success"].inc()
        finally:
            self._metrics.seconds.observe(time.monotonic() - began)

    def _failed(self, key: KeyT, error: BaseException) -> None:
        """Decide by the class of the error what becomes of the key."""
        decisive = most_urgent(error)
        if isinstance(decisive, Wait):
            self.queue.forget(key)
            self.queue.add(key, after=decisive.after)
            self._metrics.results["requeue_after"].inc()
            log.debug("waiting", reason=_told(error), after=decisive.after)
            return
        self._metrics.results["error"].inc()
        self._metrics.errors.inc()
        if isinstance(decisive, Terminal):
            self.queue.forget(key)
            self._metrics.terminal_errors.inc()
            log.error("failed, will not retry until the object changes", error=_told(error))
            return
        pause = self.queue.retry(key)
        failures = self.queue.failures(key)
        if isinstance(decisive, Retry | TimeoutError):
            log.warning("failed, will retry", error=_told(error), after=pause, failures=failures)
        else:
            self._metrics.panics.inc()
            log.error("unexpected error, will retry", after=pause, exc_info=error)


def most_urgent(error: BaseException) -> BaseException:
    """Return the error that decides what happens next; for a group, the most urgent of its members."""
    return min(leaves(error), key=_urgency)


def _urgency(error: BaseException) -> tuple[int, float]:
    match error:
        case Wait(after=after):
            return 2, after
        case Terminal():
            return 3, 0.0
        case Retry() | TimeoutError():
            return 1, 0.0
        case _:
            return 0, 0.0


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Go through an error, or through all members of a group."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def _told(error: BaseException) -> str:
    return "; ".join(str(leaf) or type(leaf).__name__ for leaf in leaves(error))


def _readable(key: object) -> str:
    """Write a key as people write it: namespace/name."""
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
