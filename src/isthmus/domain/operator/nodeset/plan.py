"""Which worker pods should exist: what is missing, and what has no place any more.

    StatefulSet mode   as many as replicas, under the lowest free ordinals; of an elastic NodeSet, the active ones
    DaemonSet mode     one on each Kubernetes node that fits

A pod that leaves keeps its name and its place until it is gone, so its successor is the same node to Slurm. Pods in
which nothing can run any more, or never did, are deleted here. Those that could hold a job are only named: when and
how they go is decided with Slurm (`drains`, `victims`, `rollout`). Nothing here depends on Slurm.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, islice
from typing import Final, TypeVar

import msgspec

from isthmus import names
from isthmus.domain.operator.nodeset.actions import DeletePod
from isthmus.domain.operator.nodeset.identity import Identity, node_of, numbered, on_node
from isthmus.domain.operator.nodeset.placement import Demand
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.errors import Terminal
from isthmus.model.node import Node
from isthmus.model.slinky import NodeSet

K = TypeVar("K", bound=Hashable)

CRASH_PAUSE: Final = 10.0
"""Seconds for which a pod that ended early is kept, so that one that always ends is not recreated in a loop."""


class Plan(msgspec.Struct, frozen=True):
    """Which pods to create, and which to delete."""

    desired: int
    create: tuple[Identity, ...] = ()
    delete: tuple[DeletePod, ...] = ()
    """Pods in which no job can be."""
    unwanted: frozenset[str] = frozenset()
    """Pods that have to be deleted, by name, but may hold jobs."""
    complaints: tuple[str, ...] = ()
    look_again: float | None = None


class Active(msgspec.Struct, frozen=True):
    """The nodes of an elastic NodeSet that are on, by ordinal."""

    kept: frozenset[int]
    """A pod that has one of these stays."""
    startable: frozenset[int]
    """Those of them for which a missing pod is made: Slurm has begun to start the node."""


@dataclass(eq=False, kw_only=True)
class _Draft:
    """A plan as it comes together, and what it is made from."""

    nodeset: NodeSet
    nodes: Mapping[str, Node]
    demand: Demand
    made: Collection[str]
    now: datetime
    active: Active | None = None
    delete: list[DeletePod] = field(default_factory=list)
    unwanted: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    look_again: float | None = None

    def release(self, pod: PodView, why: str) -> None:
        """Delete a pod: at once if nothing can run in it, else when its node is drained."""
        if pod.leaving:
            return
        if not pod.node_name:
            version = pod.pod.metadata.resource_version
            self.delete.append(DeletePod(pod.name, pod.uid, why, version=version))
        else:
            self.unwanted.add(pod.name)

    def bury(self, pod: PodView) -> None:
        """Delete a pod that has ended, so that another can take its place."""
        if pod.leaving:
            return
        created = pod.pod.metadata.creation_timestamp
        age = (self.now - created).total_seconds() if created else CRASH_PAUSE
        if age < CRASH_PAUSE:
            wait = CRASH_PAUSE - age
            self.look_again = wait if self.look_again is None else min(wait, self.look_again)
            return
        phase, told = pod.pod.status.phase, pod.pod.status.message or pod.pod.status.reason
        why = f"it has ended ({phase}{f': {told}' if told else ''})"
        event = f"{phase}DaemonPod" if pod.mode == "DaemonSet" else f"{phase}Pod"
        self.delete.append(DeletePod(pod.name, pod.uid, why, event=event, cause="ended"))

    def done(self, desired: int, create: Iterable[Identity]) -> Plan:
        return Plan(
            desired=desired,
            create=tuple(create),
            delete=tuple(self.delete),
            unwanted=frozenset(self.unwanted),
            complaints=tuple(self.complaints),
            look_again=self.look_again,
        )


def plan(
    nodeset: NodeSet,
    pods: Sequence[PodView],
    *,
    nodes: Mapping[str, Node],
    demand: Demand,
    now: datetime,
    made: Collection[str] = (),
    active: Active | None = None,
) -> Plan:
    """Compare what is there with what should be.

    `made` are names of pods that we have just created and that the cache does not show yet: they are there.
    `active` are the nodes of an elastic NodeSet that are on; None for any other.
    """
    draft = _Draft(nodeset=nodeset, nodes=nodes, demand=demand, made=made, now=now, active=active)
    if nodeset.metadata.deletion_timestamp is not None:
        for pod in pods:
            draft.release(pod, "its NodeSet is being deleted")
        return draft.done(0, ())
    mode = nodeset.spec.scaling_mode
    for pod in pods:
        if pod.mode != mode:
            draft.release(pod, f"the NodeSet is in {mode} mode now")
        elif pod.finished:
            draft.bury(pod)
    mine = [pod for pod in pods if pod.mode == mode]
    if mode == "DaemonSet":
        return _by_node(mine, draft)
    return _by_number(mine, draft) if active is None else _by_power(mine, draft, active)


# StatefulSet mode


def _by_number(pods: Sequence[PodView], draft: _Draft) -> Plan:
    nodeset = draft.nodeset
    taken = {pod.ordinal for pod in pods}
    # Names that are in the way although they carry no ordinal of ours, or belong to pods not yet in the cache.
    there = {pod.name for pod in pods} | set(draft.made)
    unseen = len(there) - len({pod.name for pod in pods})
    for twins in _shared(pods, key=lambda pod: pod.ordinal).values():
        _keep_one(twins, draft, "another pod has its ordinal")
    missing = nodeset.spec.replicas - len(taken) - unseen
    pins = nodeset.status.ordinal_to_node if nodeset.spec.pin_to_node else {}

    def free() -> Iterator[Identity]:
        for ordinal in count():
            if ordinal in taken:
                continue
            identity = numbered(nodeset, ordinal, node=_pin(pins.get(str(ordinal), ""), draft))
            if identity.pod not in there:
                yield identity

    return draft.done(nodeset.spec.replicas, islice(free(), max(0, missing)))


def _by_power(pods: Sequence[PodView], draft: _Draft, active: Active) -> Plan:
    """One pod for each node that Slurm starts or has started."""
    nodeset = draft.nodeset
    taken = {pod.ordinal for pod in pods}
    there = {pod.name for pod in pods} | set(draft.made)
    for twins in _shared(pods, key=lambda pod: pod.ordinal).values():
        _keep_one(twins, draft, "another pod has its ordinal")
    for pod in pods:
        if pod.ordinal not in active.kept:
            draft.release(pod, "its node is powered down")
    pins = nodeset.status.ordinal_to_node if nodeset.spec.pin_to_node else {}
    wanted = (
        numbered(nodeset, ordinal, node=_pin(pins.get(str(ordinal), ""), draft))
        for ordinal in sorted(active.startable - taken)
    )
    desired = len((active.kept & taken) | active.startable)
    return draft.done(desired, [it for it in wanted if it.pod not in there])


def _pin(node: str, draft: _Draft) -> str:
    """Keep a pin only as long as the pod could run there."""
    found = draft.nodes.get(node)
    return node if found is not None and draft.demand.may_start(found) is None else ""


# DaemonSet mode


def _by_node(pods: Sequence[PodView], draft: _Draft) -> Plan:
    there = _shared(pods, key=lambda pod: node_of(pod.pod))
    taken = {pod.name for pod in pods} | set(draft.made)
    wanted = _identities(draft, there=there)
    create = []
    for name, identity in wanted.items():
        mine = there.pop(name, [])
        if not mine and identity.pod not in taken:
            create.append(identity)
            continue
        alive = [pod for pod in mine if not pod.leaving and not pod.finished]
        renamed = [pod for pod in alive if pod.slurm_name != identity.hostname]
        for pod in renamed:
            draft.release(pod, f"node {name} is called {identity.hostname} in Slurm now")
        _keep_one([pod for pod in alive if pod not in renamed], draft, f"another pod runs on node {name}")
    for name, mine in there.items():
        for pod in mine:
            # A pod that was bound to a node that is gone is Kubernetes' to remove; nor may we know the node yet.
            if name in draft.nodes or not pod.node_name:
                draft.release(pod, f"it may no longer run on node {name}")
    return draft.done(len(wanted), create)


def _identities(draft: _Draft, *, there: Mapping[str, Sequence[PodView]]) -> dict[str, Identity]:
    """Which nodes have a pod or get one, and its identity."""
    wanted: dict[str, Identity] = {}
    hostnames: dict[str, str] = {}
    demand = draft.demand
    for name, node in sorted(draft.nodes.items()):
        if not (demand.may_stay(node) if name in there else demand.may_start(node) is None):
            continue
        try:
            identity = on_node(draft.nodeset, node)
        except Terminal as error:
            draft.complaints.append(str(error))
            continue
        other = hostnames.setdefault(identity.hostname, name)
        if other == name:
            wanted[name] = identity
        else:
            draft.complaints.append(
                f"nodes {other} and {name} would both be {identity.hostname} in Slurm, so {name} gets no pod: "
                f"annotate one of them with {names.NODE_HOSTNAME_ANNOTATION}"
            )
    return wanted


# Both


def _shared(pods: Sequence[PodView], *, key: Callable[[PodView], K]) -> dict[K, list[PodView]]:
    found: dict[K, list[PodView]] = {}
    for pod in pods:
        found.setdefault(key(pod), []).append(pod)
    return found


def _keep_one(pods: Sequence[PodView], draft: _Draft, why: str) -> None:
    """Keep the oldest that is ready, and release the others."""
    alive = sorted((pod for pod in pods if not pod.leaving and not pod.finished), key=_seniority)
    for twin in alive[1:]:
        draft.release(twin, why)


def _seniority(pod: PodView) -> tuple[bool, datetime, str]:
    created = pod.pod.metadata.creation_timestamp
    return not pod.ready, created or datetime.max.replace(tzinfo=UTC), pod.name
