"""Waiting for something to become true, with an error that says what did not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from isthmus.kube.informer import Informer

I = TypeVar("I", bound=Informer[Any])  # noqa: E741 - as in Informer


async def eventually(what: Callable[[], object], *, within: float = 120) -> None:
    """Wait until `what` is true."""
    try:
        async with asyncio.timeout(within):
            while not what():  # noqa: ASYNC110 - what becomes true is not ours to signal
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not become true within {within} s") from None


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
