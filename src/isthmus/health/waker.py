"""Which events wake the health loop of a cluster.

One look is for all nodes of a cluster, so changes are gathered for a moment: a thousand findings are one decision.
And what changes no decision wakes none: heartbeats, loads, jobs that come and go on nodes without a record.
"""

from typing import Final, Protocol

from isthmus import names
from isthmus.domain.operator.nodeset.drains import is_shut
from isthmus.health.world import HealthWorld
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.dra import ResourceSlice
from isthmus.model.health import HealthPolicy, NodeHealth
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slinky import Controller
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.workload import OwnJob
from isthmus.operator.nodesets.gatherer import is_ready

_DELAY_S: Final = 0.1
_DELAY_PER_NODE_S: Final = 0.0004
_MAX_DELAY_S: Final = 0.5
"""For so long changes are gathered, longer where there are many nodes."""


class _Add(Protocol):
    def __call__(self, key: Key, *, after: float = 0.0) -> None: ...


class Waker:
    """Adds the keys of clusters to a queue."""

    def __init__(self, world: HealthWorld, add: _Add) -> None:
        self._world = world
        self._add = add
        self._slurm_facts: dict[tuple[Key, str], tuple[object, ...]] = {}
        operator = world.operator
        operator.controllers.on_change(self._controller_changed)
        operator.pods.on_change(self._pod_changed)
        operator.kube_nodes.on_change(self._node_changed)
        operator.slurms.on_change(self._slurm_changed)
        world.healths.on_change(self._health_changed)
        world.policies.on_change(self._policy_changed)
        world.checks.on_change(self._check_changed)
        world.check_jobs.on_change(self._job_changed)
        world.slices.on_change(self._slice_changed)

    def wake(self, cluster: Key) -> None:
        """Look at a cluster soon."""
        slurm = self._world.operator.slurms.of(cluster)
        nodes = len(slurm.nodes) if slurm else 0
        self._add(cluster, after=min(_MAX_DELAY_S, _DELAY_S + _DELAY_PER_NODE_S * nodes))

    def _controller_changed(self, key: Key, old: Controller | None, new: Controller | None) -> None:
        if old is None or new is None:
            self.wake(key)

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _pod_facts(old) == _pod_facts(new):
            return
        for cluster in {_cluster(it) for it in (old, new) if it} - {None}:
            if cluster is not None:
                self.wake(cluster)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _node_facts(old) == _node_facts(new):
            return  # a heartbeat
        self._machine_changed(key.name, *(it.metadata.labels.get(names.NODE_NAME_LABEL) for it in (old, new) if it))

    def _slice_changed(self, _: Key, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if _taints(old) == _taints(new):
            return
        for machine in {it.spec.node_name for it in (old, new) if it}:
            node = self._world.operator.kube_nodes.get(Key("", machine))
            self._machine_changed(machine, node.metadata.labels.get(names.NODE_NAME_LABEL) if node else None)

    def _machine_changed(self, machine: str, *named: str | None) -> None:
        """Wake the clusters whose nodes are on a machine, or are `named` as it is in Slurm."""
        operator = self._world.operator
        clusters = {_cluster(it) for it in operator.pods.by("node", machine)}
        for cluster in operator.controllers:
            slurm = operator.slurms.of(cluster)
            if slurm is not None and any((name or machine) in slurm.nodes for name in named):
                clusters.add(cluster)
        for found in clusters:
            if found is not None:
                self.wake(found)

    def _slurm_changed(self, cluster: Key, name: str | None) -> None:
        if name is None:
            self._slurm_facts = {it: facts for it, facts in self._slurm_facts.items() if it[0] != cluster}
            self.wake(cluster)
            return
        slurm = self._world.operator.slurms.of(cluster)
        node = slurm.nodes.get(name) if slurm else None
        known = self._world.knows(cluster, name)
        facts = _slurm_facts(node, full=known) if node else ()
        if self._slurm_facts.get((cluster, name)) == facts:
            return
        if node is None:
            self._slurm_facts.pop((cluster, name), None)
        else:
            self._slurm_facts[cluster, name] = facts
        self.wake(cluster)

    def _health_changed(self, key: Key, old: NodeHealth | None, new: NodeHealth | None) -> None:
        for it in (old, new):
            if it is not None:
                self.wake(Key(key.namespace, it.spec.cluster))

    def _policy_changed(self, key: Key, old: HealthPolicy | None, new: HealthPolicy | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return  # what we reported ourselves
        for cluster in self._world.operator.controllers:
            if cluster.namespace == key.namespace:
                self.wake(cluster)

    def _check_changed(self, key: Key, old: ActiveCheck | None, new: ActiveCheck | None) -> None:
        if old is not None and new is not None and (old.status.nodes, old.spec) == (new.status.nodes, new.spec):
            return
        for it in (old, new):
            if it is not None:
                self.wake(Key(key.namespace, it.spec.slurm_cluster_ref_name))

    def _job_changed(self, key: Key, *_: OwnJob | None) -> None:
        for health in self._world.healths.values():
            if health.status.test == key.name and health.metadata.namespace == key.namespace:
                self.wake(Key(key.namespace, health.spec.cluster))


def _cluster(pod: Pod) -> Key | None:
    """The Controller of a worker pod; None if the pod is not a worker."""
    labels = pod.metadata.labels
    if labels.get(names.COMPONENT_LABEL) != "worker" or names.CLUSTER_LABEL not in labels:
        return None
    return Key(pod.metadata.namespace, labels[names.CLUSTER_LABEL])


def _pod_facts(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    return (
        meta.uid,
        meta.annotations.get(names.POD_CORDON_ANNOTATION),
        pod.leaving,
        pod.finished,
        pod.spec.node_name,
        is_ready(pod),
    )


def _node_facts(node: Node) -> tuple[object, ...]:
    meta = node.metadata
    return (
        meta.uid,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations.get(names.NODE_NAME_LABEL),
        meta.annotations.get(names.NODE_CORDON_REASON_ANNOTATION),
        meta.annotations.get(names.NODE_TOPOLOGY_ANNOTATION),
        node.spec,
        tuple((it.type, it.status, it.reason, it.message) for it in node.status.conditions),
    )


def _taints(slice_: ResourceSlice | None) -> list[tuple[object, ...]]:
    return [(it.name, it.taints) for it in slice_.spec.devices if it.taints] if slice_ else []


def _slurm_facts(node: SlurmNode, *, full: bool) -> tuple[object, ...]:
    """What of a node bears on a decision; whether it is busy does only where something is known of it."""
    facts = (is_shut(node), node.reason, node.reason_changed_at, node.reservation, node.boot_time, node.comment)
    return (*facts, node.state, node.slurmd_start_time) if full else facts
