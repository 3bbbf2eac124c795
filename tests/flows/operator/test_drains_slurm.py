"""What drains, requeues and reservations come to on a real Slurm, with jobs that really run."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from isthmus.domain.operator.nodeset.actions import (
    Action,
    CancelJobs,
    DeleteRecord,
    Drain,
    RequeueJobs,
    SaveReservation,
    Undrain,
)
from isthmus.domain.operator.nodeset.drains import is_free, is_occupied
from isthmus.domain.operator.nodeset.reservation import maintenance, reservation_name
from isthmus.domain.operator.nodeset.view import View
from isthmus.model.slurm import Job, JobRequest, Node, NodeChange, Reservation
from isthmus.operator.nodesets.slurm_actions import _do, free_nodes
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.flows.slurm.helpers import batch_job, eventually, job_in_state, new_key
from tests.unit.domain.operator.nodeset.views import nodeset, pod, view

REASON = "slurm-operator: Pod (slurm/n1) is pending termination for scale-in"

_serial = itertools.count(1)


@pytest.fixture
def settings() -> dict[str, str]:
    """Lines of slurm.conf that a test needs."""
    return {}


@pytest.fixture(params=VERSIONS)
def bed(request: pytest.FixtureRequest, slurm_bed: Callable[..., SlurmBed], settings: dict[str, str]) -> SlurmBed:
    return slurm_bed(request.param, nodes=2, accounting=False, settings=settings)


@pytest.fixture
async def client(bed: SlurmBed) -> AsyncIterator[Client]:
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as connected:
        yield connected


Begin = Callable[..., Awaitable[int]]


@pytest.fixture
def begin(bed: SlurmBed, client: Client) -> Begin:
    """Submit a job for n1, and wait until its script runs: who cancels it sooner waits a minute for slurmctld."""

    async def start(**changes: object) -> int:
        mark = f"/tmp/begun-{next(_serial)}"  # noqa: S108 - in the bed
        request = batch_job(f"touch {mark}; sleep 600", required_nodes=("n1",), hold=None, **changes)
        job = (await client.submit(request, key=new_key())).job_id

        async def exists() -> bool:
            return bed.path(mark).exists()

        await eventually(exists, bool, within=60)
        return job

    return start


async def node_that(client: Client, good: Callable[[Node], bool]) -> Node:
    async def read() -> Node:
        listed = await client.nodes()
        assert listed
        return next(it for it in listed.nodes if it.name == "n1")

    return await eventually(read, good, within=60)


async def do(client: Client, action: Action) -> None:
    await _do(client, action)


async def test_a_drained_node_is_free_when_its_job_has_ended(client: Client, begin: Begin) -> None:
    job = await begin()
    assert await free_nodes(client, ["n1", "n2", "n9"]) == {"n9"}, "a node that is not drained is never free"
    await do(client, Drain(("n1", "n2", "n9"), REASON, "scale_in"))
    assert await free_nodes(client, ["n1", "n2", "n9"]) == {"n2", "n9"}
    await do(client, CancelJobs((job,), "over"))
    await node_that(client, is_free)
    assert await free_nodes(client, ["n1"]) == {"n1"}


@pytest.mark.parametrize("settings", [{"SelectTypeParameters": "CR_Core"}])
async def test_a_suspended_job_keeps_its_node(bed: SlurmBed, client: Client, begin: Begin) -> None:
    """Slurm calls such a node idle, and drained, unless it counts memory."""
    job = await begin()
    await do(client, Drain(("n1",), REASON, "scale_in"))
    bed.scontrol("suspend", str(job))
    await node_that(client, is_free)
    assert await free_nodes(client, ["n1"]) == frozenset()
    bed.scontrol("resume", str(job))
    await do(client, CancelJobs((job,), "over"))
    await node_that(client, is_free)
    assert await free_nodes(client, ["n1"]) == {"n1"}


async def test_a_drain_comes_before_or_after_a_job_and_never_between(client: Client) -> None:
    """Jobs start all the time; from the moment when a node is seen drained and free, none is there again."""
    submitted: list[int] = []
    stop = asyncio.Event()

    async def users() -> None:
        while not stop.is_set() and len(submitted) < 600:
            request = batch_job("true", required_nodes=("n1",), hold=None)
            submitted.append((await client.submit(request, key=new_key())).job_id)
            await asyncio.sleep(0.1)  # more than can start meanwhile, so that some always wait

    async with asyncio.TaskGroup() as group:
        group.create_task(users())
        for _ in range(4):
            await node_that(client, is_occupied)
            await do(client, Drain(("n1",), REASON, "scale_in"))
            await node_that(client, is_free)
            before = await _started(client, submitted)
            assert await free_nodes(client, ["n1"]) == {"n1"}
            await asyncio.sleep(0.3)  # time for the scheduler to break its word
            assert await _started(client, submitted) == before
            await do(client, Undrain(("n1",)))
        stop.set()


async def _started(client: Client, jobs: list[int]) -> set[int]:
    found = await client.job_states(jobs)
    return {int(it.job_id) for it in found if "PENDING" not in it.state}


async def test_undrain_leaves_a_node_down_that_an_administrator_set_down(bed: SlurmBed, client: Client) -> None:
    bed.stop("slurmd-n1")  # or ReturnToService would bring it back
    await client.update_node("n1", NodeChange(state=("DOWN",), reason="ticket 4711"))
    await do(client, Drain(("n1",), REASON, "scale_in"))
    await do(client, Undrain(("n1",)))
    node = await client.node("n1")
    assert "DOWN" in node.state
    assert "DRAIN" not in node.state


async def test_a_job_that_can_be_requeued_is(client: Client, begin: Begin) -> None:
    job = await begin(requeue=True)
    await do(client, Drain(("n1",), REASON, "scale_in"))
    await do(client, RequeueJobs((job,), "its node goes", cleared=("n1",)))

    async def read() -> Job:
        return (await client.job(job))[0]

    found = await eventually(read, lambda it: it.job_state == ("PENDING",), within=60)
    assert found.restarts == 1
    node = await node_that(client, is_free)
    assert "DRAIN" in node.state
    assert node.reason.startswith("slurm-operator: ")


async def test_what_is_over_need_not_be_requeued_or_cancelled(client: Client, begin: Begin) -> None:
    job = await begin()
    await do(client, CancelJobs((job, 99999), "over"))
    await job_in_state(client, job, "CANCELLED")
    await do(client, CancelJobs((job,), "over"))
    await do(client, RequeueJobs((99999,), "over"))


@pytest.mark.parametrize("bed", ["26.05"], indirect=True)
async def test_a_reservation_is_made_kept_in_step_and_deleted(client: Client) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    assert await client.reservations() == ()
    for nodes, minutes in ((1, 30), (2, 30), (2, 60)):
        there = _scheduled(nodes, start, minutes, await client.reservations())
        (save,) = maintenance(there).actions
        assert isinstance(save, SaveReservation)
        await do(client, save)
        settled = maintenance(_scheduled(nodes, start, minutes, await client.reservations()))
        assert settled.actions == ()
        assert settled.condition
        assert settled.condition.status == "True"
    (found,) = await client.reservations()
    assert (found.name, found.node_list, found.node_count) == (reservation_name("worker"), "n[1-2]", 2)
    (delete,) = maintenance(view(of=nodeset(0), reservations=(found,))).actions
    await do(client, delete)
    await do(client, delete)
    assert await client.reservations() == ()


def external_job(node: str) -> JobRequest:
    """A job that no slurmd runs."""
    held = batch_job(flags=("EXTERNAL_JOB",), required_nodes=(node,), hold=None)
    return msgspec.structs.replace(held, script=None)


def _scheduled(nodes: int, start: datetime, minutes: int, reservations: tuple[Reservation, ...]) -> View:
    """A NodeSet whose nodes are those of the bed."""
    update = {"startTime": start.isoformat(), "duration": f"{minutes}m"}
    owner = nodeset(nodes, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": update})
    pods = [msgspec.structs.replace(pod(n), slurm_name=f"n{n}") for n in range(1, nodes + 1)]
    there = view(*pods, of=owner, reservations=reservations)
    return msgspec.structs.replace(there, now=datetime.now(UTC))


@pytest.mark.parametrize("bed", ["26.05"], indirect=True)
async def test_records_are_deleted_together_and_those_in_use_stay(bed: SlurmBed, client: Client) -> None:
    for number in range(3):
        line = f"NodeName=w-{number} CPUs=1 RealMemory=100 State=External NodeAddr=127.0.0.1"
        bed.scontrol("create", *line.split())
    job = (await client.submit(external_job("w-1"), key=new_key())).job_id
    await job_in_state(client, job, "RUNNING")
    await do(client, DeleteRecord("w-[0-2],w-9", "gone for good"))
    listed = await client.nodes()
    assert listed
    assert {it.name for it in listed.nodes} == {"n1", "n2", "w-1"}
    await client.cancel_job(job)
