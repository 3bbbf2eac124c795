"""What the health loop does in Slurm, in each version: drains that heed others, reservations, requeueing."""

from collections.abc import AsyncIterator

import pytest

from isthmus.health.reservations import reservation_name, reserved_nodes
from isthmus.health.slurm_actions import SlurmActions
from isthmus.model.slurm import Node
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.versions import Feature
from tests.bed.slurm import SlurmBed
from tests.flows.health.bed import commands_in
from tests.flows.slurm.helpers import batch_job, eventually, job_in_state, new_key

REASON = "[node_problem] gpu-check: job 17 [slurm_job]"


@pytest.fixture
async def client(nodes: SlurmBed) -> AsyncIterator[Client]:
    async with connect((nodes.rest_url,), MintedTokens(nodes.jwt_key.read_bytes(), user="slurm")) as client:
        yield client


async def seen(client: Client) -> dict[str, Node | None]:
    listing = await client.nodes()
    assert listing
    return {it.name: it for it in listing.nodes}


async def test_nodes_are_drained_and_released(client: Client, nodes: SlurmBed) -> None:
    await SlurmActions(client, await seen(client), commands_in(nodes)).drain(("n1", "n2", "absent"), REASON)
    for name in ("n1", "n2"):
        node = await client.node(name)
        assert "DRAIN" in node.state
        assert node.reason == REASON
    assert "DRAIN" not in (await client.node("n3")).state
    actions = SlurmActions(client, await seen(client), commands_in(nodes))
    await actions.release(("n1",), "")
    await actions.release(("n2",), "slurm-operator: cordoned")
    assert "DRAIN" not in (await client.node("n1")).state
    left = await client.node("n2")
    assert ("DRAIN" in left.state, left.reason) == (True, "slurm-operator: cordoned")


async def test_a_node_that_somebody_changed_since_the_decision_is_left_alone(
    client: Client, nodes: SlurmBed
) -> None:
    before = await seen(client)
    nodes.scontrol("update", "nodename=n1", "state=drain", "reason=alice looks into it")
    await SlurmActions(client, before, commands_in(nodes)).drain(("n1",), REASON)
    assert (await client.node("n1")).reason == "alice looks into it"

    await SlurmActions(client, await seen(client), commands_in(nodes)).drain(("n2",), REASON)
    before = await seen(client)
    nodes.scontrol("update", "nodename=n2", "state=drain", "reason=alice looks into it")
    await SlurmActions(client, before, commands_in(nodes)).release(("n2",), "")
    found = await client.node("n2")
    assert ("DRAIN" in found.state, found.reason) == (True, "alice looks into it")


async def test_a_node_that_is_down_comes_back_by_a_release(client: Client, nodes: SlurmBed) -> None:
    nodes.scontrol("update", "nodename=n1", "state=down", f"reason={REASON}")
    nodes.scontrol("update", "nodename=n1", "state=drain", f"reason={REASON}")
    assert {"DOWN", "DRAIN"} <= set((await client.node("n1")).state)
    await SlurmActions(client, await seen(client), commands_in(nodes)).release(("n1",), "")
    out = {"DOWN", "DRAIN", "NOT_RESPONDING"}
    await eventually(lambda: client.node("n1"), lambda it: out.isdisjoint(it.state))


async def test_comments_are_set_and_taken_away(client: Client, nodes: SlurmBed) -> None:
    actions = SlurmActions(client, await seen(client), commands_in(nodes))
    await actions.comment("n1", "gpu-check: slow")
    assert (await client.node("n1")).comment == "gpu-check: slow"
    await actions.comment("n1", "")
    assert (await client.node("n1")).comment == ""


async def test_only_a_test_runs_on_a_reserved_node(client: Client, nodes: SlurmBed) -> None:
    await SlurmActions(client, await seen(client), commands_in(nodes)).drain(("n1",), REASON)
    actions = SlurmActions(client, await seen(client), commands_in(nodes))
    await actions.reserve("n1", users=("nobody-knows-her",))
    assert "DRAIN" not in (await client.node("n1")).state
    assert await reserved_nodes(client) == {"n1"}

    waiting = nodes.command("sbatch", "--parsable", "-w", "n1", "-o/dev/null", "--wrap=true", user="alice").strip()
    inside = batch_job("true", hold=None, required_nodes=("n1",), reservation=reservation_name("n1"))
    job = (await client.submit(inside, key=new_key())).job_id
    await job_in_state(client, job, "COMPLETED")
    (outside,) = await client.job(int(waiting))
    assert "PENDING" in outside.job_state

    # Whoever is killed between two steps does them again.
    await SlurmActions(client, await seen(client), commands_in(nodes)).reserve("n1")
    await actions.unreserve("n1")
    await actions.unreserve("n1")
    assert await client.reservations() == ()
    await job_in_state(client, int(waiting), "COMPLETED")


async def test_jobs_are_requeued_and_none_is_lost(client: Client, nodes: SlurmBed) -> None:
    job = (await client.submit(batch_job(hold=None, required_nodes=("n1",), requeue=True), key=new_key())).job_id
    await job_in_state(client, job, "RUNNING")
    await SlurmActions(client, await seen(client), commands_in(nodes)).drain(("n1",), REASON)
    told = await SlurmActions(client, await seen(client), commands_in(nodes)).requeue("n1")
    assert told in {"requeued 1 of 1 jobs", "requeued 1 jobs"}
    found = await eventually(lambda: client.job(job), lambda it: it[0].restarts == 1)
    assert "PENDING" in found[0].job_state or "COMPLETING" in found[0].job_state
    assert (await client.node("n1")).reason == REASON
    nodes.command("scancel", str(job))
    assert (
        await SlurmActions(client, await seen(client), commands_in(nodes)).requeue("n2") == "no job is left on it"
    )


async def test_a_job_that_may_not_be_requeued_goes_on(client: Client, nodes: SlurmBed) -> None:
    job = (await client.submit(batch_job(hold=None, required_nodes=("n1",), requeue=False), key=new_key())).job_id
    await job_in_state(client, job, "RUNNING")
    await SlurmActions(client, await seen(client), commands_in(nodes)).drain(("n1",), REASON)
    told = await SlurmActions(client, await seen(client), commands_in(nodes)).requeue("n1")
    can = (await client.server()).has(Feature.REQUEUE)
    assert told == ("requeued 0 of 1 jobs" if can else "its jobs cannot be requeued and keep running")
    (found,) = await client.job(job)
    assert "RUNNING" in found.job_state
    nodes.command("scancel", str(job))
