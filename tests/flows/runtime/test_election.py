"""Elections on a real API server, with faults in front of it and processes that stand still."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.runtime import fuse
from isthmus.runtime.candidate import Terms
from isthmus.runtime.election import Election, clock
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Proxy
from tests.flows.kube.conftest import Through

pytestmark = pytest.mark.long

SHORT = Terms(duration=2, deadline=1.2, interval=0.2)
APART = Terms(duration=6, deadline=4, interval=0.2)
"""For processes of their own: a busy machine holds up each of them by itself, and the API server meanwhile."""
LONG = Terms(duration=600, deadline=400, interval=0.2)
"""Nobody waits in a test until such a lease runs out, and no machine stands still for so long."""

_ROUND = 0.005


class NoFuse:
    """Several contenders share the test's process, which must outlive them."""

    def __init__(self, longest: float = SHORT.duration) -> None:
        self._longest = longest
        self.is_set = False

    def set(self, seconds: float) -> None:
        # Nothing is left where the machine stood still in between: there, a process of its own would end.
        assert seconds <= self._longest
        self.is_set = True

    def remove(self) -> None:
        self.is_set = False


class Contender:
    """One candidate with its own way to the API server; its work notes from when to when it was done."""

    def __init__(self, client: Client, lease: Key, proxy: Proxy, terms: Terms) -> None:
        self.proxy = proxy
        self.metrics = Metrics()
        self.fuse = NoFuse(terms.duration)
        self.election = Election(client, lease, metrics=self.metrics, fuse=self.fuse, terms=terms)
        self.spans: list[tuple[float, float]] = []
        self.works = False
        self.finish = asyncio.Event()

    async def work(self) -> None:
        began = clock()
        self.works = True
        assert self.fuse.is_set
        try:
            await self.finish.wait()
        finally:
            self.works = False
            self.spans.append((began, clock()))

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("leader_election_master_status", {"name": "leader"})


async def until(condition: Callable[[], bool], *, within: float = 120) -> float:
    """Wait, and say how many seconds that took, without those in which this process stood still."""
    seconds = 0.0
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(_ROUND)
            seconds += _ROUND
    return seconds


@asynccontextmanager
async def contenders(
    number: int, through: Through, namespace: str, *, terms: Terms = SHORT
) -> AsyncIterator[list[Contender]]:
    """Run so many candidates for one lease, and check in the end that no two of them ever worked at once."""
    made: list[Contender] = []
    async with AsyncExitStack() as stack:
        for _ in range(number):
            proxy, config = await stack.enter_async_context(through())
            client = await stack.enter_async_context(Client(config))
            made.append(Contender(client, Key(namespace, "leader"), proxy, terms))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.election.run(each.work)) for each in made]
            yield made
            for task in running:
                task.cancel()
    spans = sorted(span for each in made for span in each.spans)
    assert spans
    for earlier, later in pairwise(spans):
        assert earlier[1] <= later[0], "two worked at the same time"
    assert not any(each.fuse.is_set for each in made)


def leading(candidates: list[Contender]) -> list[Contender]:
    return [each for each in candidates if each.works]


def refuse(proxy: Proxy) -> None:
    proxy.refuse()


def freeze(proxy: Proxy) -> None:
    proxy.freeze()


def fail(proxy: Proxy) -> None:
    proxy.respond(500)


@pytest.mark.parametrize("fault", [refuse, freeze, fail])
async def test_a_leader_that_cannot_reach_the_server_stops_before_another_begins(
    through: Through, namespace: str, fault: Callable[[Proxy], None]
) -> None:
    async with contenders(3, through, namespace) as candidates:
        for _ in range(2):
            await until(lambda: len(leading(candidates)) == 1)
            (cut_off,) = leading(candidates)
            fault(cut_off.proxy)
            assert await until(lambda: not cut_off.works) < SHORT.duration  # noqa: B023 - awaited here
            await until(lambda: bool(leading(candidates)))
            assert cut_off not in leading(candidates)
            cut_off.proxy.heal()
    assert len({each.election.identity for each in candidates if each.spans}) >= 2


async def test_claims_whose_answers_are_lost_do_not_count(through: Through, namespace: str) -> None:
    async with contenders(2, through, namespace) as candidates:
        await until(lambda: len(leading(candidates)) == 1)
        lost = [each.proxy.lose_answer(method="PATCH") for each in candidates]
        await until(lambda: not leading(candidates) and sum(rule.used for rule in lost) >= 2)
        for each in candidates:
            each.proxy.heal()
        await until(lambda: len(leading(candidates)) == 1)


async def test_one_leads_although_the_answer_to_the_first_claim_was_lost(through: Through, namespace: str) -> None:
    async with contenders(1, through, namespace) as (candidate,):
        candidate.proxy.lose_answer(method="POST", times=1)
        await until(lambda: candidate.works)
        assert candidate.gauge == 1
    assert candidate.gauge == 0


async def test_a_lease_that_cannot_be_made_is_asked_for_at_a_measured_pace(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client, asyncio.TaskGroup() as tasks:
        candidate = Contender(client, Key("no-such-namespace", "leader"), proxy, SHORT)
        began = clock()
        running = tasks.create_task(candidate.election.run(candidate.work))
        await proxy.until_seen(method="POST", times=3)
        assert clock() - began >= 2 * SHORT.interval
        running.cancel()


async def test_a_leader_whose_work_is_done_makes_room_at_once(
    through: Through, namespace: str, client: Client
) -> None:
    async with contenders(2, through, namespace, terms=LONG) as candidates:
        await until(lambda: len(leading(candidates)) == 1)
        (first,) = leading(candidates)
        (second,) = (each for each in candidates if each is not first)
        first.finish.set()
        await until(lambda: second.works)
        assert second.spans == []
    lease = await client.get(LEASES, Key(namespace, "leader"))
    assert not lease.spec.holder_identity
    assert lease.spec.lease_transitions == 1


async def test_a_lease_that_changes_while_it_is_given_back_is_given_back_all_the_same(
    through: Through, namespace: str, client: Client
) -> None:
    """As when a claim that the end of the work cut short is stored a moment later."""
    key = Key(namespace, "leader")
    async with through() as (proxy, config), Client(config) as behind:
        candidate = Contender(behind, key, proxy, LONG)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(candidate.election.run(candidate.work))
            await until(lambda: any(claim.status == HTTPStatus.OK for claim in proxy.exchanges(method="PATCH")))
            changed = proxy.respond(409, method="PATCH", times=1)
            candidate.finish.set()
        assert changed.used == 1
    assert not (await client.get(LEASES, key)).spec.holder_identity


async def test_a_leader_goes_on_when_the_lease_is_deleted_and_stops_when_it_is_taken(
    through: Through, namespace: str, client: Client
) -> None:
    key = Key(namespace, "leader")
    async with contenders(1, through, namespace, terms=LONG) as (candidate,):
        await until(lambda: candidate.works)
        await client.delete(LEASES, key)
        await until(lambda: [made.status for made in candidate.proxy.exchanges(method="POST")] == [201, 201])
        assert candidate.spans == []
        assert candidate.election.leads()
        await client.merge_patch(LEASES, key, {"spec": {"holderIdentity": "somebody else"}})
        await until(lambda: not candidate.works)
        assert (await client.get(LEASES, key)).spec.holder_identity == "somebody else"
    assert len(candidate.spans) == 1


async def test_a_lease_that_nobody_renews_is_taken(through: Through, namespace: str, client: Client) -> None:
    spec = {"holderIdentity": "somebody else", "leaseDurationSeconds": SHORT.duration}
    await client.create(LEASES, {"metadata": {"namespace": namespace, "name": "leader"}, "spec": spec})
    async with contenders(1, through, namespace) as (candidate,):
        await until(lambda: candidate.works)


async def test_leadership_survives_nothing_longer_than_its_deadline(
    own_control_plane: ControlPlaneBed,
) -> None:
    async with Client(load(own_control_plane.kubeconfig)) as client, asyncio.TaskGroup() as tasks:
        election = Election(client, Key("default", "leader"), metrics=Metrics(), fuse=NoFuse(), terms=SHORT)
        works = asyncio.Event()

        async def work() -> None:
            works.set()
            try:
                await asyncio.Event().wait()
            finally:
                works.clear()

        running = tasks.create_task(election.run(work))
        await asyncio.wait_for(works.wait(), 60)
        own_control_plane.kill("kube-apiserver")
        assert await until(lambda: not works.is_set()) < SHORT.duration
        assert not election.leads()
        await asyncio.to_thread(own_control_plane.start, "kube-apiserver")
        await asyncio.wait_for(works.wait(), 60)
        running.cancel()


class LeaderProcess:
    """A candidate in a process of its own, which prints a time whenever it works."""

    def __init__(self, bed: ControlPlaneBed, namespace: str, *manner: str) -> None:
        module = "tests.flows.runtime.leader"
        self._argv = [sys.executable, "-m", module, str(bed.kubeconfig), namespace, *manner]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass  # closes its output and waits for it

    async def next_work(self) -> float:
        """When it works next. If the machine held it up until its fuse ended it, it is started again."""
        assert self.process.stdout
        while not (line := await asyncio.to_thread(self.process.stdout.readline)):
            with self.process:
                assert self.process.wait(60) == fuse.EXIT_CODE
            self.process = self._start()
            assert self.process.stdout
        return float(line)

    async def rest_of_work(self) -> list[float]:
        """When it worked until it ended, as far as nobody has asked before."""
        assert self.process.stdout
        return [float(line) for line in await asyncio.to_thread(self.process.stdout.readlines)]


async def test_a_leader_that_stood_still_does_nothing_when_it_wakes_up_too_late(
    control_plane: ControlPlaneBed, namespace: str
) -> None:
    with LeaderProcess(control_plane, namespace) as stopped:
        await stopped.next_work()
        stopped.process.send_signal(signal.SIGSTOP)
        with LeaderProcess(control_plane, namespace) as other:
            other_began = await other.next_work()
            stopped.process.send_signal(signal.SIGCONT)
            assert max(await stopped.rest_of_work(), default=0.0) < other_began
            assert stopped.process.wait(60) == fuse.EXIT_CODE


async def test_a_leader_whose_event_loop_is_blocked_is_ended_before_another_begins(
    control_plane: ControlPlaneBed, namespace: str
) -> None:
    with LeaderProcess(control_plane, namespace, "blocking") as blocked:
        await blocked.next_work()
        # It looks for itself: on a busy machine we may hear of an end later than it does.
        with LeaderProcess(control_plane, namespace, "after", str(blocked.process.pid)) as other:
            assert await other.next_work() > 0, "the first one was still alive"
            assert await blocked.rest_of_work() == []
            assert blocked.process.wait(60) == fuse.EXIT_CODE
