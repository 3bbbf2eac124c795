"""What is taken on each Kubernetes node, in Kubernetes' own sums.

Slurm and Kubernetes disagree about a node now and then: a job has ended while its pod still terminates; a DaemonSet
put a pod where Slurm does not look. The kubelet refuses a pod for which there is no room, and such a
pod has failed for good, so a binding waits until Kubernetes, too, has room.

Kept by the stores' hooks, O(1) per event: a few numbers per node, and nothing per pod. A binding that was sent
counts at once (`assume`), not only when the watch shows it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Final

import structlog

from isthmus.domain.kube.podshape import Port, clashes, host_ports, measure, requests_of
from isthmus.errors import Terminal
from isthmus.kube.store import Store
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod

log = structlog.get_logger()

_PODS: Final = "pods"
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})
_GIB: Final = 1 << 30
_NAMED: Final = 2
"""So many leaving pods are named in a sentence."""


class Taken:
    """What the pods on one node take together."""

    __slots__ = ("amounts", "leaving", "ports")

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.ports: Counter[Port] = Counter()
        self.leaving = 0

    def add(self, pod: Pod, sign: int) -> None:
        """Count a pod in (1) or out (-1)."""
        amounts = self.amounts
        for name, number in _needs(pod).items():
            left = amounts.get(name, 0) + sign * number
            if left:
                amounts[name] = left
            else:
                amounts.pop(name, None)
        for port in host_ports(pod):
            self.ports[port] += sign
            if not self.ports[port]:
                del self.ports[port]
        if pod.leaving:
            self.leaving += sign

    def beside(self, pods: Sequence[Pod]) -> "Taken":
        """What would be taken if these pods were there, too."""
        together = Taken()
        together.amounts = dict(self.amounts)
        together.ports = Counter(self.ports)
        for pod in pods:
            together.add(pod, 1)
        return together

    @property
    def nothing(self) -> bool:
        """Whether no pod is left."""
        return not self.amounts


class Ledger:
    """Knows what is free on each node. `pods` needs the index "node".

    `backs` tells resources that claims stand for: nodes do not offer them, and there is nothing to count.
    """

    def __init__(
        self, pods: Store[Pod], nodes: Store[Node], *, backs: Callable[[str], bool] = lambda _resource: False
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._backs = backs
        self._taken: dict[str, Taken] = {}
        self._assumed: dict[Key, tuple[str, Pod]] = {}
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        pods.on_change(self._pod_changed)
        nodes.on_change(self._node_changed)

    def lack(self, node: str, pod: Pod, *, beside: Sequence[Pod] = ()) -> str | None:
        """What is missing on a node for a pod, and who is about to go, or None if there is room.

        `beside` are pods that are to be bound there together with it.
        """
        found = self._nodes.get(Key("", node))
        if found is None:
            return f"there is no node {node}"
        if self._counts(pod, node):
            return None
        allocatable = found.status.allocatable
        taken = self._taken.get(node, _NOTHING)
        if beside:
            taken = taken.beside(beside)
        lacking = []
        for name, need in _needs(pod).items():
            free = amount(name, allocatable.get(name, "0")) - taken.amounts.get(name, 0)
            if 0 < need > free and not self._backs(name):
                lacking.append(sentence(name, need, max(free, 0)))
        lacking += [
            f"host port {port.number}/{port.protocol} is taken"
            for port in host_ports(pod)
            if clashes(port, taken.ports)
        ]
        return "; ".join([*lacking, *self._leaving_pods(node)]) if lacking else None

    def leaving(self, node: str) -> bool:
        """Whether a pod on this node is terminating."""
        return self._taken.get(node, _NOTHING).leaving > 0

    def leaving_until(self, node: str) -> datetime | None:
        """When the last terminating pod of a node should be gone; one that is stuck may stay forever."""
        if not self.leaving(node):
            return None
        return max((it for pod in self._going(node) if (it := pod.metadata.deletion_timestamp)), default=None)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod as bound, until the watch shows it, it is gone, or it is forgotten."""
        key = pod.metadata.key
        if key in self._assumed:
            if self._assumed[key][0] == node:
                return
            self.forget(key)
        if self._counts(pod, node):
            return
        self._assumed[key] = (node, pod)
        self._count(node, pod, 1)

    def assumes(self, pod: Pod) -> bool:
        """Whether this very pod counts as bound, though the watch has not shown it."""
        assumed = self._assumed.get(pod.metadata.key)
        return assumed is not None and assumed[1].metadata.uid == pod.metadata.uid

    def forget(self, key: Key) -> None:
        """Count a pod no longer that was not bound after all."""
        if (assumed := self._assumed.pop(key, None)) is not None:
            self._count(*assumed, -1)
            self._wake(assumed[0])

    def on_room(self, node: str, wake: Callable[[], None]) -> None:
        """Call `wake` once, when something on this node goes away; equal ones are kept once."""
        self._waiting.setdefault(node, {})[wake] = None

    def _counts(self, pod: Pod, node: str) -> bool:
        key = pod.metadata.key
        assumed = self._assumed.get(key)
        known = self._pods.get(key)
        return (assumed is not None and assumed[0] == node) or (
            known is not None and known.metadata.uid == pod.metadata.uid and _place(known) == node
        )

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        was, now = _place(old), _place(new)
        assumed = self._assumed.get(key)
        if assumed is not None and not (new and _still_to_come(new, assumed[1])):
            del self._assumed[key]
            self._count(*assumed, -1)
            if assumed[0] != now:
                self._wake(assumed[0])
        if was is None and now is None:
            return
        if old and new and was == now and old.leaving == new.leaving and old.spec == new.spec:
            return
        if old and was:
            self._count(was, old, -1)
        if new and now:
            self._count(now, new, 1)
        if was and (was != now or (old and new and old.spec != new.spec)):
            self._wake(was)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._wake(key.name)

    def _count(self, node: str, pod: Pod, sign: int) -> None:
        taken = self._taken.get(node)
        if taken is None:
            taken = self._taken[node] = Taken()
        taken.add(pod, sign)
        if taken.nothing:
            del self._taken[node]

    def _wake(self, node: str) -> None:
        for wake in self._waiting.pop(node, ()):
            wake()

    def _leaving_pods(self, node: str) -> list[str]:
        """The pods that will make room: O(pods on this node), and only asked when there is none."""
        if not self.leaving(node):
            return []
        going = (pod.metadata.key for pod in self._going(node))
        named = [f"pod {key} is still terminating" for key in islice(going, _NAMED)]
        more = sum(1 for _ in going)
        return [*named, f"{more} more are terminating"] if more else named

    def _going(self, node: str) -> Iterator[Pod]:
        return (pod for pod in self._pods.by("node", node) if pod.leaving and not pod.finished)


_NOTHING: Final = Taken()


@lru_cache(maxsize=8192)
def amount(name: str, text: str) -> int:
    """Read a quantity of a resource; one that cannot be read counts as nothing, and is logged once.

    The API server takes quantities that it cannot keep itself, such as 1001E. Counting continues without them.
    """
    try:
        return measure(name, text)
    except Terminal as error:
        log.warning("a quantity counts as 0", resource=name, why=error.what)
        return 0


def _place(pod: Pod | None) -> str | None:
    """The node on which a pod takes room; leaving ones do until they are gone, finished ones do not."""
    return pod.spec.node_name or None if pod is not None and not pod.finished else None


def _still_to_come(seen: Pod, assumed: Pod) -> bool:
    return seen.metadata.uid == assumed.metadata.uid and not seen.bound and not seen.finished


def _needs(pod: Pod) -> dict[str, int]:
    needs = requests_of(pod, read=amount)
    needs[_PODS] = 1
    return needs


def sentence(name: str, need: int, free: int) -> str:
    """What a node lacks of a resource."""
    if name == _PODS:
        return "it has its maximum number of pods"
    if name == "cpu":
        return f"needs {need / 1000:g} CPU{'' if need == 1000 else 's'}, {free / 1000:g} are free"  # noqa: PLR2004
    if name in _BYTES:
        # Rounded apart, so that a small lack does not read as none.
        return f"needs {-(-need * 10 // _GIB) / 10:g} GiB of {name}, {free * 10 // _GIB / 10:g} GiB are free"
    return f"needs {need} {name}, {free} are free"
