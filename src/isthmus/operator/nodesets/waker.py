"""Which events wake a NodeSet.

A look costs thirty milliseconds for a thousand pods, so changes that come in crowds (pods that start, nodes that
get jobs) are gathered for a moment, longer where there are many pods; and what changes no decision wakes none.
"""

from typing import Final, Protocol

from isthmus import names
from isthmus.domain.kube import podtrouble
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests.worker import COMPONENT
from isthmus.model.meta import HasMeta, Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.powerstate import NodeSetPowerState
from isthmus.model.slinky import Controller, NodeSet
from isthmus.operator.world import World

_POD_DELAY_S: Final = 0.1
_SLURM_DELAY_S: Final = 0.25
"""For so long, changes are gathered."""

_DELAY_PER_POD_S: Final = 0.0003
"""Each pod of a NodeSet adds this, so that looking takes a tenth of the time at most."""


class _Add(Protocol):
    def __call__(self, key: Key, *, after: float = 0.0) -> None: ...


class Waker:
    """Adds the keys of NodeSets to a queue."""

    def __init__(self, world: World, add: _Add) -> None:
        self._world = world
        self._add = add
        world.nodesets.on_change(self._nodeset_changed)
        world.power_states.on_change(self._power_changed)
        world.controllers.on_change(self._controller_changed)
        world.pods.on_change(self._pod_changed)
        world.claims.on_change(self._labelled_changed)
        world.secrets.on_change(self._secret_changed)
        world.services.on_change(self._shared_changed)
        world.budgets.on_change(self._shared_changed)
        # Host keys of one NodeSet are known on all, and somebody may change the settings of sshd.
        world.secrets.on_change(self._shared_changed)
        world.configmaps.on_change(self._shared_changed)
        world.kube_nodes.on_change(self._node_changed)
        world.slurms.on_change(self._slurm_changed)

    def _all_of(self, controller: Key, *, after: float = 0.0) -> None:
        for nodeset in self._world.nodesets_of(controller):
            self._add(nodeset.metadata.key, after=after)

    def _nodeset_changed(self, key: Key, old: NodeSet | None, new: NodeSet | None) -> None:
        if old is None or new is None or _spec_facts(old) != _spec_facts(new):
            self._add(key)
        other = new or old
        controller = self._world.controller_key(other) if other else None
        if controller and (old is None or new is None):
            self._all_of(controller, after=_POD_DELAY_S)  # it shares objects with them

    def _power_changed(self, key: Key, old: NodeSetPowerState | None, new: NodeSetPowerState | None) -> None:
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._add(key)

    def _controller_changed(self, key: Key, old: Controller | None, new: Controller | None) -> None:
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._all_of(key)

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _pod_facts(old) == _pod_facts(new):
            return  # an address, or what we mirror ourselves
        for owner in {_nodeset_of(old), _nodeset_of(new)} - {None}:
            self._add_later(Key(key.namespace, str(owner)), _POD_DELAY_S)

    def _add_later(self, key: Key, after: float) -> None:
        found = self._world.nodesets.get(key)
        pods = self._world.pods.count("owner", found.metadata.uid) if found else 0
        self._add(key, after=after + _DELAY_PER_POD_S * pods)

    def _labelled_changed(self, key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        found = new or old
        labels = found.metadata.labels if found else {}
        if labels.get(names.COMPONENT_LABEL) == COMPONENT and names.INSTANCE_LABEL in labels:
            self._add(Key(key.namespace, labels[names.INSTANCE_LABEL]), after=_POD_DELAY_S)

    def _secret_changed(self, key: Key, *_: HasMeta | None) -> None:
        for controller in self._world.controllers:
            if controller.namespace == key.namespace and key.name == partnames.auth(controller.name):
                self._all_of(controller)

    def _shared_changed(self, key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        found = new or old
        labels = found.metadata.labels if found else {}
        if labels.get(names.COMPONENT_LABEL) == COMPONENT and names.CLUSTER_LABEL in labels:
            self._all_of(Key(key.namespace, labels[names.CLUSTER_LABEL]), after=_POD_DELAY_S)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _facts(old) == _facts(new):
            return  # a heartbeat
        for nodeset in self._world.nodesets.values():
            if nodeset.spec.scaling_mode == "DaemonSet":
                self._add(nodeset.metadata.key, after=_POD_DELAY_S)
        for pod in self._world.pods.by("node", key.name):
            self._pod_changed(pod.metadata.key, None, pod)

    def _slurm_changed(self, controller: Key, node: str | None) -> None:
        if node is None:
            self._all_of(controller)
            return
        pods = self._world.pods.by("slurm-node", (controller, node))
        for pod in pods:
            owner = _nodeset_of(pod)
            if owner is not None:
                self._add_later(Key(controller.namespace, owner), _SLURM_DELAY_S)
        if pods:
            return
        slurm = self._world.slurms.of(controller)
        record = slurm.nodes.get(node) if slurm else None
        for nodeset in self._world.nodesets_of(controller):
            if record is None or partnames.slurm_nodeset(nodeset) in record.features:
                self._add(nodeset.metadata.key, after=_SLURM_DELAY_S)


def _spec_facts(nodeset: NodeSet) -> tuple[object, ...]:
    meta = nodeset.metadata
    return meta.uid, meta.generation, meta.deletion_timestamp, meta.finalizers, meta.labels, meta.annotations


def _nodeset_of(pod: Pod | None) -> str | None:
    owner = pod.metadata.controller if pod else None
    return owner.name if owner and owner.kind == "NodeSet" else None


def _pod_facts(pod: Pod) -> tuple[object, ...]:
    """What of a pod bears on a decision."""
    meta, status = pod.metadata, pod.status
    held = tuple(it for it in status.conditions if it.type in {"Ready", "PodScheduled"})
    return (
        meta.uid,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        pod.spec.node_name,
        status.phase,
        status.start_time,
        held,
        tuple(podtrouble.of_containers(pod)),  # an image that is not there changes neither phase nor conditions
    )


def _facts(node: Node) -> tuple[object, ...]:
    """What of a node bears on a decision."""
    meta = node.metadata
    return (
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations.get(names.NODE_HOSTNAME_ANNOTATION),
        meta.annotations.get(names.NODE_CORDON_REASON_ANNOTATION),
        meta.annotations.get(names.NODE_FEATURES_ANNOTATION),
        meta.annotations.get(names.NODE_TOPOLOGY_ANNOTATION),
        node.spec,
        node.status.allocatable,
        tuple((it.type, it.status, it.reason, it.message) for it in node.status.conditions),
    )
