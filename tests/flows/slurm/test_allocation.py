"""`isthmus-complete` allocates jobs as slurmrestd does, and tells their nodes."""

import asyncio
import http
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from isthmus.domain.languages import hostlist
from isthmus.model.slurm import JobRequest, Number
from isthmus.slurm.allocation import Allocator
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.completion import to_helper
from isthmus.slurm.errors import NotFound, Refused
from isthmus.slurm.submission import key_of
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import eventually, job_in_state, new_key

ALONE = JobRequest(
    name="web",
    comment='ns/web: "quoted", \\ and ü',
    admin_comment='{"cluster":"c","isthmus":1}',
    flags=("EXTERNAL_JOB",),
    environment=("A=b",),
    current_working_directory="/tmp",  # noqa: S108 - of the bed
    partition="main",
    minimum_nodes=1,
    maximum_nodes=1,
    tasks=1,
    tasks_per_node=1,
    cpus_per_task=2,
    memory_per_node=Number.of(64),
    time_limit=Number.of(90),
    nice=-5,
    requeue=False,
    shared=("none",),
    excluded_nodes=("n1", "e1"),
)
PACKED = JobRequest(
    name="gang",
    flags=("EXTERNAL_JOB",),
    environment=("A=b",),
    current_working_directory="/tmp",  # noqa: S108 - of the bed
    partition="main",
    excluded_nodes=("n1",),
    tasks=6,
    cpus_per_task=1,
    memory_per_cpu=Number.of(16),
    tres_per_task="cpu=1",
)
_OWN = {"job_id", "step_id", "sluid", "nodes", "batch_host", "job_resources"}
"""What differs in the records of any two jobs; and all times."""


@pytest.fixture
def bed(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    bed = shared_slurm("26.05", nodes=1, external_nodes=4)
    bed.start("isthmus-complete")
    yield bed
    bed.stop("isthmus-complete")
    bed.command("scancel", "--user=slurm")


@asynccontextmanager
async def asking(bed: SlurmBed, *, helper: str = "", user: str = "slurm") -> AsyncIterator[Client]:
    """A client of this Slurm that asks the helper, or what stands in front of it."""
    tokens = MintedTokens(bed.jwt_key, user=user)
    async with (
        to_helper([helper or bed.completer_url], tokens) as transport,
        connect([bed.rest_url], tokens, allocator=Allocator(transport)) as client,
    ):
        yield client


def record(bed: SlurmBed, job_id: int) -> dict[str, Any]:
    """All that Slurm says of a job and that is not its own."""
    (job,) = bed.get(f"/slurm/v0.0.45/job/{job_id}", user="slurm")["jobs"]
    return {name: value for name, value in job.items() if name not in _OWN and not name.endswith("_time")}


@pytest.mark.parametrize("request_", [ALONE, PACKED], ids=["alone", "packed"])
async def test_a_job_is_as_slurmrestd_makes_it_and_its_nodes_are_told(bed: SlurmBed, request_: JobRequest) -> None:
    async with asking(bed) as client, connect([bed.rest_url], MintedTokens(bed.jwt_key, user="slurm")) as plain:
        key = new_key()
        told = await client.submit_once(request_, key=key)
        other = await plain.submit_once(msgspec.structs.replace(request_, immediate=True), key=key)
    assert record(bed, told.job_id) == record(bed, other.job_id)
    nodes = bed.command("squeue", "-ho%N", f"--job={told.job_id}").strip()
    assert hostlist.same_hosts(told.nodes, nodes)
    assert nodes
    assert other.nodes == "", "slurmrestd tells them now: ask it alone"


async def test_a_job_for_which_there_is_no_room_waits_as_if_it_were_submitted(bed: SlurmBed) -> None:
    others = msgspec.structs.replace(PACKED, tasks=16, excluded_nodes=("n1",), tres_per_task=None)
    waits = msgspec.structs.replace(ALONE, excluded_nodes=("n1",), requeue=None)
    async with asking(bed) as client, connect([bed.rest_url], MintedTokens(bed.jwt_key, user="slurm")) as plain:
        assert (await client.submit_once(others, key=new_key())).nodes
        key = new_key()
        given = await client.submit_once(waits, key=key)
        other = await plain.submit_once(waits, key=key)
        assert (given.nodes, other.nodes) == ("", "")
        await job_in_state(client, given.job_id, "PENDING")
        both = [given.job_id, other.job_id]
        # Why a job waits is written when slurmctld looks at the queue.
        await eventually(
            lambda: client.details(both), lambda jobs: len({it.state_reason for it in jobs}) == 1, within=30
        )
    assert record(bed, given.job_id) == record(bed, other.job_id)


async def test_what_slurm_refuses_is_an_error_of_slurm(bed: SlurmBed) -> None:
    async with asking(bed) as client:
        for changes, error in (
            # Two of the five nodes are excluded. More than five would wait for a larger partition.
            ({"minimum_nodes": 4, "maximum_nodes": 4, "tasks": 4}, Refused),
            ({"partition": "none"}, NotFound),
            ({"reservation": "none"}, NotFound),
        ):
            with pytest.raises(error, match=r"submitting job 'web' failed: [A-Z]"):
                await client.submit_once(msgspec.structs.replace(ALONE, **changes), key=new_key())
        assert (await client.submit_once(ALONE, key=new_key())).nodes
    async with asking(bed, user="alice") as alice:
        with pytest.raises(Refused, match="nice"):
            await alice.submit_once(ALONE, key=new_key())


async def test_without_the_helper_slurmrestd_is_asked(bed: SlurmBed) -> None:
    small = msgspec.structs.replace(PACKED, tasks=1)
    large = msgspec.structs.replace(small, admin_comment="x" * 70_000)
    async with asking(bed) as client:
        given = await client.submit_once(large, key=new_key())
        assert given.nodes == "", "too large for the helper"
        # Slurm starts no job at once while an older one waits.
        await job_in_state(client, given.job_id, "RUNNING")
        assert (await client.submit_once(small, key=new_key())).nodes
        await asyncio.to_thread(bed.stop, "isthmus-complete")
        try:
            for _ in range(2):
                given = await client.submit_once(small, key=new_key())
                assert (bool(given.job_id), given.nodes) == (True, "")
        finally:
            bed.start("isthmus-complete")


async def test_slurmrestd_has_the_last_word(bed: SlurmBed, faults: Faults) -> None:
    """A helper of another release, or one that does not reach slurmctld, must not keep pods from their jobs."""
    small = msgspec.structs.replace(PACKED, tasks=1)
    for number in (1005, 1007, 1800, 2002):
        async with faults.in_front_of(bed.completer_url) as proxy, asking(bed, helper=proxy.url) as client:
            body = b'{"errors":[{"error_number":%d}]}' % number
            proxy.respond(500, headers={"Content-Type": "application/json"}, body=body)
            for _ in range(2):
                assert (await client.submit_once(small, key=new_key())).job_id
            assert proxy.count() == 1, "it is left alone for a while"


@pytest.mark.parametrize("slurm_version", ["24.11"])
async def test_a_helper_that_has_no_such_call_is_no_reason_not_to_submit(slurm: SlurmBed) -> None:
    slurm.start("isthmus-complete")
    try:
        async with to_helper([slurm.completer_url], MintedTokens(slurm.jwt_key, user="slurm")) as transport:
            assert await Allocator(transport).allocate(ALONE, what="submitting a job") is None
    finally:
        slurm.stop("isthmus-complete")


async def test_a_lost_answer_makes_no_second_job(bed: SlurmBed, faults: Faults) -> None:
    async with faults.in_front_of(bed.completer_url) as proxy, asking(bed, helper=proxy.url) as client:
        proxy.lose_answer(path="/jobs/allocate", times=1)
        key = new_key()
        job_id = (await client.submit(ALONE, key=key)).job_id
        assert [it.job_id for it in await client.jobs() if key_of(it.comment) == key] == [job_id]


async def test_a_new_token_costs_no_answer(bed: SlurmBed) -> None:
    """A process of the helper knows one token: whoever comes with another is sent to a new connection."""

    class Renewed(MintedTokens):
        """Another token each time."""

        def token(self) -> str:
            return bed.token("slurm", lifetime=3600 + next(lifetimes))

    lifetimes = itertools.count()
    tokens = Renewed(bed.jwt_key, user="slurm")
    async with (
        to_helper([bed.completer_url], tokens) as transport,
        connect([bed.rest_url], tokens, allocator=Allocator(transport)) as client,
    ):
        for _ in range(3):
            assert (await client.submit_once(msgspec.structs.replace(PACKED, tasks=1), key=new_key())).nodes


async def test_what_is_not_a_request_is_refused(bed: SlurmBed) -> None:
    tokens = MintedTokens(bed.jwt_key, user="slurm")
    async with to_helper([bed.completer_url], tokens) as transport:
        for body in (
            "",
            "{}",
            "[]",
            "{",
            '{"name"}',
            '{"name":}',
            '{"name":"web"',
            '{"name":"web"}}',
            '{"name":"web",}',
            '{"name":web}',
            '{"name":5}',
            '{"name":"\\u0007"}',
            '{"name":"web","more":{"name":"x"}}',
            '{"user_id":0}',
            '{"bitflags":1}',
            '{"shared":65536}',
            '{"num_tasks":4294967296}',
            '{"pn_min_memory":18446744073709551616}',
            '{"num_tasks":-1}',
            '{"num_tasks":1.5}',
        ):
            reply = await transport.request("POST", "/jobs/allocate", body=msgspec.Raw(body.encode()))
            assert reply.status == http.HTTPStatus.BAD_REQUEST, body
