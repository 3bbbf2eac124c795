from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest

from isthmus.bridge.cache.ledger import Ledger
from isthmus.kube.store import Store
from isthmus.model.base import EMPTY
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Container, ContainerPort, Pod, PodSpec, PodStatus, Resources

LARGE = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "nvidia.com/gpu": "2", "pods": "3"}


def on_node(pod: Pod) -> Iterable[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def pod(
    name: str = "p",
    *,
    node: str = "",
    phase: str = "Pending",
    leaving: bool = False,
    uid: str = "",
    ports: tuple[ContainerPort, ...] = (),
    **requests: str,
) -> Pod:
    spelled = {"gpu": "nvidia.com/gpu", "disk": "ephemeral-storage"}
    asked = {spelled.get(name, name): amount for name, amount in requests.items()}
    return Pod(
        ObjectMeta(
            name=name,
            namespace="ns",
            uid=uid or f"uid-{name}",
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if leaving else None,
        ),
        PodSpec((Container("c", Resources(asked), ports),), node_name=node),
        PodStatus(phase),
    )


class Bed:
    """A ledger of one node, n1."""

    def __init__(self, allocatable: Mapping[str, str] = LARGE) -> None:
        self.pods: Store[Pod] = Store({"node": on_node})
        self.nodes: Store[Node] = Store()
        self.node(allocatable)
        self.ledger = Ledger(self.pods, self.nodes)
        self.woken = 0

    def node(self, allocatable: Mapping[str, str], **labels: str) -> None:
        self.nodes.put(Node(ObjectMeta(name="n1", labels=labels), status=NodeStatus(allocatable=allocatable)))

    def wait(self) -> None:
        self.ledger.on_room("n1", self.wake)

    def wake(self) -> None:
        self.woken += 1


def test_an_empty_node_has_room_for_all_that_it_has() -> None:
    bed = Bed()
    assert bed.ledger.lack("n1", pod(cpu="4", memory="8Gi", disk="10Gi", gpu="2")) is None
    assert bed.ledger.lack("n1", pod()) is None


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"cpu": "4"}, "needs 4 CPUs, 2.5 are free"),
        ({"cpu": "2501m"}, "needs 2.501 CPUs, 2.5 are free"),
        ({"memory": "7Gi"}, "needs 7 GiB of memory, 6 GiB are free"),
        ({"memory": "6442450945"}, "needs 6.1 GiB of memory, 6 GiB are free"),
        ({"disk": "9.5Gi"}, "needs 9.5 GiB of ephemeral-storage, 9 GiB are free"),
        ({"gpu": "2"}, "needs 2 nvidia.com/gpu, 1 are free"),
        ({"example.com/fpga": "1"}, "needs 1 example.com/fpga, 0 are free"),
        ({"cpu": "3", "gpu": "2"}, "needs 3 CPUs, 2.5 are free; needs 2 nvidia.com/gpu, 1 are free"),
        ({"cpu": "2500m", "memory": "6Gi", "disk": "9Gi", "gpu": "1"}, None),
    ],
)
def test_what_is_missing_is_named_in_numbers(request_: Mapping[str, str], told: str | None) -> None:
    bed = Bed()
    bed.pods.put(pod("there", node="n1", cpu="1500m", memory="2Gi", disk="1Gi", gpu="1"))
    assert bed.ledger.lack("n1", pod(**request_)) == told  # type: ignore[arg-type]


def test_what_a_pod_does_not_ask_for_does_not_matter_on_an_overfull_node() -> None:
    bed = Bed({"cpu": "1", "pods": "9"})
    bed.pods.put(pod("there", node="n1", cpu="2"))
    assert bed.ledger.lack("n1", pod(cpu="0")) is None
    assert bed.ledger.lack("n1", pod(cpu="1m")) == "needs 0.001 CPUs, 0 are free"


def test_pods_that_come_together_share_the_room() -> None:
    bed = Bed({"cpu": "2", "pods": "9"})
    bed.pods.put(pod("there", node="n1", cpu="500m"))
    first, second = pod("first", cpu="1"), pod("second", cpu="1")
    assert bed.ledger.lack("n1", second) is None
    assert bed.ledger.lack("n1", second, beside=[first]) == "needs 1 CPU, 0.5 are free"
    assert bed.ledger.lack("n1", second) is None


def test_pods_count_too() -> None:
    bed = Bed()
    for number in range(3):
        assert bed.ledger.lack("n1", pod()) is None
        bed.pods.put(pod(f"there-{number}", node="n1"))
    assert bed.ledger.lack("n1", pod()) == "it has its maximum number of pods"


def test_finished_pods_take_nothing_and_leaving_ones_do_until_they_are_gone() -> None:
    bed = Bed()
    bed.pods.put(pod("old", node="n1", phase="Running", cpu="4"))
    assert bed.ledger.lack("n1", pod(cpu="1")) == "needs 1 CPU, 0 are free"
    assert not bed.ledger.leaving("n1")
    bed.pods.put(pod("old", node="n1", phase="Running", cpu="4", leaving=True))
    assert bed.ledger.leaving("n1")
    assert bed.ledger.lack("n1", pod(cpu="1")) == "needs 1 CPU, 0 are free; pod ns/old is still terminating"
    bed.pods.put(pod("old", node="n1", phase="Succeeded", cpu="4", leaving=True))
    assert bed.ledger.lack("n1", pod(cpu="1")) is None
    assert not bed.ledger.leaving("n1")
    bed.pods.remove(Key("ns", "old"))
    assert bed.ledger.lack("n1", pod(cpu="4")) is None


def test_of_many_leaving_pods_a_few_are_named() -> None:
    bed = Bed({"cpu": "4", "pods": "9"})
    for number in range(4):
        bed.pods.put(pod(f"old-{number}", node="n1", cpu="1", leaving=True))
    told = bed.ledger.lack("n1", pod(cpu="1"))
    assert told == (
        "needs 1 CPU, 0 are free; pod ns/old-0 is still terminating; pod ns/old-1 is still terminating; "
        "2 more are terminating"
    )


def port(number: int, address: str = "", protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(number, address, protocol)


@pytest.mark.parametrize(
    ("taken", "wanted", "clash"),
    [
        (port(80), port(80), True),
        (port(80), port(81), False),
        (port(80), port(80, protocol="UDP"), False),
        (port(80), port(80, "10.0.0.1"), True),
        (port(80, "10.0.0.1"), port(80), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.1"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.2"), False),
        (port(80, "0.0.0.0"), port(80, "10.0.0.2"), True),  # noqa: S104 - nothing is bound
        (port(0), port(0), False),
    ],
)
def test_weakness_22_host_ports_are_not_given_twice(
    taken: ContainerPort, wanted: ContainerPort, *, clash: bool
) -> None:
    bed = Bed()
    bed.pods.put(pod("there", node="n1", ports=(taken,)))
    told = bed.ledger.lack("n1", pod(ports=(wanted,)))
    assert told == (f"host port {wanted.host_port}/{wanted.protocol} is taken" if clash else None)
    bed.pods.remove(Key("ns", "there"))
    assert bed.ledger.lack("n1", pod(ports=(wanted,))) is None


def test_ports_of_init_containers_count_only_if_they_stay() -> None:
    bed = Bed()
    for name, policy in (("init", ""), ("sidecar", "Always")):
        container = Container(name, ports=(port(80),), restart_policy=policy)
        meta = ObjectMeta(name=name, namespace="ns", uid=name)
        bed.pods.put(Pod(meta, PodSpec(init_containers=(container,), node_name="n1")))
        assert (bed.ledger.lack("n1", pod(ports=(port(80),))) is None) is (name == "init")


def test_an_assumed_binding_counts_at_once_and_once() -> None:
    bed = Bed()
    bound = pod("new", cpu="3")
    bed.ledger.assume(bound, "n1")
    bed.ledger.assume(bound, "n1")
    assert bed.ledger.lack("n1", pod(cpu="2")) == "needs 2 CPUs, 1 are free"
    assert bed.ledger.lack("n1", bound) is None
    bed.pods.put(pod("new", cpu="3"))  # an event from before the binding
    assert bed.ledger.lack("n1", pod(cpu="2")) is not None
    assert bed.ledger.assumes(bound)
    assert not bed.ledger.assumes(pod("new", cpu="3", uid="another"))
    bed.pods.put(pod("new", node="n1", cpu="3"))
    assert not bed.ledger.assumes(bound)
    assert bed.ledger.lack("n1", pod(cpu="2")) == "needs 2 CPUs, 1 are free"
    assert bed.ledger.lack("n1", bound) is None
    bed.ledger.forget(Key("ns", "new"))  # too late: the watch has shown it
    assert bed.ledger.lack("n1", pod(cpu="2")) is not None
    bed.pods.remove(Key("ns", "new"))
    assert bed.ledger.lack("n1", pod(cpu="4")) is None


def test_an_assumption_goes_when_it_is_forgotten_or_the_pod_is_gone_or_another_takes_its_name() -> None:
    bed = Bed()
    bound = pod("new", cpu="3")
    bed.pods.put(bound)
    bed.ledger.assume(bound, "n1")
    bed.ledger.forget(Key("ns", "new"))
    assert bed.ledger.lack("n1", pod(cpu="4")) is None
    bed.ledger.assume(bound, "n1")
    bed.pods.remove(Key("ns", "new"))
    assert bed.ledger.lack("n1", pod(cpu="4")) is None
    bed.pods.put(bound)
    bed.ledger.assume(bound, "n1")
    bed.pods.put(pod("new", cpu="3", uid="another"))
    assert bed.ledger.lack("n1", pod(cpu="4")) is None


def test_a_pod_that_was_shown_before_it_is_assumed_counts_once() -> None:
    bed = Bed()
    bed.pods.put(pod("new", node="n1", cpu="3"))
    bed.ledger.assume(pod("new", cpu="3"), "n1")
    assert bed.ledger.lack("n1", pod(cpu="1")) is None


def test_those_who_wait_are_woken_once_when_something_goes() -> None:
    bed = Bed()
    bed.pods.put(pod("old", node="n1", cpu="4"))
    bed.wait()
    bed.wait()
    bed.pods.put(pod("old", node="n1", cpu="4", leaving=True))
    bed.pods.put(pod("another", node="n1"))
    assert bed.woken == 0
    bed.pods.put(pod("old", node="n1", cpu="4", leaving=True, phase="Failed"))
    assert bed.woken == 1
    bed.pods.remove(Key("ns", "another"))
    assert bed.woken == 1
    bed.wait()
    bed.pods.put(pod("late", node="n1"))
    bed.pods.remove(Key("ns", "late"))
    assert bed.woken == 2


def test_a_forgotten_assumption_a_smaller_pod_and_a_larger_node_wake_as_well() -> None:
    bed = Bed()
    bed.ledger.assume(pod("new", cpu="3"), "n1")
    bed.wait()
    bed.ledger.forget(Key("ns", "new"))
    assert bed.woken == 1
    bed.pods.put(pod("there", node="n1", cpu="3"))
    bed.wait()
    bed.pods.put(pod("there", node="n1", cpu="2"))
    assert bed.woken == 2
    assert bed.ledger.lack("n1", pod(cpu="2")) is None
    bed.wait()
    bed.node(LARGE, heartbeat="1")
    assert bed.woken == 2
    bed.node({**LARGE, "cpu": "8"})
    assert bed.woken == 3


def test_a_binding_that_the_watch_shows_is_no_reason_to_wake() -> None:
    bed = Bed()
    bed.pods.put(pod("new", cpu="3"))
    bed.ledger.assume(pod("new", cpu="3"), "n1")
    bed.wait()
    bed.pods.put(pod("new", node="n1", cpu="3"))
    assert bed.woken == 0


def test_a_node_that_is_not_there_has_no_room() -> None:
    assert Bed().ledger.lack("n2", pod()) == "there is no node n2"
    assert not Bed().ledger.leaving("n2")


def test_a_node_that_says_nothing_of_itself_has_no_room() -> None:
    assert Bed(EMPTY).ledger.lack("n1", pod()) == "it has its maximum number of pods"


def test_nothing_is_kept_of_nodes_without_pods() -> None:
    bed = Bed()
    bed.pods.put(pod("a", node="n1", cpu="1", ports=(port(80),)))
    bed.pods.remove(Key("ns", "a"))
    assert bed.ledger._taken == {}


@pytest.mark.parametrize(
    ("text", "cpus"), [("1001E", 0), ("9e99", 0), ("128e000006", 128_000_000), (f"{'0' * 100}1", 1)]
)
def test_odd_quantities_stop_nobody(text: str, cpus: int) -> None:
    """The API server takes them all. What cannot be read counts as nothing, and the rest of the pod counts."""
    bed = Bed({**LARGE, "cpu": "128000001"})
    bed.pods.put(pod("odd", node="n1", cpu=text, gpu="2"))
    assert bed.ledger.lack("n1", pod("next", cpu=str(128_000_001 - cpus))) is None
    assert bed.ledger.lack("n1", pod("next", cpu=str(128_000_002 - cpus)))
    assert bed.ledger.lack("n1", pod("next", gpu="1"))
    bed.pods.remove(Key("ns", "odd"))
    assert bed.ledger.lack("n1", pod("next", gpu="2")) is None


def test_a_node_that_says_odd_things_has_no_room_of_that_kind() -> None:
    assert "CPU" in (Bed({**LARGE, "cpu": "1001E"}).ledger.lack("n1", pod(cpu="1")) or "")
