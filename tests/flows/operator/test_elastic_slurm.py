"""Elastic nodes on a real Slurm of each release, without Kubernetes."""

import json
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus.domain.elastic.decision import FENCED, HELD, phase_of
from isthmus.domain.operator.slurmfiles import power
from isthmus.model.slurm import Node
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import wait_until
from tests.flows.operator.elastic_bed import Site, elastic_site
from tests.flows.slurm.helpers import eventually


@pytest.fixture(params=VERSIONS)
async def site(request: pytest.FixtureRequest, slurm_bed: Callable[..., SlurmBed]) -> AsyncIterator[Site]:
    async with elastic_site(slurm_bed, request.param, idle=2) as made:
        yield made


@pytest.fixture(params=VERSIONS)
async def patient_site(request: pytest.FixtureRequest, slurm_bed: Callable[..., SlurmBed]) -> AsyncIterator[Site]:
    """One whose nodes may be idle for longer than a busy machine holds anybody up."""
    async with elastic_site(slurm_bed, request.param, idle=10) as made:
        yield made


async def test_a_gang_brings_its_nodes_up_and_they_go_when_they_are_idle(site: Site) -> None:
    found = await site.all("off")
    assert {(it.cpus, it.real_memory, it.features) for it in found.values()} == {
        (2, 512, ("a",)),
        (2, 512, ("b",)),
    }
    job = site.submit("-N2")
    await site.all("starting")
    await site.job_is(job, "CONFIGURING")
    record = site.bed.path(power.RECORD)
    wait_until(record.exists, what="our program was called", within=60)
    told = json.loads(record.read_text().splitlines()[0])
    assert (told["verb"], told["nodes"]) == ("resume", "a-0,b-0")
    assert told["resume"]["jobs"][0]["job_id"] == job
    # A slurmctld that comes back in the midst of it neither loses nor gives up its nodes.
    site.bed.restart("slurmctld")
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.job_is(job, "COMPLETED")
    await site.all("stopping")
    for pod in site.pods.values():
        pod.end()
    assert all("DRAIN" not in it.state for it in (await site.nodes()).values()), "nobody has to bring them back"
    # Slurm would wait for ten minutes.
    await site.ask("Settle", *site.pods)
    await site.all("off")
    # And again: what is left of the first time is in nobody's way.
    again = site.submit("-N2")
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.job_is(again, "COMPLETED")


async def test_a_slurmd_from_before_is_not_accepted(site: Site) -> None:
    """So a pod that was there before its node was started has to be replaced."""
    await site.ask("PowerUp", *site.pods)
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.all("stopping")
    await site.ask("Settle", *site.pods)
    await site.all("off")
    job = site.submit("-wa-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.bed.scontrol("reconfigure")  # every slurmd that there is registers again
    site.pods["a-0"].end()
    assert phase_of((await site.nodes())["a-0"]) == "starting"
    site.pods["a-0"].start()
    await site.job_is(job, "COMPLETED")


async def test_nodes_that_do_not_come_give_their_job_back(site: Site) -> None:
    job = site.submit("-wa-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    await site.ask("SetDown", "a-0", why=f"{HELD}no machine")
    found = await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "held")
    assert found["a-0"].reason == f"{HELD}no machine"
    await site.job_is(job, "PENDING")
    await site.ask("PowerDown", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "stopping")
    await site.ask("Settle", "a-0")
    await site.all("off", without="DOWN")
    # The first one may begin again in two minutes: so long, Slurm takes its credentials for valid.
    site.submit("-wa-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")


async def test_a_fenced_node_is_not_given_to_jobs(site: Site) -> None:
    await site.ask("Fence", "a-0", why=f"{FENCED}autoscale.max is 0")
    fenced = (await site.nodes())["a-0"]
    assert phase_of(fenced) == "off"
    assert "DRAIN" in fenced.state
    job = site.submit("-N1")
    await eventually(site.nodes, lambda found: phase_of(found["b-0"]) == "starting")
    waiting = site.submit("-N1")
    assert phase_of((await site.nodes())["a-0"]) == "off"
    await site.ask("Unfence", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.bed.command("scancel", str(job), str(waiting))


async def test_a_node_is_kept_awake(patient_site: Site) -> None:
    site = patient_site
    await site.ask("PowerUp", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.pods["a-0"].start()
    found = await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "on")
    began = found["a-0"].last_busy.value or 0

    async def awake() -> dict[str, Node]:
        await site.ask("KeepAwake", "a-0")
        return await site.nodes()

    # For longer than it may be idle.
    found = await eventually(awake, lambda found: (found["a-0"].last_busy.value or 0) >= began + 12)
    assert phase_of(found["a-0"]) == "on"
