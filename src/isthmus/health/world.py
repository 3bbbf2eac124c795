"""What the health loop knows: caches that it shares with the operator, and health records, policies and checks.

    operator.world   clusters, NodeSets, worker pods, machines, each cluster's Slurm; no Secret that nobody names
    here             NodeHealths, HealthPolicies, ActiveChecks and the Jobs that run them

A cluster is known by the key of its Controller, here as in `slurms`.
"""

import hashlib
import re
from collections.abc import Hashable
from typing import Any, Final, Protocol, TypeVar

from isthmus import names
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Index, Store
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck
from isthmus.model.base import Kind
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS, HealthPolicy, NodeHealth
from isthmus.model.meta import HasMeta, Key
from isthmus.model.node import Node
from isthmus.model.workload import OWN_JOBS, OwnJob
from isthmus.operator.world import ClusterCaches

T = TypeVar("T", bound=HasMeta)

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)
_MAX_NAME_CHARS: Final = 253


class _Manager(Protocol):
    def cache(self, name: str, cache: Any) -> None: ...


class HealthWorld:
    """The caches of the health loop, of one namespace or of all."""

    def __init__(self, operator: ClusterCaches) -> None:
        self.operator = operator
        self._informers: dict[str, Informer[Any]] = {}
        self.healths: Store[NodeHealth] = self._follow(NODE_HEALTHS, indexes={"cluster": _cluster_of})
        self.policies: Store[HealthPolicy] = self._follow(HEALTH_POLICIES)
        self.checks: Store[ActiveCheck] = self._follow(ACTIVE_CHECKS, indexes={"cluster": _cluster_of_check})
        self.check_jobs: Store[OwnJob] = self._follow(OWN_JOBS, labels=names.CHECK_LABEL)
        self._written: dict[Key, NodeHealth] = {}
        self._named: dict[str, set[str]] = {}
        operator.kube_nodes.on_change(self._node_changed)

    @property
    def kube(self) -> Client:
        return self.operator.kube

    @property
    def in_touch(self) -> bool:
        """Whether Kubernetes answers: only then does "not there" mean that it is gone."""
        return self.operator.in_touch and all(it.contact.in_touch for it in self._informers.values())

    def register(self, manager: _Manager) -> None:
        """Let a manager keep all caches up to date, also the operator's."""
        self.operator.register(manager)
        within = f" in {self.operator.namespace}" if self.operator.namespace else ""
        for name, informer in self._informers.items():
            manager.cache(f"{name}{within}", informer)

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
        """Whether there is a health record of a node."""
        key = Key(cluster.namespace, record_name(cluster.name, node))
        return key in self.healths or key in self._written

    # Machines

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

    def _follow(self, kind: Kind[T], *, labels: str = "", indexes: dict[str, Index[Any]] | None = None) -> Store[T]:
        informer = Informer(self.kube, kind, indexes=indexes, namespace=self.operator.namespace, labels=labels)
        self._informers[f"{kind.plural} of health"] = informer
        return informer.store


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


def _carried_name(node: Node) -> str:
    meta = node.metadata
    return meta.labels.get(names.NODE_NAME_LABEL) or meta.annotations.get(names.NODE_NAME_LABEL) or ""
