"""The status of the bridge: who leads, whether Slurm answers, what waits, what runs, what is wrong."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.config import Config
from isthmus.domain.kube import selectors
from isthmus.errors import IsthmusError
from isthmus.inspect.returned import Returned, returned
from isthmus.inspect.snapshot import Snapshot
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model.lease import LEASES, Lease
from isthmus.model.meta import Key, condition
from isthmus.model.pod import Pod

_DRAINED: Final = frozenset({"DRAIN", "DOWN", "FAIL"})


class Leader(msgspec.Struct, frozen=True):
    """Who leads one kind of process. `renewed` is in seconds ago; one that has not renewed in time is gone."""

    process: str
    lease: str
    holder: str
    renewed: float | None
    alive: bool


class Slurm(msgspec.Struct, frozen=True):
    """Whether Slurm answers, and which one it is."""

    answers: bool
    cluster: str = ""
    release: str = ""
    api: str = ""
    trouble: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """Pods that wait for one reason, the longest of them for so many seconds."""

    reason: str
    pods: int
    longest: float
    example: str


class Nodes(msgspec.Struct, frozen=True):
    """Nodes as both sides see them; with names where a user may want to look."""

    kubernetes: int
    slurm: int
    registered: int
    """Kubernetes nodes that are labelled as external and known to Slurm."""
    unregistered: tuple[str, ...]
    """Those that are labelled, but not known to Slurm."""
    drained: tuple[str, ...]
    """Slurm nodes behind which there is a Kubernetes node, and that take no jobs."""
    unmapped: tuple[str, ...]
    """Slurm nodes behind which there is no Kubernetes node."""


class Status(msgspec.Struct, frozen=True):
    """Everything that `isthmus bridge status` shows."""

    scheduler: str
    leaders: tuple[Leader, ...]
    slurm: Slurm
    waiting: tuple[Waiting, ...]
    bound: int
    """Living pods of ours that have a node."""
    jobs: Mapping[str, int]
    """Jobs of ours by state."""
    nodes: Nodes
    policies: int
    warnings: tuple[str, ...]
    troubles: Mapping[str, str]
    returned: tuple[Returned, ...] = ()
    """Allocations of the last hour that Kubernetes could not use."""

    @property
    def well(self) -> bool:
        """Whether nothing needs attention."""
        return self.slurm.answers and all(leader.alive for leader in self.leaders) and not self.troubles


async def status(snapshot: Snapshot, config: Config, *, now: float) -> Status:
    world = snapshot.world
    troubles = dict(snapshot.troubles)
    try:
        leaders = await _leaders(world, snapshot.namespace, now)
    except IsthmusError as error:
        leaders = ()
        troubles["leases"] = error.what
    try:
        gone_back = await returned(world.kube, now=now)
    except IsthmusError as error:
        gone_back = ()
        troubles["events"] = error.what
    ours = [pod for pod in world.pods.values() if world.ours(pod) and not pod.finished]
    return Status(
        scheduler=world.scheduler_name,
        leaders=leaders,
        slurm=await _slurm(snapshot),
        waiting=tuple(_waiting(ours, now)),
        bound=sum(1 for pod in ours if pod.bound),
        jobs=Counter(it.job.job_state[0] if it.job.job_state else "UNKNOWN" for it in world.jobs),
        nodes=_nodes(world),
        returned=gone_back,
        policies=len(world.policies),
        warnings=() if "policies" in troubles else tuple(_warnings(world, config, ours)),
        troubles={what: why for what, why in troubles.items() if what != "slurm"},
    )


async def _leaders(world: World, namespace: str, now: float) -> tuple[Leader, ...]:
    found = []
    for process, name in (("scheduler", world.scheduler_name), ("controllers", names.CONTROLLERS_LEASE)):
        found += [_leader(process, lease, now) for lease in await _leases(world.kube, name, namespace)]
    return tuple(found)


async def _leases(client: Client, name: str, namespace: str) -> tuple[Lease, ...]:
    """Find the Leases of this name; only in `namespace` if listing all is forbidden."""
    try:
        # In which namespace the bridge runs is not known here, but the names of its Leases are.
        return (await client.list(LEASES, fields=f"metadata.name={name}")).items
    except Forbidden:
        with suppress(NotFound):
            return (await client.get(LEASES, Key(namespace, name)),)
        return ()


def _leader(process: str, lease: Lease, now: float) -> Leader:
    spec = lease.spec
    renewed = now - datetime.fromisoformat(spec.renew_time).timestamp() if spec.renew_time else None
    holder = spec.holder_identity or ""
    fresh = renewed is not None and renewed <= (spec.lease_duration_seconds or 0)
    return Leader(process, str(lease.metadata.key), holder, renewed, alive=bool(holder) and fresh)


async def _slurm(snapshot: Snapshot) -> Slurm:
    if trouble := snapshot.troubles.get("slurm"):
        return Slurm(answers=False, trouble=trouble)
    server = await snapshot.world.slurm.server()
    return Slurm(answers=True, cluster=server.cluster, release=server.release, api=f"v0.0.{server.api}")


def _waiting(pods: list[Pod], now: float) -> Iterator[Waiting]:
    by_reason: dict[str, list[Pod]] = {}
    for pod in pods:
        if not pod.bound and not pod.leaving:
            told = condition(pod.status.conditions, "PodScheduled")
            by_reason.setdefault(told.reason if told and told.reason else "NotTold", []).append(pod)
    for reason, found in sorted(by_reason.items(), key=lambda it: (-len(it[1]), it[0])):
        oldest = min(found, key=lambda pod: _created(pod, now))
        yield Waiting(reason, len(found), now - _created(oldest, now), str(oldest.metadata.key))


def _created(pod: Pod, now: float) -> float:
    made = pod.metadata.creation_timestamp
    return made.timestamp() if made else now


def _nodes(world: World) -> Nodes:
    external = [node for node in world.nodes.values() if names.EXTERNAL_NODE_LABEL in node.metadata.labels]
    registered = [node for node in external if world.map.slurm_name(node.metadata.name) in world.slurm_nodes]
    unmapped = [name for name in world.slurm_nodes if world.map.kube_name(name) is None]
    drained = [name for name, node in world.slurm_nodes.items() if not _DRAINED.isdisjoint(node.state)]
    return Nodes(
        kubernetes=len(world.nodes),
        slurm=len(world.slurm_nodes),
        registered=len(registered),
        unregistered=tuple(sorted({it.metadata.name for it in external} - {it.metadata.name for it in registered})),
        drained=tuple(sorted(set(drained) - set(unmapped))),
        unmapped=tuple(sorted(unmapped)),
    )


def _warnings(world: World, config: Config, pods: list[Pod]) -> Iterator[str]:
    """The namespaces that use Slurm without a policy."""
    concerned = {pod.metadata.namespace for pod in pods} | set(config.managed_namespaces)
    if config.managed_namespace_selector is not None:
        concerned |= {
            it.metadata.name
            for it in world.namespaces.values()
            if selectors.matches(config.managed_namespace_selector, it.metadata.labels)
        }
    for name in sorted(concerned):
        if warning := world.grant(name, "default").warning:
            yield warning
