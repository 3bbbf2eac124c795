"""Waiting in the loop of a test: the asynchronous sisters of `tests.bed.waiting`, and as there, one way for all.

    eventually(observe, …)       what is seen of a cache
    eventually_read(read, …)     what a server answers

A timeout says what was waited for and what was seen last. An exception is not "not yet": it is raised at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from isthmus.kube.informer import Informer
from tests.bed.waiting import story

I = TypeVar("I", bound=Informer[Any])  # noqa: E741 - as in Informer
T = TypeVar("T")

WITHIN: Final = 120.0
"""Seconds."""
_LOOK, _READ = 0.01, 0.05


async def eventually(
    observe: Callable[[], T],
    what: str = "it to become true",
    *,
    holds: Callable[[T], object] = bool,
    within: float = WITHIN,
) -> T:
    """Look until what is seen holds, and return it."""

    async def read() -> T:
        return observe()

    return await _wait(read, what, holds=holds, within=within, pause=_LOOK)


async def eventually_read(
    read: Callable[[], Awaitable[T]],
    what: str = "it to become true",
    *,
    holds: Callable[[T], object] = bool,
    within: float = WITHIN,
) -> T:
    """Read until the answer holds, and return it."""
    return await _wait(read, what, holds=holds, within=within, pause=_READ)


async def _wait(
    read: Callable[[], Awaitable[T]], what: str, *, holds: Callable[[T], object], within: float, pause: float
) -> T:
    seen: object = "nothing"
    try:
        async with asyncio.timeout(within) as limit:
            while True:
                value = await read()
                if holds(value):
                    return value
                seen = value
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(story(what, within, seen if isinstance(seen, str) else repr(seen))) from None


@asynccontextmanager
async def running(informer: I) -> AsyncIterator[I]:
    """Run an informer, from its first sync to the end of the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        try:
            async with asyncio.timeout(60):
                await informer.synced.wait()
            yield informer
        finally:
            task.cancel()
