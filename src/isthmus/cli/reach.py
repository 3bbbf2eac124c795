"""Which Kubernetes a command means, and a client of it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from isthmus.kube.client import Client

T = TypeVar("T")


def with_client(work: "Callable[[Client], Awaitable[T]]", kubeconfig: Path | None) -> T:
    """Do something with a client of the Kubernetes that is meant."""
    import asyncio

    from isthmus.kube import config
    from isthmus.kube.client import Client

    async def run() -> T:
        async with Client(config.load(kubeconfig or _local_kubeconfig())) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        sys.exit(130)


def _local_kubeconfig() -> Path | None:
    """Take the cluster of this machine where nothing else is set up, and there is just one."""
    import os

    if os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    if (Path(os.environ.get("HOME", "/")) / ".kube" / "config").exists():
        return None
    here = list(_local_clusters())
    return here[0] if len(here) == 1 else None


def _local_clusters() -> "Iterator[Path]":
    from isthmus.local import state
    from isthmus.local.cluster import Cluster

    try:
        found = state.names()
    except OSError:
        return  # only root sees them
    # Without its programs: to know where a cluster is takes none of them.
    yield from (Cluster(state.load(name), {}).plane.admin for name in found)


def published(server: str) -> dict[int, int]:
    """Find the ports of localhost that lead to node ports, if the API server is one of this machine's."""
    from isthmus.local import state
    from isthmus.local.cluster import Cluster

    try:
        clusters = [Cluster(state.load(name), {}) for name in state.names()]
    except (OSError, Terminal):
        return {}
    return {
        port.node: port.host
        for cluster in clusters
        if cluster.plane.url == server
        for port in cluster.settings.publish
    }
