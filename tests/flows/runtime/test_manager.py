"""Two replicas of a process on a real API server: what moves from one to the other, and what never does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from itertools import pairwise

from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.runtime.candidate import Terms
from isthmus.runtime.controller import Controller
from isthmus.runtime.election import Election, clock
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from tests.bed.fault_rules import Exchange
from tests.bed.faults import Proxy
from tests.flows.kube.conftest import CONFIG_MAPS, Through, config_map
from tests.flows.runtime.test_election import LONG, SHORT, NoFuse, until

MAPS: Kind[Partial] = Kind(Partial, "v1", "configmaps", "ConfigMap")


class Replica:
    """A process in miniature. Its reconcile takes as long as the test wants, and notes from when to when it ran."""

    def __init__(self, client: Client, lease_client: Client, namespace: str, proxy: Proxy, terms: Terms) -> None:
        self.proxy = proxy
        self.spans: list[tuple[float, float]] = []
        self.busy_with: Key | None = None
        self.finish = asyncio.Event()
        metrics = Metrics()
        maps = Informer(client, MAPS, namespace=namespace, labels="mine=yes")
        self.controller = Controller("maps", self.reconcile, metrics=metrics)
        maps.store.on_change(lambda key, *_: self.controller.queue.add(key))
        lease = Key(namespace, "leader")
        election = Election(lease_client, lease, metrics=metrics, fuse=NoFuse(terms.duration), terms=terms)
        self.manager = Manager(election=election, grace=60)
        self.manager.cache("maps", maps)
        self.manager.lead(self.controller)

    async def reconcile(self, key: Key) -> None:
        began = clock()
        self.busy_with = key
        try:
            await self.finish.wait()
        finally:
            self.busy_with = None
            self.spans.append((began, clock()))


@asynccontextmanager
async def replicas(
    through: Through, client: Client, namespace: str, *, terms: Terms = SHORT
) -> AsyncIterator[list[Replica]]:
    made: list[Replica] = []
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(2):
            proxy, config = await stack.enter_async_context(through())
            lease_client = await stack.enter_async_context(Client(config))
            made.append(Replica(client, lease_client, namespace, proxy, terms))
        for replica in made:
            tasks.create_task(replica.manager.run())
        yield made
        for replica in made:
            replica.finish.set()
            replica.manager.stop()
    spans = sorted(span for replica in made for span in replica.spans)
    for earlier, later in pairwise(spans):
        assert earlier[1] <= later[0], "two replicas worked on one object at the same time"


async def make_map(client: Client, namespace: str) -> Key:
    body = config_map(namespace, "some")
    body["metadata"]["labels"] = {"mine": "yes"}
    await client.create(CONFIG_MAPS, body)
    return Key(namespace, "some")


async def test_work_moves_on_when_its_leader_is_cut_off_and_comes_back(
    through: Through, client: Client, namespace: str
) -> None:
    key = await make_map(client, namespace)
    async with replicas(through, client, namespace) as made:
        await until(lambda: any(replica.busy_with == key for replica in made))
        first, second = sorted(made, key=lambda replica: replica.busy_with is None)
        first.proxy.refuse()
        await until(lambda: second.busy_with == key)
        assert first.busy_with is None
        first.proxy.heal()
        second.proxy.refuse()
        await until(lambda: first.busy_with == key)
        assert second.busy_with is None


async def test_a_leader_that_is_stopped_finishes_its_work_before_another_takes_over(
    through: Through, client: Client, namespace: str
) -> None:
    key = await make_map(client, namespace)
    # Such a lease does not run out while we wait: another can take over only when it is given back.
    async with replicas(through, client, namespace, terms=LONG) as made:
        await until(lambda: any(replica.busy_with == key for replica in made))
        first, second = sorted(made, key=lambda replica: replica.busy_with is None)
        first.manager.stop()
        renewals = len(renewed(first))
        # It goes on claiming the lease for as long as its last work takes.
        await until(lambda: len(renewed(first)) >= renewals + 15)
        assert second.busy_with is None
        first.finish.set()
        await until(lambda: second.busy_with == key)
        assert second.spans == []
        assert len(first.spans) == 1


def renewed(replica: Replica) -> list[Exchange]:
    return [claim for claim in replica.proxy.exchanges(method="PATCH") if claim.status == HTTPStatus.OK]
