"""Removes a SlurmCluster, and waits until nothing of it runs: its workers are drained first, its pods end last.

SlurmCluster (drains its workers) ──► its parts ──► their StatefulSets and Deployments ──► their pods ──► its data
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.kube.conditions import PROGRESSING
from isthmus.domain.languages.prose import some
from isthmus.domain.operator.manifests.common import MANAGER
from isthmus.inspect.clusteraccess import claims_selector
from isthmus.inspect.clustercreation import follow
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.meta import ObjectMeta, Partial, condition
from isthmus.model.objects import DAEMONSETS, DEPLOYMENTS, SECRETS, STATEFULSETS
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster
from isthmus.model.storage import CLAIMS

Say = Callable[[str], None]

_PARTS: Final[tuple[Kind[Any], ...]] = (CONTROLLERS, ACCOUNTINGS, RESTAPIS, LOGINSETS, NODESETS)
_WORKLOADS: Final[tuple[Kind[Any], ...]] = (STATEFULSETS, DEPLOYMENTS, DAEMONSETS)
_PODS: Final = Kind(Partial, "v1", "pods", "Pod")
_MANAGED: Final = f"{names.MANAGED_BY_LABEL}={MANAGER}"
_PAUSE: Final = 0.5


class Belongings(msgspec.Struct, frozen=True):
    """What is deleted with a cluster, as it was before the cluster was deleted."""

    uids: frozenset[str]
    """Of its parts and their workloads."""
    marks: frozenset[tuple[str, str]]
    """Labels of their pods: component and instance."""


async def remove(client: Client, cluster: SlurmCluster, say: Say, *, wait: bool = True) -> None:
    """Delete a cluster, and wait until nothing of it is left but what outlives it."""
    going = await _belongings(client, cluster) if wait else None
    await client.delete(SLURM_CLUSTERS, cluster.metadata.key)
    say(f"Deleting cluster {cluster.metadata.key}; its workers finish their jobs first.")
    if going is not None:
        await follow(client, cluster.metadata.key, _teller(say))
        await _until_gone(client, cluster.metadata.namespace, going, say)


async def remove_data(client: Client, cluster: SlurmCluster) -> None:
    """Delete what outlives a cluster that is gone: its claims, its database's password, its login nodes' keys.

    While its parts are there, they make what is deleted again; so `remove` comes before this.
    """
    namespace, selector = cluster.metadata.namespace, claims_selector(cluster)
    await client.delete_all(CLAIMS, namespace=namespace, labels=selector)
    await client.delete_all(SECRETS, namespace=namespace, labels=f"{selector},{_MANAGED}")


def _teller(say: Say) -> Callable[[SlurmCluster | None], bool]:
    """Say what is being waited for whenever that changes, until the cluster is gone."""
    said = ""

    def tell(cluster: SlurmCluster | None) -> bool:
        nonlocal said
        held = condition(cluster.status.conditions, PROGRESSING) if cluster else None
        if held and held.reason == "Deleting" and held.message != said:
            said = held.message
            say(f"  … {said}")
        return cluster is None

    return tell


async def _belongings(client: Client, cluster: SlurmCluster) -> Belongings:
    """Find the cluster's parts and their workloads; what others made beside it is theirs."""
    namespace = cluster.metadata.namespace
    owners, found = {cluster.metadata.uid}, list[ObjectMeta]()
    for kinds in (_PARTS, _WORKLOADS):
        metas = [it.metadata for kind in kinds for it in (await client.list(kind, namespace=namespace)).items]
        mine = [it for it in metas if any(owner.uid in owners for owner in it.owner_references)]
        owners |= {it.uid for it in mine}
        found += mine
    return Belongings(frozenset(it.uid for it in found), frozenset(map(_marks, found)))


async def _until_gone(client: Client, namespace: str, going: Belongings, say: Say) -> None:
    said = ""
    while left := await _left(client, namespace, going):
        told = f"  … {len(left)} {'are' if len(left) > 1 else 'is'} still ending: {some(left)}"
        if told != said:
            say(told)
            said = told
        await asyncio.sleep(_PAUSE)


async def _left(client: Client, namespace: str, going: Belongings) -> list[str]:
    """Name what is still there: workloads, then pods."""
    left = []
    for kind in (*_PARTS, *_WORKLOADS):
        listing = await client.list(kind, namespace=namespace)
        left += [f"{kind.name} {it.metadata.name}" for it in listing.items if it.metadata.uid in going.uids]
    pods = (await client.list(_PODS, namespace=namespace, labels=_MANAGED)).items
    return left + [f"pod {it.metadata.name}" for it in pods if _marks(it.metadata) in going.marks]


def _marks(meta: ObjectMeta) -> tuple[str, str]:
    return meta.labels.get(names.COMPONENT_LABEL, ""), meta.labels.get(names.INSTANCE_LABEL, "")
