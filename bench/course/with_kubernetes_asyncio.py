"""kubernetes-asyncio on the course."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubernetes_asyncio import client, config  # type: ignore[import-not-found]
from kubernetes_asyncio.watch import Watch  # type: ignore[import-not-found]

from bench.course.common import run


class KubernetesAsyncio:
    """The client."""

    def __init__(self, api: client.CoreV1Api) -> None:
        self._api = api

    async def list_pods(self, namespace: str) -> int:
        """List, without pages: its default."""
        listing = await self._api.list_namespaced_pod(namespace)
        return sum(1 for pod in listing.items if _read(pod))

    async def watch_pods(self, namespace: str, version: str, count: int) -> None:
        """Watch."""
        async with Watch().stream(
            self._api.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=300
        ) as events:
            async for event in events:
                count -= _read(event["object"])
                if count == 0:
                    return


def _read(pod: client.V1Pod) -> bool:
    return bool(pod.metadata.name and pod.status.phase)


@asynccontextmanager
async def opened() -> AsyncIterator[KubernetesAsyncio]:
    """Open it."""
    await config.load_kube_config()
    async with client.ApiClient() as api:
        yield KubernetesAsyncio(client.CoreV1Api(api))


if __name__ == "__main__":
    run(opened)
