"""A task group for a helper of one's own, whose failure leaves as itself and not as a group of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def helpers() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group. If it fails, raise the first failure: what `except NotFound` can catch."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
