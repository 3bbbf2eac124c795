"""Answers are lost in every way that we know; there is exactly one job each time."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from isthmus.errors import Retry
from isthmus.model.slurm import JobRequest
from isthmus.slurm import submitter
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.errors import ControllerUnreached
from isthmus.slurm.submission import duplicates
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import QUICK, batch_job, eventually, frozen, job_in_state, jobs_with_key, new_key

pytestmark = pytest.mark.long

SUBMIT = "*/job/submit"


async def assert_one_job(client: Client, key: str, job_id: int) -> None:
    assert [job.job_id for job in await jobs_with_key(client, key)] == [job_id]


async def submit_through(url: str, slurm: SlurmBed) -> tuple[str, int]:
    """Submit a job by way of a proxy; its key and its id."""
    key = new_key()
    async with connect([url], MintedTokens(slurm.jwt_key)) as shaky:
        return key, (await shaky.submit(batch_job(), key=key)).job_id


async def test_the_answer_is_lost_but_the_job_is_found(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.lose_answer(method="POST", path=SUBMIT, times=1)
        key, job_id = await submit_through(proxy.url, slurm)
        assert proxy.count(method="POST", path=SUBMIT) == 1
    await assert_one_job(client, key, job_id)


async def test_finding_it_reads_only_the_jobs_since_then(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    for _ in range(20):
        await client.submit(batch_job(), key=new_key())
    async with faults.in_front_of(slurm.rest_url) as proxy:
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            await shaky.submit(batch_job(), key=new_key())
            proxy.lose_answer(method="POST", path=SUBMIT, times=1)
            await shaky.submit(batch_job(), key=new_key())
        assert proxy.count(path="*/jobs/") == 0
        assert proxy.count(method="GET", path="*/job/*") == 1


async def test_the_request_is_lost_and_sent_again(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "_LATE_LOOKS", (0.1, 0.2))
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.cut(method="POST", path=SUBMIT, times=1)
        key, job_id = await submit_through(proxy.url, slurm)
        assert proxy.count(method="POST", path=SUBMIT) == 2
    await assert_one_job(client, key, job_id)


async def test_a_request_that_is_held_back_comes_second(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second submission is in Slurm already when the first one arrives, and is withdrawn."""
    # The looks end when both are there, and the second one does not begin before that, however slow the machine.
    monkeypatch.setattr(submitter, "_LATE_LOOKS", (1.0,) * 60)
    monkeypatch.setattr(submitter, "_HEAD_START", 600)
    let_go = asyncio.Event()
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky,
        asyncio.TaskGroup() as group,
    ):
        proxy.hold_back(let_go, method="POST", path=SUBMIT, times=1)
        key = new_key()
        submitting = group.create_task(shaky.submit(batch_job("sleep 60", hold=None, comment="mine"), key=key))
        (held,) = await eventually(lambda: jobs_with_key(client, key), bool)
        assert held.comment == f"mine isthmus-held isthmus-key={key}"
        let_go.set()
        job_id = (await submitting).job_id
    one, other = await jobs_with_key(client, key)
    assert {one.job_id, other.job_id} == {job_id, held.job_id}
    assert (await client.job(held.job_id))[0].job_state == ("CANCELLED",)
    assert not (await client.job(held.job_id))[0].nodes
    await job_in_state(client, job_id, "RUNNING")
    assert duplicates([one, other]) == []
    await client.cancel_job(job_id)


async def test_a_second_submission_waits_until_the_first_is_surely_lost(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "_HEAD_START", 600)  # so it begins because it is let go, however slow the looks
    monkeypatch.setattr(submitter, "_LATE_LOOKS", (1.0, 2.0, 2.0))  # Slurm alone would begin after two at most
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.cut(method="POST", path=SUBMIT, times=1)
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            key = new_key()
            job_id = (await shaky.submit(batch_job("exit 0", hold=None, comment="mine"), key=key)).job_id
    job = await job_in_state(client, job_id, "COMPLETED")
    assert job.comment == f"mine isthmus-key={key}"
    assert (job.start_time.value or 0) - (job.submit_time.value or 0) >= sum(submitter._LATE_LOOKS) - 1
    await assert_one_job(client, key, job_id)


def components(comment: str) -> list[JobRequest]:
    """A heterogeneous job of two components, one on each node."""
    leader = batch_job(hold=None, comment=comment, required_nodes=("n1",))
    return [leader, batch_job(hold=None, comment=comment, required_nodes=("n2",))]


async def test_a_heterogeneous_job_is_found_by_its_key(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.lose_answer(method="POST", path=SUBMIT, times=1)
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            key = new_key()
            job_id = (await shaky.submit(*components("mine"), key=key)).job_id
        assert proxy.count(method="POST", path=SUBMIT) == 1
    leader, other = await jobs_with_key(client, key)
    assert leader.job_id == leader.queue_id == other.queue_id == job_id
    assert (leader.het_job_offset.value, other.het_job_offset.value) == (0, 1)
    await client.cancel_job(job_id)
    # One that has started in the meantime completes first.
    assert all("CANCELLED" in it.job_state for it in await client.job(job_id)), "all of it goes by one call"


async def test_a_second_heterogeneous_submission_lets_all_its_components_go(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "_HEAD_START", 600)  # they begin because they are let go
    monkeypatch.setattr(submitter, "_LATE_LOOKS", (0.1, 0.2))
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.cut(method="POST", path=SUBMIT, times=1)
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            key = new_key()
            job_id = (await shaky.submit(*components("mine"), key=key)).job_id
    await eventually(
        lambda: client.job(job_id), lambda jobs: all(it.job_state == ("RUNNING",) for it in jobs), within=60
    )
    found = await jobs_with_key(client, key)
    assert [it.comment for it in found] == [f"mine isthmus-key={key}"] * 2
    assert duplicates(found) == []
    await client.cancel_job(job_id)


async def test_both_answers_are_lost_and_both_jobs_exist(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, both_exist = asyncio.Event(), asyncio.Event()

    def looks() -> Iterator[float]:
        """Go on until both jobs are in Slurm, however slow the machine, and then look once more."""
        while not both_exist.is_set():
            yield 0.2
        yield 0.0

    monkeypatch.setattr(submitter, "_LATE_LOOKS", looks())
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky,
        asyncio.TaskGroup() as group,
    ):
        proxy.hold_back(let_go, method="POST", path=SUBMIT, times=1)
        proxy.lose_answer(method="POST", path=SUBMIT, times=1)
        key = new_key()
        submitting = group.create_task(shaky.submit(batch_job(), key=key))
        (held,) = await eventually(lambda: jobs_with_key(client, key), bool)
        let_go.set()
        await eventually(lambda: jobs_with_key(client, key), lambda it: len(it) == 2)
        both_exist.set()
        job_id = (await submitting).job_id
    assert job_id != held.job_id
    alive = [job.job_id for job in await jobs_with_key(client, key) if not job.has_ended]
    assert alive == [job_id]


async def test_slurmctld_that_nobody_reaches_has_taken_nothing(slurm_bed: Callable[..., SlurmBed]) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings=QUICK)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        await client.submit(batch_job(), key=new_key())
        bed.stop("slurmctld")
        key = new_key()
        with pytest.raises(ControllerUnreached):
            await client.submit(batch_job(), key=key)
        bed.start("slurmctld")
        job_id = (await client.submit(batch_job(), key=key)).job_id
        (job,) = await jobs_with_key(client, key)
        assert (job.job_id, job.comment) == (job_id, f"isthmus-key={key}"), "not held, as nothing is uncertain"


async def test_the_answer_is_cut_in_the_middle(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.cut(after_bytes=150, method="POST", path=SUBMIT, times=1)
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            key = new_key()
            job_id = (await shaky.submit(batch_job(), key=key)).job_id
        assert proxy.count(method="POST", path=SUBMIT) == 1
    await assert_one_job(client, key, job_id)


async def test_many_at_once_with_lost_answers_among_them(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.lose_answer(method="POST", path=SUBMIT, times=5)
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky, asyncio.TaskGroup() as group:
            keys = [new_key() for _ in range(20)]
            tasks = [group.create_task(shaky.submit(batch_job(), key=key)) for key in keys]
    every = await client.jobs()
    for key, task in zip(keys, tasks, strict=True):
        found = [job.job_id for job in every if job.comment and job.comment.endswith(f"isthmus-key={key}")]
        assert found == [task.result().job_id]


async def test_the_other_slurmrestd_finds_it(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as first, faults.in_front_of(slurm.rest_url) as second:
        async with connect([first.url, second.url], MintedTokens(slurm.jwt_key)) as shaky:
            await shaky.server()
            await shaky.job_states()
            first.lose_answer(method="POST", path=SUBMIT)
            key = new_key()
            job_id = (await shaky.submit(batch_job(), key=key)).job_id
        assert second.count(method="POST", path=SUBMIT) == 0
    await assert_one_job(client, key, job_id)


async def test_slurmctld_freezes_with_the_submission_in_its_backlog(
    slurm_version: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed(slurm_version, nodes=1, accounting=False, settings=QUICK)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        await client.submit(batch_job(), key=new_key())
        key = new_key()
        with frozen(bed, "slurmctld"), pytest.raises(Retry):
            await client.submit(batch_job(), key=key)
        # slurmrestd has reported a failure, and yet slurmctld makes the job: the next call must find it.
        await eventually(lambda: jobs_with_key(client, key), bool)
        job_id = (await client.submit(batch_job(), key=key)).job_id
        await assert_one_job(client, key, job_id)


async def test_one_look_serves_many_lost_answers(slurm: SlurmBed, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as shaky:
            await shaky.submit(batch_job(), key=new_key())
            asked = proxy.count(path="*/jobs/state/")
            proxy.lose_answer(method="POST", path=SUBMIT, times=12)
            async with asyncio.TaskGroup() as group:
                for _ in range(12):
                    group.create_task(shaky.submit(batch_job(), key=new_key()))
        assert proxy.count(method="POST", path=SUBMIT) == 13
        assert proxy.count(path="*/jobs/state/") - asked < 12
