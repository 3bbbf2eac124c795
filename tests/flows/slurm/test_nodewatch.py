"""Nodes of a real Slurm as a change stream: what the operator decides by."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from isthmus.model.slurm import NodeChange
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.nodewatch import NodeWatch
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually as until


@asynccontextmanager
async def watching(client: Client, *, idle: float = 0.3) -> AsyncIterator[NodeWatch]:
    watch = NodeWatch(client, idle=idle)
    task = asyncio.get_running_loop().create_task(watch.run())
    try:
        await until(lambda: watch.contact.in_touch)
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nodes_are_followed_and_each_reading_says_from_when_it_is(client: Client) -> None:
    async with watching(client) as watch:
        assert set(watch.nodes) >= {"n1", "n2"}
        for reason in ("first", "second"):
            await client.update_node("n2", NodeChange(state=("DRAIN",), reason=reason))
            written = time.monotonic()
            await until(lambda written=written: (watch.as_of or 0) > written)  # type: ignore[misc]
            assert watch.nodes["n2"].reason == reason  # a reading that began later has it
        await client.update_node("n2", NodeChange(state=("RESUME",)))
        await until(lambda: "DRAIN" not in watch.nodes["n2"].state)


async def test_who_hurries_does_not_wait_for_the_next_round(client: Client) -> None:
    async with watching(client, idle=3600.0) as watch:
        written = time.monotonic()
        await until(lambda: (watch.as_of or 0) < written)
        watch.hurry()
        await until(lambda: (watch.as_of or 0) > written)


async def test_at_rest_it_asks_less_than_once_a_second(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
    ):
        watch = NodeWatch(watched)
        task = asyncio.get_running_loop().create_task(watch.run())
        await until(lambda: watch.contact.in_touch)
        before, began = proxy.count(path="*"), time.monotonic()
        await proxy.until_seen(path="*/nodes/*", times=proxy.count(path="*/nodes/*") + 3)
        calls, seconds = proxy.count(path="*") - before, time.monotonic() - began
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert calls / seconds <= 1.0


async def test_slurm_away_is_a_state_of_its_own_and_what_was_known_stays(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as watched,
        watching(watched) as watch,
    ):
        told: list[bool] = []
        watch.on_contact(lambda: told.append(watch.contact.in_touch))
        known, looked = set(watch.nodes), proxy.count(path="*/diag/")
        proxy.refuse()
        await until(lambda: not watch.contact.in_touch)
        assert watch.contact.trouble
        assert set(watch.nodes) == known
        proxy.heal()
        await until(lambda: watch.contact.in_touch)
        assert told == [False, True]
        assert proxy.count(path="*/diag/") > looked, "it may be another slurmctld"


async def test_a_reconfigured_slurmctld_is_noticed(client: Client) -> None:
    async with watching(client) as watch:
        told: list[float] = []
        watch.on_restart(lambda: told.append(time.monotonic()))
        await client.reconfigure()
        watch.hurry()
        await until(lambda: bool(told))
        assert set(watch.nodes) >= {"n1", "n2"}
