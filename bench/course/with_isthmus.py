"""Isthmus on the course. Its watch also keeps an indexed store up to date, as an informer does."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from bench.course.common import run
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.store import Store
from isthmus.kube.watch import watch
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod


class Isthmus:
    """The client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_pods(self, namespace: str) -> int:
        """List."""
        listing = await self._client.list(PODS, namespace=namespace)
        return sum(1 for pod in listing.items if pod.metadata.name and pod.status.phase)

    async def watch_pods(self, namespace: str, version: str, count: int) -> None:
        """Watch."""
        store: Store[Pod] = Store({"node": lambda pod: (pod.spec.node_name,)})
        async with aclosing(watch(self._client, PODS, version=version, namespace=namespace)) as batches:
            async for batch in batches:
                for change in batch.changes:
                    if isinstance(change, Key):
                        store.remove(change)
                    else:
                        store.put(change)
                count -= len(batch.changes)
                if count <= 0:
                    return


@asynccontextmanager
async def opened() -> AsyncIterator[Isthmus]:
    """Open it."""
    async with Client(load()) as client:
        yield Isthmus(client)


if __name__ == "__main__":
    run(opened)
