"""Which Kubernetes a command means, and a client of it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from isthmus.kube.client import Client

T = TypeVar("T")


def with_client(work: "Callable[[Client], Awaitable[T]]", kubeconfig: Path | None) -> T:
    """Do something with a client of the Kubernetes that is meant."""
    from isthmus.kube import config
    from isthmus.kube.client import Client

    async def connected() -> T:
        async with Client(config.load(kubeconfig or local_kubeconfig())) as client:
            return await work(client)

    return run(connected())


def run(work: "Coroutine[Any, Any, T]") -> T:
    """Do it; who presses Ctrl-C ends it, without a traceback."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(130)


def is_set_up(kubeconfig: Path | None) -> bool:
    """Whether anything here names a Kubernetes; there is none on most login nodes."""
    import os

    if kubeconfig or os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    return _usual_kubeconfig().exists() or local_kubeconfig() is not None


def namespace(kubeconfig: Path | None) -> str:
    """The namespace that the kubeconfig means."""
    from isthmus.kube import config

    return config.load(kubeconfig or local_kubeconfig()).namespace


def local_kubeconfig() -> Path | None:
    """Take the cluster of this machine where nothing else is set up, and there is just one."""
    import os

    if os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    if _usual_kubeconfig().exists():
        return None
    here = list(_local_clusters())
    return here[0] if len(here) == 1 else None


def _usual_kubeconfig() -> Path:
    import os

    return Path(os.environ.get("HOME", "/")) / ".kube" / "config"


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
