"""Gathers what Kubernetes knows of Slurm clusters: custom resources, pods, claims and warnings.

Everything is read at the same time, and what cannot be read is noted instead: a command shows what it can.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from isthmus import names
from isthmus.domain.diagnosis.facts import (
    ClaimFact,
    ClusterFacts,
    Ending,
    Hold,
    PartFact,
    PodFact,
)
from isthmus.domain.operator import partnames
from isthmus.errors import IsthmusError
from isthmus.inspect.seen import PODS, SeenPod, main_container
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model import slinky, soperator
from isthmus.model.base import Kind
from isthmus.model.event import EVENTS, Event
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.meta import Condition, HasMeta, Key, condition
from isthmus.model.objects import CONFIGMAPS, ConfigMap
from isthmus.model.storage import CLAIMS, Claim
from isthmus.operator.clusters.nebius_nodesets import PARENT_ANNOTATION

_PATIENCE: Final = 20.0

T = TypeVar("T")


NEBIUS_NODESET: Final = f"NodeSet.{soperator.GROUP}"
"""What findings call NodeSets of slurm.nebius.ai, as kubectl does."""

_MANAGED: Final = f"{names.MANAGED_BY_LABEL}=isthmus"

_PARTS: Final[tuple[Kind[Any], ...]] = (
    slinky.CONTROLLERS,
    slinky.NODESETS,
    slinky.LOGINSETS,
    slinky.ACCOUNTINGS,
    slinky.RESTAPIS,
    JAILED_CONFIGS,
)


class ClusterReader:
    """Lists, each of which may fail by itself."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        self.client = client
        self.namespace = namespace
        """Where to look; empty for everywhere."""
        self.troubles: dict[str, str] = {}

    async def list(self, kind: Kind[T], what: str, *, labels: str = "", fields: str = "") -> tuple[T, ...]:
        """List a kind; nothing, and a note, if that fails. A kind that does not exist has no objects."""
        found: tuple[T, ...] = ()
        with suppress(NotFound):
            namespace = self.namespace if kind.namespaced else ""
            asking = self.client.list(kind, namespace=namespace, labels=labels, fields=fields)
            listing = await self.attempt(what, asking)
            found = listing.items if listing else ()
        return found

    async def attempt(self, what: str, asking: Awaitable[T]) -> T | None:
        """Wait for an answer, but not forever."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await asking
        except NotFound:
            raise
        except Forbidden as error:
            self.troubles[what] = f"{error.what}; --namespace limits the request to one namespace"
        except IsthmusError as error:
            self.troubles[what] = error.what
        except TimeoutError:
            self.troubles[what] = f"no answer within {_PATIENCE:.0f} s"
        return None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    clusters: tuple[soperator.SlurmCluster, ...]
    nebius_nodesets: tuple[soperator.NodeSet, ...] = ()
    """NodeSets of slurm.nebius.ai, whose kind is called as the other one."""
    parts: Mapping[str, tuple[Any, ...]]
    """By kind."""
    pods: tuple[SeenPod, ...]
    claims: tuple[Claim, ...]
    warnings: tuple[Event, ...]
    configs: tuple[ConfigMap, ...]


async def find(reader: ClusterReader) -> Found:
    """List everything at the same time."""
    async with asyncio.TaskGroup() as tasks:
        clusters = tasks.create_task(reader.list(soperator.SLURM_CLUSTERS, "SlurmClusters"))
        nebius = tasks.create_task(reader.list(soperator.NEBIUS_NODESETS, "NodeSets"))
        parts = {kind.name: tasks.create_task(reader.list(kind, f"{kind.name}s")) for kind in _PARTS}
        pods = tasks.create_task(reader.list(PODS, "pods", labels=_MANAGED))
        claims = tasks.create_task(reader.list(CLAIMS, "volume claims"))
        warnings = tasks.create_task(reader.list(EVENTS, "Events", fields="type=Warning"))
        configs = tasks.create_task(reader.list(CONFIGMAPS, "ConfigMaps", labels=_MANAGED))
    return Found(
        clusters=clusters.result(),
        nebius_nodesets=nebius.result(),
        parts={name: task.result() for name, task in parts.items()},
        pods=pods.result(),
        claims=claims.result(),
        warnings=warnings.result(),
        configs=configs.result(),
    )


def clusters_of(found: Found, *, now: float) -> tuple[ClusterFacts, ...]:
    """Sort what was found by cluster, also those that were put together from parts by hand."""
    named = {cluster.metadata.key: cluster for cluster in found.clusters}
    keys = [*named, *(it.metadata.key for it in found.parts["Controller"] if it.metadata.key not in named)]
    return tuple(_facts(key, named.get(key), found, now) for key in sorted(keys))


def _facts(key: Key, cluster: soperator.SlurmCluster | None, found: Found, now: float) -> ClusterFacts:
    parts: list[PartFact] = [part_fact("SlurmCluster", cluster, now)] if cluster else []
    members: list[HasMeta] = []
    for kind, listed in found.parts.items():
        mine = [it for it in listed if it.metadata.namespace == key.namespace and _belongs(kind, it, key, found)]
        members += mine
        parts += [part_fact(kind, it, now) for it in mine]
    parts += [
        part_fact(NEBIUS_NODESET, it, now)
        for it in found.nebius_nodesets
        if it.metadata.namespace == key.namespace and _names(it, key, found)
    ]
    instances = {it.metadata.name for it in members}
    pods = [
        it
        for it in found.pods
        if it.metadata.namespace == key.namespace
        and (
            it.metadata.labels.get(names.CLUSTER_LABEL) == key.name
            or it.metadata.labels.get(names.INSTANCE_LABEL) in instances
        )
    ]
    config_key = Key(key.namespace, partnames.config(key.name))
    config = next((it for it in found.configs if it.metadata.key == config_key), None)
    return ClusterFacts(
        key=key,
        kind="SlurmCluster" if cluster else "Controller",
        controller=key.name,
        parts=tuple(parts),
        pods=tuple(pod_fact(it, found.warnings, now) for it in sorted(pods, key=lambda it: it.metadata.name)),
        claims=tuple(_claims(key, cluster, found)),
        config=_fingerprint(config.data.get("slurm.conf", "")) if config else "",
        config_age=_age_of(config, now),
        now=now,
    )


def _belongs(kind: str, part: Any, cluster: Key, found: Found) -> bool:
    if kind == "Controller":
        return bool(part.metadata.name == cluster.name)
    if kind == "JailedConfig":
        return bool(part.metadata.labels.get(names.INSTANCE_LABEL) == cluster.name)
    if kind == "Accounting":
        controller = next((it for it in found.parts["Controller"] if it.metadata.key == cluster), None)
        reference = controller.spec.accounting_ref if controller else None
        return reference is not None and reference.name == part.metadata.name
    return bool(part.spec.controller_ref.name == cluster.name)


def _names(nodeset: soperator.NodeSet, cluster: Key, found: Found) -> bool:
    """Whether a NodeSet of slurm.nebius.ai is of a cluster: that which it names, or the only one there is."""
    if named := nodeset.spec.cluster_name or nodeset.metadata.annotations.get(PARENT_ANNOTATION, ""):
        return named == cluster.name
    return [it.metadata.key for it in found.clusters if it.metadata.namespace == cluster.namespace] == [cluster]


def part_fact(kind: str, part: Any, now: float) -> PartFact:
    conditions: tuple[Condition, ...] = part.status.conditions
    made = part.metadata.creation_timestamp
    return PartFact(
        kind=kind,
        name=part.metadata.name,
        generation=part.metadata.generation,
        observed_generation=part.status.observed_generation,
        conditions=conditions,
        age=now - made.timestamp() if made else None,
    )


def pod_fact(pod: SeenPod, warnings: Iterable[Event], now: float) -> PodFact:
    status = pod.status
    scheduled = condition(status.conditions, "PodScheduled")
    ready = condition(status.conditions, "Ready")
    images = {it.name: it.image for it in (*pod.spec.containers, *pod.spec.init_containers)}
    containers = (*status.container_statuses, *status.init_container_statuses)
    mounting = [
        it.message
        for it in warnings
        if it.involved_object.kind == "Pod"
        and it.involved_object.name == pod.metadata.name
        and it.metadata.namespace == pod.metadata.namespace
        and it.reason in {"FailedMount", "FailedAttachVolume"}
    ]
    waits = status.phase == "Pending" and bool(pod.spec.node_name)
    return PodFact(
        name=pod.metadata.name,
        component=pod.component,
        part=pod.metadata.labels.get(names.INSTANCE_LABEL, ""),
        main=main_container(pod),
        ready=ready is not None and ready.status == "True",
        phase=status.phase,
        node=pod.spec.node_name,
        host=pod.metadata.labels.get(names.POD_HOSTNAME_LABEL) or pod.spec.hostname or pod.metadata.name,
        unplaced=scheduled.message if scheduled and scheduled.status == "False" else "",
        unmounted=mounting[-1] if mounting and waits else "",
        holds=tuple(
            Hold(
                container=it.name,
                reason=it.state.waiting.reason,
                message=it.state.waiting.message,
                image=images.get(it.name, ""),
            )
            for it in containers
            if it.state.waiting and it.state.waiting.reason not in {"", "PodInitializing", "ContainerCreating"}
        ),
        endings=tuple(
            Ending(
                container=it.name,
                code=ended.exit_code,
                restarts=it.restart_count,
                reason=ended.reason if ended.reason != "Error" else "",
                message=ended.message.strip(),
            )
            for it in containers
            if (ended := it.last_state.terminated)
        ),
        leaving=pod.metadata.deletion_timestamp is not None,
        age=now - status.start_time.timestamp() if status.start_time else None,
    )


def _claims(key: Key, cluster: soperator.SlurmCluster | None, found: Found) -> Iterable[ClaimFact]:
    prefix = (cluster.status.name_prefix or "") if cluster else ""
    jail = f"{prefix}jail"
    sources = cluster.spec.volume_sources if cluster else ()
    for source in sources:
        if source["name"] == "jail":
            jail = source.get("persistentVolumeClaim", {}).get("claimName", "")
    for claim in found.claims:
        meta = claim.metadata
        labels = meta.labels
        mine = labels.get(names.CLUSTER_LABEL) == key.name or labels.get(names.INSTANCE_LABEL) == key.name
        if meta.namespace != key.namespace or not (mine or (cluster and meta.name == jail)):
            continue
        notes = [
            it.message
            for it in found.warnings
            if it.involved_object.kind == "PersistentVolumeClaim"
            and it.involved_object.name == meta.name
            and it.metadata.namespace == meta.namespace
        ]
        yield ClaimFact(
            name=meta.name,
            phase=claim.status.phase,
            modes=claim.spec.access_modes,
            shared=meta.name == jail,
            storage_class=claim.spec.storage_class_name or "",
            note=notes[-1] if notes and claim.status.phase != "Bound" else "",
        )


def _age_of(config: ConfigMap | None, now: float) -> float | None:
    """For how many seconds the files have been as they are."""
    changed = config.metadata.annotations.get(names.CHANGED_AT_ANNOTATION, "") if config else ""
    return now - datetime.fromisoformat(changed).timestamp() if changed else None


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
