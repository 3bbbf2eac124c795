"""Jobs and nodes of a real Slurm as a change stream, also when Slurm is away."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from isthmus.model.slurm import Job, NodeChange, Number, States
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.poller import Poller
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually as until
from tests.flows.slurm.helpers import QUICK, batch_job, frozen, hold_census, new_key


@asynccontextmanager
async def polling(client: Client, **options: object) -> AsyncIterator[Poller]:
    poller = Poller(client, idle=0.1, **options)  # type: ignore[arg-type] # options are the poller's own
    task = asyncio.get_running_loop().create_task(poller.run())
    try:
        async with asyncio.timeout(60):
            await poller.synced()
        yield poller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_changes_are_told_in_order_with_old_and_new(client: Client) -> None:
    before = (await client.submit(batch_job(), key=new_key())).job_id
    # Without records that are read again in between: each change of a record follows one of a state.
    async with polling(client, refresh=None) as poller:
        assert poller.states[str(before)] == ("PENDING",)
        assert poller.jobs[before].job_state == ("PENDING",)
        assert set(poller.nodes) >= {"n1", "n2"}
        told: list[tuple[str, States | None, States | None]] = []
        details: list[tuple[int, Job | None, Job | None]] = []
        poller.states.on_change(lambda *change: told.append(change))
        poller.jobs.on_change(lambda *change: details.append(change))

        job_id = (await client.submit(batch_job(), key=new_key())).job_id
        await until(lambda: job_id in poller.jobs)
        await client.cancel_job(job_id)
        await until(lambda: poller.jobs[job_id].job_state == ("CANCELLED",))

        assert [change for change in told if change[0] == str(job_id)] == [
            (str(job_id), None, ("PENDING",)),
            (str(job_id), ("PENDING",), ("CANCELLED",)),
        ]
        states = [(old and old.job_state, new and new.job_state) for key, old, new in details if key == job_id]
        assert states == [(None, ("PENDING",)), (("PENDING",), ("CANCELLED",))]


async def test_nodes_are_followed(client: Client) -> None:
    async with polling(client) as poller:
        assert "DRAIN" not in poller.nodes["n2"].state
        # Slurm stamps changes with whole seconds: several within one second must all be seen.
        for reason in ("first", "second", "third"):
            await client.update_node("n2", NodeChange(state=("DRAIN",), reason=reason))
            await until(lambda reason=reason: poller.nodes["n2"].reason == reason)  # type: ignore[misc]
        await client.update_node("n2", NodeChange(state=("RESUME",)))
        await until(lambda: "DRAIN" not in poller.nodes["n2"].state)


async def test_an_array_has_its_tasks(client: Client) -> None:
    async with polling(client) as poller:
        job_id = (await client.submit(batch_job(array="1-3"), key=new_key())).job_id
        await until(lambda: {f"{job_id}_{task}" for task in (1, 2, 3)} <= set(poller.states))
        await until(lambda: job_id in {job.array_job_id.value for job in poller.jobs.values()})
        await client.cancel_job(job_id)
        await until(lambda: all("CANCELLED" in poller.states[f"{job_id}_{task}"] for task in (1, 2, 3)))
        of_array = [job for job in poller.jobs.values() if job.array_job_id.value == job_id]
        await until(lambda: all("CANCELLED" in poller.jobs[job.job_id].job_state for job in of_array))


async def test_only_wanted_jobs_are_read_in_full(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    mine = (await client.submit(batch_job(), key=new_key())).job_id
    theirs = (await client.submit(batch_job(), key=new_key())).job_id
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
        polling(watched, wants=lambda job_id: job_id == mine, refresh=None) as poller,
    ):
        assert set(poller.jobs) == {mine}
        assert str(theirs) in poller.states
        assert proxy.count(path="*/job/*") == 1
        assert proxy.count(path="*/jobs/") == 0


async def test_who_is_waited_for_is_asked_about_by_id(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
    ):
        poller = Poller(watched, waiting=lambda: {job_id}, quick=0.02, idle=3600)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(poller.run())
            await poller.synced()
            await proxy.until_seen(path=f"*/jobs/state/[?]job_id={job_id}", times=5)
            everything = proxy.count(path="*/jobs/state/") - proxy.count(path="*/jobs/state/[?]*")
            await client.cancel_job(job_id)
            await until(lambda: poller.states[str(job_id)] == ("CANCELLED",))
            task.cancel()
        assert everything == 1


async def test_many_who_are_waited_for_are_asked_about_in_slices(
    slurm: SlurmBed, client: Client, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.slurm.poller._SLICE", 2)
    ids = [(await client.submit(batch_job(), key=new_key())).job_id for _ in range(5)]
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
    ):
        poller = Poller(watched, waiting=lambda: ids, quick=0.02, idle=3600)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(poller.run())
            await poller.synced()
            told: list[str] = []
            poller.states.on_change(lambda key, _, new: told.append(key) if new == ("CANCELLED",) else None)
            for first, second in ((ids[0], ids[1]), (ids[2], ids[3])):
                await proxy.until_seen(path=f"*/jobs/state/[?]job_id={first}&job_id={second}", times=2)
            await proxy.until_seen(path=f"*/jobs/state/[?]job_id={ids[4]}", times=2)
            for job_id in reversed(ids):
                await client.cancel_job(job_id)
                await until(lambda: str(job_id) in told)  # noqa: B023 - awaited here
            task.cancel()
        assert told == [str(job_id) for job_id in reversed(ids)]


async def test_why_a_job_waits_is_learnt_although_its_state_stays(slurm: SlurmBed, client: Client) -> None:
    later = Number.of(int(time.time()) + 3600)
    job_id = (await client.submit(batch_job(hold=None, begin_time=later), key=new_key())).job_id
    async with polling(client, wants=lambda it: it == job_id, refresh=0.1) as poller:
        await until(lambda: poller.jobs[job_id].state_reason == "BeginTime")
        slurm.scontrol("hold", str(job_id))
        await until(lambda: poller.jobs[job_id].state_reason.startswith("JobHeld"))
        assert poller.states[str(job_id)] == ("PENDING",)


async def test_many_nudges_cost_no_more_than_quick_does(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as client,
        polling(client, quick=1.0, refresh=None) as poller,
    ):
        await proxy.until_seen(path="*/jobs/state/", times=2)
        asked = proxy.count(path="*/jobs/state/")
        began = time.monotonic()
        async with asyncio.timeout(30):
            while time.monotonic() < began + 0.5 and proxy.count(path="*/jobs/state/") <= asked + 1:
                poller.nudge()
                await asyncio.sleep(0.01)
        assert proxy.count(path="*/jobs/state/") <= asked + 1


async def test_never_two_questions_of_a_kind_at_once(
    slurm: SlurmBed, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.slurm.poller._PATIENCE", 600)  # so that nobody asks again for want of an answer
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as client,
        polling(client) as poller,
    ):
        unanswered = proxy.hang(path="*/jobs/state/")
        await until(lambda: unanswered.used > 0)
        for _ in range(3):
            poller.nudge()
            await proxy.until_seen(path="*/nodes/*", times=proxy.count(path="*/nodes/*") + 1)
        assert unanswered.used == 1
        proxy.refuse()
        proxy.heal()
        await proxy.until_seen(path="*/jobs/state/", times=proxy.count(path="*/jobs/state/") + 2)


async def test_slurmctld_away_and_back(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> None:
    bed = slurm_bed(slurm_version, nodes=1, accounting=False, settings=QUICK)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        kept = (await client.submit(batch_job(), key=new_key())).job_id
        async with polling(client) as poller:
            gone: list[object] = []
            poller.states.on_change(lambda key, _, new: gone.append(key) if new is None else None)
            poller.nodes.on_change(lambda key, _, new: gone.append(key) if new is None else None)
            assert poller.contact.in_touch

            bed.stop("slurmctld")
            await until(lambda: not poller.contact.in_touch)
            lost = poller.contact
            assert lost.trouble
            assert str(kept) in poller.states
            assert kept in poller.jobs
            assert "n1" in poller.nodes

            bed.start("slurmctld")
            await until(lambda: poller.contact.in_touch)
            assert poller.contact.since > lost.since
            made = (await client.submit(batch_job(), key=new_key())).job_id
            await until(lambda: made in poller.jobs)
            assert gone == []


async def test_slurmctld_frozen_is_away(slurm_bed: Callable[..., SlurmBed]) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings=QUICK)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        kept = (await client.submit(batch_job(), key=new_key())).job_id
        async with polling(client) as poller:
            with frozen(bed, "slurmctld"):
                await until(lambda: not poller.contact.in_touch)
                assert kept in poller.jobs
            await until(lambda: poller.contact.in_touch)


async def test_slurmrestd_killed_in_the_middle_of_an_answer(
    slurm_bed: Callable[..., SlurmBed], faults: Faults
) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False)
    async with (
        faults.in_front_of(bed.rest_url) as proxy,
        connect([proxy.url], MintedTokens(bed.jwt_key)) as client,
    ):
        kept = (await client.submit(batch_job(), key=new_key())).job_id
        async with polling(client) as poller:
            # The poller has half of an answer when slurmrestd dies and the connection with it.
            rule = proxy.hang(after_bytes=300, path="*/jobs/state/")
            await proxy.until_seen(path="*/jobs/state/", times=proxy.count(path="*/jobs/state/") + 1)
            bed.kill("slurmrestd")
            proxy.refuse()
            await until(lambda: not poller.contact.in_touch)
            assert str(kept) in poller.states
            rule.remove()
            proxy.heal()
            bed.start("slurmrestd")
            await until(lambda: poller.contact.in_touch)
            assert str(kept) in poller.states
            assert kept in poller.jobs


async def test_a_garbled_list_is_no_empty_list(slurm: SlurmBed, client: Client, faults: Faults) -> None:
    kept = (await client.submit(batch_job(), key=new_key())).job_id
    json = {"Content-Type": "application/json"}
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
        polling(watched) as poller,
    ):
        for body in (
            b'{"jobs": null}',
            b"{}",
            b'{"jobs": 7}',
            b'{"jobs": [{}]}',
            b"[",
            b"",
            b'{"jobs": [{"job_id": 1}]}',
        ):
            rule = proxy.respond(200, headers=json, body=body, path="*/jobs/state/*")
            await until(lambda: not poller.contact.in_touch)
            assert str(kept) in poller.states
            rule.remove()
            await until(lambda: poller.contact.in_touch)


async def test_where_jobs_are_very_many_nobody_waits_for_a_list_of_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a list takes minutes: until it is there, jobs are known that somebody names, and then all of them."""
    counted = hold_census(monkeypatch)
    before = (await client.submit(batch_job(), key=new_key())).job_id
    named: list[int] = []
    async with polling(client, waiting=lambda: named) as poller:
        assert not poller.jobs
        assert not poller.knows_jobs_since(time.time() + 3600)
        hot = (await client.submit(batch_job(), key=new_key())).job_id
        named.append(hot)
        await until(lambda: hot in poller.jobs)
        assert before not in poller.jobs
        counted.set()
        await until(lambda: before in poller.jobs and poller.knows_jobs_since(0))
        # Changes of those that nobody names are seen in their turn, and so are new ones.
        monkeypatch.setattr("isthmus.slurm.poller._ALL_LATEST", 0.1)
        await client.cancel_job(before)
        await until(lambda: poller.jobs[before].job_state == ("CANCELLED",))
        another = (await client.submit(batch_job(), key=new_key())).job_id
        await until(lambda: another in poller.jobs)
        for job_id in (hot, another):
            await client.cancel_job(job_id)


async def test_the_components_of_a_heterogeneous_job_are_told(client: Client) -> None:
    leader, other = batch_job(hold=None), batch_job(hold=None)
    async with polling(client, refresh=None) as poller:
        job_id = (await client.submit(leader, other, key=new_key())).job_id
        await until(lambda: {job_id, job_id + 1} <= set(poller.jobs))
        assert {poller.jobs[it].queue_id for it in (job_id, job_id + 1)} == {job_id}
        await until(lambda: all(poller.jobs[it].job_state == ("RUNNING",) for it in (job_id, job_id + 1)))
        await client.cancel_job(job_id)
        await until(lambda: all(poller.jobs[it].has_ended for it in (job_id, job_id + 1)))
