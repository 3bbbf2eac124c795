"""Creates a SlurmCluster from a few options, and follows it until it is ready."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from isthmus.bridge.cache.world import NAMESPACES
from isthmus.errors import Retry, Terminal
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Forbidden, NotFound
from isthmus.kube.informer import Informer
from isthmus.model.meta import Key
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster

_TRIES: Final = 30
_PAUSE: Final = 1.0


def manifest(
    name: str,
    namespace: str,
    *,
    workers: int,
    user: dict[str, Any],
    version: str,
    accounting: bool,
    node_port: int,
    resources: dict[str, str],
    shared_root: bool = True,
) -> dict[str, Any]:
    """Make the SlurmCluster for these options."""

    def image(of: str) -> dict[str, Any]:
        return {"image": f"isthmus.local/{of}:{version}"} if version else {}

    nodes: dict[str, Any] = {
        "controller": {"slurmctld": image("slurm")},
        "worker": {"size": workers, "slurmd": image("login"), "resources": resources},
        "login": {
            "size": 1,
            "sshd": image("login"),
            "sshdServiceType": "NodePort",
            "sshdServiceNodePort": node_port,
        },
        "accounting": {"enabled": accounting, "slurmdbd": image("slurm")},
        "rest": {"rest": image("slurm")},
    }
    root = {} if shared_root else {"enabled": False}  # from the image of login nodes
    spec: dict[str, Any] = {"slurmNodes": nodes, "users": [user], "populateJail": root}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def create(client: Client, wanted: dict[str, Any]) -> None:
    """Make the cluster, and its namespace if there is none of that name."""
    namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
    try:
        await client.get(NAMESPACES, namespace)
    except (NotFound, Forbidden):
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    try:
        await _persist(client, wanted)
    except AlreadyExists:
        raise Terminal(
            f"the cluster {namespace}/{name} already exists",
            remedy=f"change it: kubectl edit -n {namespace} slurmcluster {name}",
        ) from None
    except NotFound:
        raise Terminal(
            "this Kubernetes has no SlurmCluster resource: the operator is not installed",
            remedy='helm install isthmus-operator "$(isthmus chart path isthmus-operator)"'
            " -n isthmus-system --create-namespace",
        ) from None


async def _persist(client: Client, wanted: dict[str, Any]) -> None:
    """Create it, and try again while the operator's webhook is still being found: it may have just started."""
    tries = 0
    while True:
        try:
            await client.create(SLURM_CLUSTERS, wanted)
        except Retry:
            tries += 1
            if tries >= _TRIES:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return


async def follow(client: Client, key: Key, done: Callable[[SlurmCluster | None], bool]) -> None:
    """Show a cluster to `done`, as it is and after each change, until that says so; None when it is gone."""
    informer = Informer(client, SLURM_CLUSTERS, namespace=key.namespace, fields=f"metadata.name={key.name}")
    changed = asyncio.Event()
    informer.store.on_change(lambda *_: changed.set())
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(informer.run())
        await informer.synced.wait()
        while not done(informer.store.get(key)):
            await changed.wait()
            changed.clear()
        following.cancel()
