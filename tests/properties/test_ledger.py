"""The ledger, which adds and subtracts, against one that counts everything anew each time."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from isthmus.bridge.cache.ledger import Ledger
from isthmus.kube.store import Store
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Container, ContainerPort, Pod, PodSpec, PodStatus, Resources

NODES = ("n1", "n2")
CPUS = 6

pod_names = st.sampled_from(["a", "b", "c", "d"])
node_names = st.sampled_from(["", *NODES])
cpus = st.integers(0, 4)
ports = st.sampled_from([0, 80, 81])
uids = st.sampled_from(["u1", "u2"])
phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])


def on_node(pod: Pod) -> Iterable[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def made(
    name: str, *, uid: str, node: str, cpu: int, port: int, phase: str = "Pending", leaving: bool = False
) -> Pod:
    deleted = datetime(2026, 1, 1, tzinfo=UTC) if leaving else None
    container = Container("c", Resources({"cpu": str(cpu)}), (ContainerPort(port),))
    return Pod(
        ObjectMeta(name=name, namespace="ns", uid=uid, deletion_timestamp=deleted),
        PodSpec((container,), node_name=node),
        PodStatus(phase),
    )


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pods: Store[Pod] = Store({"node": on_node})
        self.nodes: Store[Node] = Store()
        for name in NODES:
            allocatable = {"cpu": str(CPUS), "pods": "3"}
            self.nodes.put(Node(ObjectMeta(name=name), status=NodeStatus(allocatable=allocatable)))
        self.ledger = Ledger(self.pods, self.nodes)
        self.assumed: dict[Key, tuple[str, Pod]] = {}
        self.used_before: dict[str, Counter[str]] = {name: Counter() for name in NODES}
        self.taken_before: dict[str, Counter[str]] = {name: Counter() for name in NODES}
        self.waits: set[str] = set()

    def on(self, node: str) -> list[Pod]:
        """The pods that take room on a node, found the slow way."""
        shown = [pod for pod in self.pods.values() if pod.spec.node_name == node and not pod.finished]
        return shown + [pod for place, pod in self.assumed.values() if place == node]

    def taken(self, node: str) -> Counter[str]:
        """What they take together."""
        found = Counter[str]()
        for pod in self.on(node):
            container = pod.spec.containers[0]
            found["pods"] += 1
            found["cpu"] += int(container.resources.requests["cpu"])
            found[f"port {container.ports[0].host_port}"] += bool(container.ports[0].host_port)
        return found

    @rule(name=pod_names, uid=uids, node=node_names, cpu=cpus, port=ports, phase=phases, leaving=st.booleans())
    def put(self, name: str, *, uid: str, node: str, cpu: int, port: int, phase: str, leaving: bool) -> None:
        pod = made(name, uid=uid, node=node, cpu=cpu, port=port, phase=phase, leaving=leaving)
        key = pod.metadata.key
        if key in self.assumed and (node or pod.finished or self.assumed[key][1].metadata.uid != uid):
            del self.assumed[key]
        self.pods.put(pod)

    @rule(name=pod_names)
    def ask_to_go(self, name: str) -> None:
        pod = self.pods.get(Key("ns", name))
        if pod is not None:
            deleted = datetime(2026, 1, 1, tzinfo=UTC)
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=deleted)
            self.pods.put(msgspec.structs.replace(pod, metadata=meta))
            if pod.bound or pod.finished:
                self.assumed.pop(pod.metadata.key, None)

    @rule(name=pod_names)
    def remove(self, name: str) -> None:
        if Key("ns", name) in self.pods:
            self.assumed.pop(Key("ns", name), None)
            self.pods.remove(Key("ns", name))

    @rule(name=pod_names, node=st.sampled_from(NODES))
    def assume(self, name: str, node: str) -> None:
        pod = self.pods.get(Key("ns", name))
        if pod is not None and not pod.bound and not pod.finished:
            known = self.assumed.get(pod.metadata.key)
            if known is None or known[0] != node:
                self.assumed[pod.metadata.key] = (node, pod)
            self.ledger.assume(pod, node)

    @rule(name=pod_names)
    def forget(self, name: str) -> None:
        self.assumed.pop(Key("ns", name), None)
        self.ledger.forget(Key("ns", name))

    @rule(node=st.sampled_from(NODES))
    def wait(self, node: str) -> None:
        self.waits.add(node)
        self.ledger.on_room(node, self.wake_1 if node == "n1" else self.wake_2)

    def wake_1(self) -> None:
        self.waits.discard("n1")

    def wake_2(self) -> None:
        self.waits.discard("n2")

    @invariant()
    def there_is_room_exactly_where_a_count_finds_it(self) -> None:
        for node in NODES:
            there = self.on(node)
            free = CPUS - sum(int(pod.spec.containers[0].resources.requests["cpu"]) for pod in there)
            taken = {pod.spec.containers[0].ports[0].host_port for pod in there} - {0}
            for cpu, port in ((0, 0), (1, 80), (4, 81), (6, 0)):
                fits = (cpu == 0 or cpu <= free) and port not in taken and len(there) < 3
                wanted = made("new", uid="new", node="", cpu=cpu, port=port)
                assert (self.ledger.lack(node, wanted) is None) is fits
            assert self.ledger.leaving(node) is any(pod.leaving for pod in there)

    @invariant()
    def whoever_waits_is_woken_when_room_is_made(self) -> None:
        for node in NODES:
            used = Counter(pod.metadata.uid + pod.metadata.name for pod in self.on(node))
            taken = self.taken(node)
            # A successor may take exactly the room of the one that went.
            if self.used_before[node] - used and self.taken_before[node] - taken:
                assert node not in self.waits
            self.used_before[node], self.taken_before[node] = used, taken


LedgerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase
