"""kr8s on the course."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import kr8s.asyncio  # type: ignore[import-not-found]

from bench.course.common import run


class Kr8s:
    """The client."""

    def __init__(self, api: Any) -> None:
        self._api = api

    async def list_pods(self, namespace: str) -> int:
        """List, in pages of a hundred: it knows no other way."""
        return len([pod async for pod in self._api.get("pods", namespace=namespace) if _read(pod)])

    async def watch_pods(self, namespace: str, version: str, count: int) -> None:
        """Watch."""
        async with aclosing(self._api.async_watch("pods", namespace=namespace, since=version)) as events:
            async for _, pod in events:
                count -= _read(pod)
                if count == 0:
                    return


def _read(pod: Any) -> bool:
    return bool(pod.metadata.name and pod.status.phase)


@asynccontextmanager
async def opened() -> AsyncIterator[Kr8s]:
    """Open it."""
    yield Kr8s(await kr8s.asyncio.api())


if __name__ == "__main__":
    run(opened)
