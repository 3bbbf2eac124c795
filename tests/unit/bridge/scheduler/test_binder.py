"""How long a binding waits for room, by clocks that a test sets; bindings themselves are tested in flows."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from isthmus import names
from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.binder import Binder
from isthmus.bridge.scheduler.claims import ClaimAllocator
from isthmus.bridge.scheduler.conditions import NodeRejected, NotYet
from isthmus.domain.bridge.placement import Bind, Seat
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Container, Pod, PodSpec, Resources
from isthmus.slurm.client import Client

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def pod(name: str, *, uid: str = "", node: str = "", deleted: datetime | None = None) -> Pod:
    labels = {names.JOB_ID_LABEL: "6"} if node else {}
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid-{name}", deletion_timestamp=deleted, labels=labels
    )
    container = Container("c", Resources({"cpu": "4"}))
    return Pod(meta, PodSpec((container,), node_name=node, scheduler_name=names.SCHEDULER_NAME))


class Bed:
    """A binder of a world with one node that has room for one pod."""

    def __init__(self) -> None:
        world = World(None, Client(None), cluster="c")  # type: ignore[arg-type] # caches need no client
        self.pods = world.pods
        world.nodes.put(Node(ObjectMeta(name="n1"), status=NodeStatus(allocatable={"cpu": "4", "pods": "9"})))
        self.seconds = 0.0
        self.binder = Binder(
            world,
            Ledger(world.pods, world.nodes),
            FeasibleNodes(world.nodes, world.map, world.slurm_nodes, world.capacity),
            ClaimAllocator(world),
            on_bound=lambda _: None,
            clock=lambda: self.seconds,
            now=lambda: NOON + timedelta(seconds=self.seconds),
        )

    def bind(self, wanted: Pod) -> None:
        """Try to bind a pod to the node; raises as the binder does."""
        step = Bind((Seat(wanted, 7, "n1"),), together=False)
        asyncio.run(self.binder.bind(step, wake=lambda: None))


def assert_waits(bed: Bed, *, until: float, why: str) -> None:
    """See a pod wait for room until then, and the node given back after that."""
    for bed.seconds in (0.0, until - 1):
        with pytest.raises(NotYet, match=why):
            bed.bind(pod("next"))
    bed.seconds = until + 1
    with pytest.raises(NodeRejected):
        bed.bind(pod("next"))


def test_room_is_waited_for_and_then_the_node_is_given_back() -> None:
    bed = Bed()
    bed.pods.put(pod("there", node="n1"))
    assert_waits(bed, until=30.0, why="no room there yet")


def test_a_pod_that_is_leaving_is_waited_for_until_it_should_be_gone() -> None:
    bed = Bed()
    bed.pods.put(pod("slow", node="n1", deleted=NOON + timedelta(seconds=300)))
    assert_waits(bed, until=330.0, why="still terminating")


def test_a_pod_does_not_answer_for_an_earlier_one_of_its_name() -> None:
    bed = Bed()
    bed.pods.put(pod("there", node="n1"))
    first, second = pod("next", uid="first"), pod("next", uid="second")
    bed.pods.put(first)
    with pytest.raises(NotYet):
        bed.bind(first)
    bed.seconds = 31.0
    bed.pods.put(second)
    with pytest.raises(NotYet):
        bed.bind(second)


def test_nothing_is_remembered_of_pods_that_are_gone() -> None:
    bed = Bed()
    bed.pods.put(pod("there", node="n1"))
    bed.pods.put(pod("next"))
    with pytest.raises(NotYet):
        bed.bind(pod("next"))
    assert bed.binder._no_room
    bed.pods.remove(Key("ns", "next"))
    assert not bed.binder._no_room
