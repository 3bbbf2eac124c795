"""What Kubernetes can give to Slurm on each node: all that the node has, less what others hold there.

    allocatable  =  reserved                                        +  what Slurm can give to pods
                    DaemonSets, workers of NodeSets, static pods,
                    whatever else Slurm did not place

Pods that Slurm placed are not reserved: they come and go with their jobs. Neither are pods that are leaving, for
which a binding waits (`ledger`).

Kept by the stores' hooks, O(1) per event: a few numbers per node, and nothing per pod.
"""

from collections.abc import Callable, Mapping
from typing import Final

from isthmus.bridge.cache.ledger import Taken, amount
from isthmus.domain.kube.feasibility import Constraints
from isthmus.domain.kube.podshape import clashes
from isthmus.kube.store import Store
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod

TOO_SMALL: Final = "is too small"
_PORT_TAKEN: Final = "has a host port taken by a pod that Slurm did not place"
_NOTHING: Final = Taken()


class Capacity:
    """Knows what is left for Slurm; `placed` says whether Slurm placed a pod."""

    def __init__(self, nodes: Store[Node], pods: Store[Pod], *, placed: Callable[[Pod], bool]) -> None:
        self._placed = placed
        self._reserved: dict[str, Taken] = {}
        self._hooks: list[Callable[[str], None]] = []
        nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    def on_change(self, hook: Callable[[str], None]) -> None:
        """Call `hook` for each Kubernetes node whose capacity for Slurm changes."""
        self._hooks.append(hook)

    def reserved(self, node: str) -> Mapping[str, int]:
        """Add up what pods hold that Slurm did not place: thousandths of a CPU, else bytes or pieces."""
        return self._reserved.get(node, _NOTHING).amounts

    def free(self, node: Node, resource: str) -> int:
        """How much there is of a resource when all pods that Slurm placed are gone."""
        has = amount(resource, node.status.allocatable.get(resource, "0"))
        return has - self.reserved(node.metadata.name).get(resource, 0)

    def misfit(self, constraints: Constraints, node: Node) -> str | None:
        """Why a node could not take a pod even if Slurm had placed nothing else there, or None if it could."""
        if any(need > self.free(node, name) for name, need in constraints.needs):
            return TOO_SMALL
        ports = self._reserved.get(node.metadata.name, _NOTHING).ports
        return _PORT_TAKEN if any(clashes(port, ports) for port in constraints.ports) else None

    def _pod_changed(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        was, now = self._place(old), self._place(new)
        if was == now and (was is None or (old and new and old.spec == new.spec)):
            return
        if old and was:
            self._count(was, old, -1)
        if new and now:
            self._count(now, new, 1)
        for node in dict.fromkeys((was, now)):
            if node:
                self._tell(node)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old and new and old.status.allocatable != new.status.allocatable:
            self._tell(key.name)

    def _place(self, pod: Pod | None) -> str | None:
        """The node on which a pod holds something that Slurm cannot give."""
        if pod is None or not pod.bound or pod.finished or pod.leaving or self._placed(pod):
            return None
        return pod.spec.node_name

    def _count(self, node: str, pod: Pod, sign: int) -> None:
        reserved = self._reserved.setdefault(node, Taken())
        reserved.add(pod, sign)
        if reserved.nothing:
            del self._reserved[node]

    def _tell(self, node: str) -> None:
        for hook in self._hooks:
            hook(node)
