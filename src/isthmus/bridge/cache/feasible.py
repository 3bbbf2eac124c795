"""Which Slurm nodes a pod must not get, ready to be sent with its job.

Slurm is told the nodes to leave out, never those to use: a job that requires nodes fails when one of them goes.
Left out is every Slurm node behind which there is no Kubernetes node that fits the pod, and every one that could
not take it even if it were empty.

A node that is shut, by a cordon or because it does not answer, is drained by the node controller, which takes Slurm
one request. As long as that lasts, no job needs to leave it out; so thousands of waiting jobs are not written to
when a node is cordoned, nor when it is uncordoned. Until it is drained, new jobs leave it out by themselves.

Pods of one template share an answer. It is made once, in O(nodes), and later only what changed is looked at again:
every change of a node is written into a log, and an answer remembers how far it has read. Heartbeats change
nothing, and neither does a DaemonSet's pod that comes or goes without making a node too small for a waiting pod.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from functools import lru_cache
from sys import intern
from typing import Final

from isthmus.bridge.cache.capacity import TOO_SMALL, Capacity
from isthmus.bridge.cache.devices import Devices
from isthmus.bridge.cache.ledger import sentence
from isthmus.bridge.cache.nodemap import NodeMap, is_external
from isthmus.domain.bridge.allocation import NOTHING, Fit
from isthmus.domain.bridge.noderules import index_of, is_out
from isthmus.domain.kube import feasibility
from isthmus.domain.kube.feasibility import Constraints
from isthmus.domain.languages.hostlist import expand, fold, natural_key
from isthmus.kube.store import Store
from isthmus.model import slurm
from isthmus.model.base import Data
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.slurm.store import Store as SlurmStore

_ANSWERS: Final = 64
"""Templates remembered: at 5,000 nodes, none of which fits, an answer takes half a megabyte."""

_LOG: Final = 4096
"""Changes remembered; an answer that is further behind is recreated."""

_NOT_THERE: Final = "is not a node of this Kubernetes cluster"
_COUNTED_ELSEWHERE: Final = "runs on a machine that Slurm has as an external node"
_NO_DEVICES: Final = "has no devices of drivers"
_COUNTED_OTHERWISE: Final = "has devices that Slurm counts differently (see its condition)"
_MIB: Final = 1 << 20


class Excluded(Data, frozen=True):
    """The Slurm nodes to leave out, as a host list, how many are left, and why others are not."""

    hostlist: str
    feasible: int
    why: str
    passing: str = ""
    """Those of them that are shut and about to be drained: a waiting job is not updated for them."""

    @property
    def lasting(self) -> str:
        """The host list without those."""
        return _without(self.hostlist, self.passing) if self.passing else self.hostlist


class _Answer:
    """An answer, with the reasons that it was made of, up to a version."""

    __slots__ = ("excluded", "misfits", "otherwise", "shut", "taken", "version", "ways")

    def __init__(self) -> None:
        self.misfits: dict[str, str] = {}
        self.shut: set[str] = set()
        """Those that would fit if they were not shut."""
        self.ways: dict[str, Fit] = {}
        """How each node that fits would serve claims with alternatives."""
        self.taken = NOTHING
        self.otherwise: set[str] = set()
        """Those that fit, but need more of Slurm than it is asked for."""
        self.excluded = Excluded("", 0, "")
        self.version = -1


class FeasibleNodes:
    """Answers in microseconds for all pods of a template but the first after a change."""

    def __init__(
        self,
        nodes: Store[Node],
        map: NodeMap,  # noqa: A002 - what else
        slurm_nodes: SlurmStore[str, slurm.Node],
        capacity: Capacity,
        devices: Devices | None = None,
    ) -> None:
        self._nodes = nodes
        self._map = map
        self._slurm_nodes = slurm_nodes
        self._capacity = capacity
        self._devices = devices
        self._order: list[str] | None = None
        self._log: list[str] = []
        self._log_from = 0
        self._answers: OrderedDict[Constraints, _Answer] = OrderedDict()
        self._hooks: list[Callable[[], None]] = []
        self._told = False
        nodes.on_change(self._node_changed)
        map.on_change(self._changed)
        slurm_nodes.on_change(self._slurm_node_changed)
        capacity.on_change(self._capacity_changed)
        if devices:
            devices.on_change(self._devices_changed)

    @property
    def version(self) -> int:
        """Another number whenever something became another that decides for whom a node fits."""
        return self._log_from + len(self._log)

    def on_change(self, hook: Callable[[], None]) -> None:
        """Call `hook` when answers change; once, until the next question, however much happens meanwhile."""
        self._hooks.append(hook)

    def excluded(self, constraints: Constraints) -> Excluded:
        """Which Slurm nodes a pod must not get."""
        return self._answer_to(constraints).excluded

    def misfits(self, constraints: Constraints) -> Collection[str]:
        """All Slurm nodes that a pod cannot use, also those that Slurm would not give it anyway."""
        return self._answer_to(constraints).misfits.keys()

    def _answer_to(self, constraints: Constraints) -> _Answer:
        self._told = False
        answer = self._answers.get(constraints)
        if answer is None or answer.version < self._log_from:
            answer = self._answers[constraints] = self._answer(constraints)
            if len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        elif answer.version != self.version:
            self._catch_up(constraints, answer)
        self._answers.move_to_end(constraints)
        return answer

    def excluded_by_any(self, constraints: Collection[Constraints]) -> Excluded:
        """Which Slurm nodes a job must not get whose pods differ: those that one of them cannot use."""
        if len(constraints) == 1:
            return self.excluded(next(iter(constraints)))
        merged, for_good = _Answer(), set[str]()
        for each in constraints:
            answer = self._answer_to(each)
            merged.misfits |= answer.misfits
            merged.otherwise |= answer.otherwise
            for_good |= answer.misfits.keys() - answer.shut
        merged.shut = merged.misfits.keys() - for_good
        self._conclude(next(iter(constraints)), merged)
        return merged.excluded

    def misfit(self, constraints: Constraints, kube_node: str) -> str | None:
        """Why a Kubernetes node does not fit, or None if it does."""
        self._told = False
        node = self._nodes.get(Key("", kube_node))
        if node is None:
            return _NOT_THERE
        return feasibility.misfit(constraints, node) or self._capacity.misfit(constraints, node)

    def taken(self, constraints: Constraints) -> Fit:
        """What the claims of a pod take, as seen from a node that fits.

        Of nodes that could serve it in different ways, that one counts which has what is asked for first.
        """
        return self._answer_to(constraints).taken

    def _answer(self, constraints: Constraints) -> _Answer:
        answer = _Answer()
        for name in self._slurm_nodes:
            self._judge(constraints, name, answer)
        self._choose(constraints, answer)
        self._conclude(constraints, answer)
        return answer

    def _catch_up(self, constraints: Constraints, answer: _Answer) -> None:
        for name in set(self._log[answer.version - self._log_from :]):
            answer.misfits.pop(name, None)
            answer.shut.discard(name)
            answer.ways.pop(name, None)
            if name in self._slurm_nodes:
                self._judge(constraints, name, answer)
        self._choose(constraints, answer)
        self._conclude(constraints, answer)

    def _judge(self, constraints: Constraints, slurm_node: str, answer: _Answer) -> None:
        if reason := self._reason(constraints, slurm_node):
            answer.misfits[slurm_node] = reason
            if self._reason(constraints, slurm_node, opened=True) is None:
                answer.shut.add(slurm_node)
        elif constraints.devices and _has_alternatives(constraints):
            answer.ways[slurm_node] = self._fit(constraints, slurm_node)

    def _fit(self, constraints: Constraints, slurm_node: str) -> Fit:
        kube_node = self._map.kube_name(slurm_node) or ""
        fits = self._devices.fit(constraints.devices, kube_node, shared=constraints.shared) if self._devices else ""
        return NOTHING if isinstance(fits, str) else fits

    def _choose(self, constraints: Constraints, answer: _Answer) -> None:
        """Choose what Slurm is asked for, and which nodes that would not do for.

        A job asks for one thing, whatever node it gets. Where it shares a node, it gets no more devices than that.
        """
        answer.taken, answer.otherwise = NOTHING, set()
        if not constraints.devices:
            return
        fitting = (name for name in self._slurm_nodes if name not in answer.misfits)
        if not _has_alternatives(constraints):
            name = next(fitting, None)
            answer.taken = self._fit(constraints, name) if name else NOTHING
            return
        answer.taken = min((answer.ways[name] for name in fitting), key=lambda it: it.detours, default=NOTHING)
        if constraints.shared:
            answer.otherwise = {name for name, way in answer.ways.items() if not way.within(answer.taken)}

    def _reason(self, constraints: Constraints, slurm_node: str, *, opened: bool = False) -> str | None:
        kube_node = self._map.kube_name(slurm_node)
        node = self._nodes.get(Key("", kube_node)) if kube_node else None
        if node is None:
            return _NOT_THERE
        if self._counts_elsewhere(slurm_node, node):
            return _COUNTED_ELSEWHERE
        reason = feasibility.misfit(constraints, node, opened=opened) or self._capacity.misfit(constraints, node)
        if reason is None and _outgrows(constraints, self._slurm_nodes.get(slurm_node)):
            reason = TOO_SMALL
        if reason is None and constraints.devices:
            reason = self._lacks_devices(constraints, slurm_node, node)
        # Interned, because thousands of nodes share a reason.
        return reason and intern(reason)

    def _lacks_devices(self, constraints: Constraints, slurm_node: str, node: Node) -> str | None:
        """Why the claims of a pod cannot be served on a node."""
        known, name = self._slurm_nodes.get(slurm_node), node.metadata.name
        if self._devices is None or known is None:
            return _NO_DEVICES
        found = self._devices.fit(constraints.devices, name, shared=constraints.shared)
        if isinstance(found, str):
            return found
        if isinstance(index_of(self._devices.on(name), known, node=name), str):
            return _COUNTED_OTHERWISE
        return None

    def _counts_elsewhere(self, slurm_node: str, node: Node) -> bool:
        """Whether a worker's machine is itself a node of Slurm, which gives away what the worker does not have."""
        if slurm_node == node.metadata.name or not is_external(node):
            return False
        external = self._map.slurm_name(node.metadata.name)
        return external != slurm_node and external in self._slurm_nodes

    def _conclude(self, constraints: Constraints, answer: _Answer) -> None:
        answer.version = self.version
        total, misfits = len(self._slurm_nodes), answer.misfits
        if not total:
            answer.excluded = Excluded("", 0, "Slurm has no nodes")
            return
        if self._order is None:
            self._order = sorted(self._slurm_nodes, key=natural_key)
        why = feasibility.summary(Counter(misfits.values()), total)
        left_out = misfits.keys() | answer.otherwise
        feasible = total - len(left_out)
        if not feasible and TOO_SMALL in misfits.values():
            why = f"{why}. {self._largest(constraints, misfits)}"
        drained = {name for name in answer.shut if is_out(self._slurm_nodes[name])}
        hostlist = fold(name for name in self._order if name in left_out and name not in drained)
        passing = fold(sorted(answer.shut - drained, key=natural_key))
        answer.excluded = Excluded(hostlist, feasible, why, passing)

    def _largest(self, constraints: Constraints, misfits: dict[str, str]) -> str:
        """The node that comes nearest to what a pod needs, and what is missing there."""

        def free(name: str) -> list[tuple[str, int, int]]:
            node, known = self._nodes.get(Key("", self._map.kube_name(name) or "")), self._slurm_nodes.get(name)
            return [
                (resource, need, min(self._capacity.free(node, resource), _size(known, resource, need)))
                for resource, need in constraints.needs
                if node
            ]

        small = [name for name, reason in misfits.items() if reason == TOO_SMALL]
        nearest = max(small, key=lambda name: min((has / need for _, need, has in free(name)), default=0.0))
        lacking = [sentence(*it) for it in free(nearest) if it[1] > it[2]]
        return f"The largest node, {nearest}, is too small even without other pods of Slurm: {'; '.join(lacking)}"

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        # The map reports nodes that appear, disappear, or change their name in Slurm.
        if old is None or new is None:
            return
        if old.metadata.labels != new.metadata.labels or old.spec != new.spec:
            for name in self._map.slurm_names(key.name):
                self._changed(name)

    def _slurm_node_changed(self, name: str, old: slurm.Node | None, new: slurm.Node | None) -> None:
        if old is None or new is None:
            self._order = None
            self._changed(name)
            # Workers on the machine of an external node are left out for as long as that one is there.
            kube_node = self._map.kube_name(name)
            for other in self._map.slurm_names(kube_node) - {name} if kube_node else ():
                self._changed(other)
        elif (is_out(old), old.gres, old.extra) != (is_out(new), new.gres, new.extra):
            self._changed(name)
        elif (old.cpus, old.real_memory) != (new.cpus, new.real_memory):
            self._size_changed(name)

    def _devices_changed(self, kube_node: str) -> None:
        for name in self._map.slurm_names(kube_node):
            self._changed(name)

    def _capacity_changed(self, kube_node: str) -> None:
        for name in self._map.slurm_names(kube_node):
            self._size_changed(name)

    def _size_changed(self, slurm_node: str) -> None:
        """Report a change only if it matters: every waiting group is woken by it."""
        if slurm_node not in self._slurm_nodes:
            return
        if len(self._answers) == _ANSWERS or any(
            (self._reason(constraints, slurm_node) is None) == (slurm_node in answer.misfits)
            for constraints, answer in self._answers.items()
            if constraints.needs
        ):
            self._changed(slurm_node)

    def _changed(self, slurm_node: str) -> None:
        self._log.append(slurm_node)
        if len(self._log) > _LOG:
            half = _LOG // 2
            del self._log[:half]
            self._log_from += half
        if not self._told:
            self._told = True
            for hook in self._hooks:
                hook()


def _has_alternatives(constraints: Constraints) -> bool:
    return any(len(it.choices) > 1 for need in constraints.devices for it in need.requests)


def _outgrows(constraints: Constraints, node: slurm.Node | None) -> bool:
    """Whether Slurm has the node as smaller than a pod that it could give it to."""
    return any(need > _size(node, resource, need) for resource, need in constraints.needs)


def _size(node: slurm.Node | None, resource: str, need: int) -> int:
    """How much of a resource Slurm thinks that a node has; as much as is needed where it does not say."""
    if node and node.cpus and resource == "cpu":
        return node.cpus * 1000
    if node and node.real_memory and resource == "memory":
        return node.real_memory * _MIB
    return need


@lru_cache(maxsize=64)
def _without(hosts: str, others: str) -> str:
    gone = set(expand(others))
    return fold(name for name in expand(hosts) if name not in gone)
