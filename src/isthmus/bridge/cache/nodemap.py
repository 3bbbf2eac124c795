"""Which Slurm node is which Kubernetes node, both ways.

A Kubernetes node is known to Slurm by the first of these that it has:

    1. the name in its label or annotation `slinky.slurm.net/slurm-nodename`
    2. its own name, if it is registered in Slurm as an external node
    3. the host name of a worker pod on it: slurmd runs in there (Slurm on the same Kubernetes, "hybrid")
    4. its own name

Labels of nodes are the administrator's; what a pod says of itself, any user may write. So a worker pod is believed
only if the NodeSet that it names as its owner is there, in the pod's own namespace and with the same uid:

    slurm-operator    pod ──► NodeSet (slinky.slurm.net)
    Soperator         pod ──► StatefulSet (apps.kruise.io) ──► NodeSet (slurm.nebius.ai)

Whenever `slurm_name(k)` is `s`, then `kube_name(s)` is `k`: a node whose name another one has taken by its label
has no name in Slurm. Where two claim one name, every process decides alike: the first in the order of names, or the
oldest of the pods.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from isthmus import names
from isthmus.domain.languages.hostlist import natural_key
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import Key, OwnerReference, Partial
from isthmus.model.node import Node
from isthmus.model.pod import Pod

OWNERS: Final[tuple[Kind[Partial], ...]] = (
    Kind(Partial, "slinky.slurm.net/v1beta1", "nodesets", "NodeSet"),
    Kind(Partial, "slurm.nebius.ai/v1alpha1", "nodesets", "NodeSet"),
    Kind(Partial, "apps.kruise.io/v1beta1", "statefulsets", "StatefulSet"),
)
"""The kinds that own worker pods. None of them need be there: each is another project's, or the operator's."""

_OWNER_KINDS: Final = frozenset((kind.group, kind.name) for kind in OWNERS)
_NODESET: Final = "NodeSet"

_T = TypeVar("_T")

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class _Worker(NamedTuple):
    """A worker pod; the least of several is believed."""

    leaving: bool
    created: datetime
    key: Key
    slurm_node: str
    kube_node: str


class _Claim(NamedTuple):
    """A pod that claims to be a worker, and of which cluster."""

    owner: OwnerReference
    worker: _Worker


class NodeMap:
    """Kept by the stores' hooks; every look-up is O(1) in the number of nodes and pods.

    `owners` hold the objects of the kinds `OWNERS`, in that order.
    """

    def __init__(self, nodes: Store[Node], pods: Store[Pod], owners: Sequence[Store[Partial]]) -> None:
        self._nodes = nodes
        self._named: dict[str, set[str]] = {}
        """Kubernetes nodes by the Slurm name that they carry."""
        self._owners = {(kind.group, kind.name): store for kind, store in zip(OWNERS, owners, strict=True)}
        self._claims: dict[Key, _Claim] = {}
        self._workers: dict[Key, _Worker] = {}
        self._workers_of_slurm: dict[str, set[_Worker]] = {}
        self._workers_on_kube: dict[str, set[_Worker]] = {}
        self._hooks: list[Callable[[str], None]] = []
        for store in owners:
            store.on_change(self._owner_changed)
        nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    def on_change(self, hook: Callable[[str], None]) -> None:
        """Call `hook` for each Slurm name whose Kubernetes node may have changed."""
        self._hooks.append(hook)

    def kube_name(self, slurm_node: str) -> str | None:
        """Find the Kubernetes node behind a Slurm node."""
        if named := self._named.get(slurm_node):
            return min(named)
        node = self._nodes.get(Key("", slurm_node))
        if node is not None and is_external(node) and self._name_of(node) == slurm_node:
            return slurm_node
        workers = self._workers_of_slurm.get(slurm_node)
        if workers and Key("", found := min(workers).kube_node) in self._nodes:
            return found
        return slurm_node if node is not None and self._name_of(node) == slurm_node else None

    def slurm_name(self, kube_node: str) -> str | None:
        """Find the name that a Kubernetes node has in Slurm, or would have if it were registered."""
        node = self._nodes.get(Key("", kube_node))
        if node is None:
            return None
        name = self._name_of(node)
        return name if self.kube_name(name) == kube_node else None

    def slurm_names(self, kube_node: str) -> set[str]:
        """All Slurm nodes that may have to do with a Kubernetes node, for those who follow its changes."""
        found = {worker.slurm_node for worker in self._workers_on_kube.get(kube_node, ())}
        node = self._nodes.get(Key("", kube_node))
        return found | {kube_node, _carried_name(node) if node else kube_node} - {""}

    def workers_on(self, kube_node: str) -> Iterator[tuple[str, Key]]:
        """The Slurm nodes whose slurmd runs on a Kubernetes node, each with its pod."""
        return ((worker.slurm_node, worker.key) for worker in self._workers_on_kube.get(kube_node, ()))

    def _name_of(self, node: Node) -> str:
        own = node.metadata.name
        if name := _carried_name(node):
            return name
        workers = self._workers_on_kube.get(own)
        if not workers or is_external(node):
            return own
        return min((worker.slurm_node for worker in workers), key=natural_key)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        was, now = (_carried_name(node) if node else "" for node in (old, new))
        if old and new and was == now and is_external(old) == is_external(new):
            return
        if was:
            _discard(self._named, was, key.name)
        if now:
            self._named.setdefault(now, set()).add(key.name)
        self._tell(self.slurm_names(key.name) | {was, now} - {""})

    def _pod_changed(self, key: Key, _old: Pod | None, new: Pod | None) -> None:
        claim = _claim(key, new) if new else None
        if claim == self._claims.get(key):
            return
        if claim:
            self._claims[key] = claim
        else:
            del self._claims[key]
        self._judge(key)

    def _owner_changed(self, key: Key, old: Partial | None, new: Partial | None) -> None:
        if old and new and _identity(old) == _identity(new):
            return  # NodeSets report how they are all the time.
        for pod in [it for it in self._claims if it.namespace == key.namespace]:
            self._judge(pod)

    def _judge(self, key: Key) -> None:
        """Believe a pod that claims to be a worker, or no longer."""
        claim, was = self._claims.get(key), self._workers.get(key)
        now = claim.worker if claim and self._is_true(claim.owner, key.namespace) else None
        if was == now:
            return
        if was:
            del self._workers[key]
            _discard(self._workers_of_slurm, was.slurm_node, was)
            _discard(self._workers_on_kube, was.kube_node, was)
        if now:
            self._workers[key] = now
            self._workers_of_slurm.setdefault(now.slurm_node, set()).add(now)
            self._workers_on_kube.setdefault(now.kube_node, set()).add(now)
        self._tell({name for worker in (was, now) if worker for name in (worker.slurm_node, worker.kube_node)})

    def _is_true(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether an owner is there, and is a NodeSet or belongs to one."""
        store = self._owners.get((_group(owner), owner.kind))
        found = store.get(Key(namespace, owner.name)) if store else None
        if found is None or found.metadata.uid != owner.uid:
            return False
        above = found.metadata.controller
        return owner.kind == _NODESET or (
            above is not None and above.kind == _NODESET and self._is_true(above, namespace)
        )

    def _tell(self, slurm_nodes: Iterable[str]) -> None:
        for name in slurm_nodes:
            for hook in self._hooks:
                hook(name)


def _carried_name(node: Node) -> str:
    meta = node.metadata
    return meta.labels.get(names.NODE_NAME_LABEL) or meta.annotations.get(names.NODE_NAME_LABEL) or ""


def is_external(node: Node) -> bool:
    """Whether a node is to be registered in Slurm as an external node."""
    return names.EXTERNAL_NODE_LABEL in node.metadata.labels


def _claim(key: Key, pod: Pod) -> _Claim | None:
    """Read a worker pod, if it says it is one and has a node. Its host name is the one that its slurmd reports."""
    spec, owner = pod.spec, pod.metadata.controller
    if owner is None or not spec.node_name or pod.finished or (_group(owner), owner.kind) not in _OWNER_KINDS:
        return None
    slurm_node = spec.node_name if spec.host_network else spec.hostname or pod.metadata.name
    created = pod.metadata.creation_timestamp or _LONG_AGO
    return _Claim(owner, _Worker(pod.leaving, created, key, slurm_node, spec.node_name))


def _identity(owner: Partial) -> tuple[str, OwnerReference | None]:
    return owner.metadata.uid, owner.metadata.controller


def _group(owner: OwnerReference) -> str:
    return owner.api_version.rpartition("/")[0]


def _discard(filed: dict[str, set[_T]], name: str, member: _T) -> None:
    members = filed.get(name, set())
    members.discard(member)
    if not members:
        filed.pop(name, None)
