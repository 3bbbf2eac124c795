"""What the health loop knows: caches that it shares with the operator, and health records, policies and checks.

    operator.world   clusters, NodeSets, worker pods, machines, each cluster's Slurm; no Secret that nobody names
    here             NodeHealths, HealthPolicies, ActiveChecks and the Jobs that run them, devices of drivers (DRA)

A cluster is known by the key of its Controller, here as in `slurms`.
"""

import hashlib
import re
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from isthmus import names
from isthmus.health.caches import MoreCaches
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck
from isthmus.model.dra import RESOURCE_SLICES, Device, ResourceSlice
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS, HealthPolicy, NodeHealth
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.workload import OWN_JOBS, OwnJob
from isthmus.operator.caches import CacheManager
from isthmus.operator.world import ClusterCaches

if TYPE_CHECKING:
    from isthmus.kube.store import Store

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)
_MAX_NAME_CHARS: Final = 253


class HealthWorld(MoreCaches):
    """The caches of the health loop, of one namespace or of all."""

    def __init__(self, operator: ClusterCaches) -> None:
        super().__init__(operator, owner="health")
        self.healths: Store[NodeHealth] = self._follow(NODE_HEALTHS, indexes={"cluster": _cluster_of})
        self.policies: Store[HealthPolicy] = self._follow(HEALTH_POLICIES)
        self.checks: Store[ActiveCheck] = self._follow(ACTIVE_CHECKS, indexes={"cluster": _cluster_of_check})
        self.check_jobs: Store[OwnJob] = self._follow(OWN_JOBS, labels=names.CHECK_LABEL)
        self.slices: Store[ResourceSlice] = self._follow(
            RESOURCE_SLICES, indexes={"machine": _machine_of}, optional=True
        )
        self._written: dict[Key, NodeHealth] = {}
        self._named: dict[str, set[str]] = {}
        operator.kube_nodes.on_change(self._node_changed)

    def register(self, manager: CacheManager) -> None:
        """Let a manager keep all caches up to date, also the operator's."""
        self.operator.register(manager)
        super().register(manager)

    # Health records, as of our own last writes

    def wrote(self, health: NodeHealth) -> None:
        """Remember what a write returned, until the cache shows it: decisions must not be made twice."""
        self._written[health.metadata.key] = health

    def healths_of(self, cluster: Key) -> dict[str, NodeHealth]:
        """The health records of a cluster, by the names of nodes in Slurm."""
        found = {it.spec.node: it for it in self.healths.by("cluster", cluster)}
        for key, written in list(self._written.items()):
            if int(written.metadata.resource_version or 0) <= self.healths.version:
                del self._written[key]
            elif _cluster_of(written) == (cluster,):
                found[written.spec.node] = written
        return found

    def knows(self, cluster: Key, node: str) -> bool:
        key = Key(cluster.namespace, record_name(cluster.name, node))
        return key in self.healths or key in self._written

    # Machines

    def devices_of(self, machine: str) -> Iterator[Device]:
        """The devices that drivers publish of a machine."""
        return (device for it in self.slices.by("machine", machine) for device in it.spec.devices)

    def external_machine(self, slurm_node: str) -> Node | None:
        """Find the Kubernetes node of an external node: that which carries its name in Slurm, or has it."""
        if named := self._named.get(slurm_node):
            return self.operator.kube_nodes.get(Key("", min(named)))
        node = self.operator.kube_nodes.get(Key("", slurm_node))
        return node if node is not None and not _carried_name(node) else None

    def external_name(self, machine: str) -> str:
        """What a Kubernetes node would be called in Slurm as an external node."""
        node = self.operator.kube_nodes.get(Key("", machine))
        return (_carried_name(node) if node else "") or machine

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        was, now = (_carried_name(node) if node else "" for node in (old, new))
        if was and was != now:
            self._named[was].discard(key.name)
            if not self._named[was]:
                del self._named[was]
        if now:
            self._named.setdefault(now, set()).add(key.name)


def record_name(cluster: str, node: str) -> str:
    """Name the health record of a node. Slurm allows names that Kubernetes does not; such a one gets a hash."""
    name = f"{cluster}.{node}"
    if _NAME.fullmatch(name) and len(name) <= _MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:10]
    plain = re.sub(r"[^a-z0-9.-]+", "-", name.lower())[: _MAX_NAME_CHARS - len(mark) - 1]
    return f"{plain}-{mark}"


def _cluster_of(health: NodeHealth) -> tuple[Hashable, ...]:
    return (Key(health.metadata.namespace, health.spec.cluster),)


def _cluster_of_check(check: ActiveCheck) -> tuple[Hashable, ...]:
    return (Key(check.metadata.namespace, check.spec.slurm_cluster_ref_name),)


def _machine_of(slice_: ResourceSlice) -> tuple[Hashable, ...]:
    return (slice_.spec.node_name,) if slice_.spec.node_name else ()


def _carried_name(node: Node) -> str:
    meta = node.metadata
    return meta.labels.get(names.NODE_NAME_LABEL) or meta.annotations.get(names.NODE_NAME_LABEL) or ""
