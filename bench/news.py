"""Waiting for what watches tell."""

import asyncio
from collections.abc import Callable


class News:
    """Something may have changed: whoever waits looks again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self, *_: object) -> None:
        self._event.set()

    async def until(self, done: Callable[[], bool], *, within: float) -> bool:
        """Whether it was done within so many seconds."""
        try:
            async with asyncio.timeout(within):
                while not done():
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            return False
        return True
