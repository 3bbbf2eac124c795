"""Task groups that lose neither a failure nor a cancellation.

Before Python 3.13, `asyncio.TaskGroup` swallows a cancellation that comes at the moment when one of its tasks
fails: it raises the failure alone. A caller that catches that failure to try again then never ends, and the
process that waits for it hangs until it is killed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

if sys.version_info >= (3, 13):
    TaskGroup = asyncio.TaskGroup
else:

    class TaskGroup(asyncio.TaskGroup):
        """A task group in which a cancellation from outside has the last word, with the failures as its cause."""

        _parent_cancel_requested: bool

        async def __aenter__(self) -> Self:
            self._cancelled_before = _cancellations()
            await super().__aenter__()
            return self

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            in_body = self._parent_cancel_requested
            try:
                await super().__aexit__(kind, error, traceback)
            except BaseExceptionGroup as failed:
                task = asyncio.current_task()
                if task and self._parent_cancel_requested and not in_body:
                    # A task failed when the body was over: the group cancelled us, and has not taken that back.
                    task.uncancel()
                if _cancellations() > self._cancelled_before:
                    raise asyncio.CancelledError from failed
                raise


def is_cancelled() -> bool:
    """Whether the current task was cancelled, though it may not have noticed."""
    return _cancellations() > 0


@asynccontextmanager
async def helpers() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group whose failure leaves as itself, not as a group of one: what `except NotFound` catches."""
    try:
        async with TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
