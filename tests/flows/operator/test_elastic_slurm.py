"""Elastic nodes on a real Slurm of each release, without Kubernetes."""

import json
import time
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus.domain.elastic.decision import FENCED, HELD, RESUME_TIMEOUT, phase_of
from isthmus.domain.elastic.outlook import SQUEUE, waiting
from isthmus.domain.operator.slurmfiles import power
from isthmus.model.slurm import Node
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import wait_until
from tests.flows.operator.elastic_bed import IDLE, Site, elastic_site
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


def remembered(site: Site, job: int) -> None:
    """Wait until slurmctld has written down what it does: it does so some seconds later."""
    began = time.time()
    site.bed.scontrol("update", f"JobId={job}", "Comment=remember")
    site.bed.scontrol("update", f"NodeName={','.join(site.pods)}", "Comment=remember")
    state = [site.bed.state_directory / it for it in ("job_state", "node_state")]
    wait_until(lambda: all(it.exists() and it.stat().st_mtime > began for it in state), what="its state", within=60)


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
    # A slurmctld that is killed in the midst of it neither loses nor gives up its nodes.
    remembered(site, job)
    site.bed.kill("slurmctld")
    site.bed.start("slurmctld")
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


@pytest.mark.parametrize("release", VERSIONS)
async def test_nodes_that_slurm_gives_up_are_off_again_when_they_are_tried_anew(
    slurm_bed: Callable[..., SlurmBed], release: str
) -> None:
    """A slurmd that hangs: its pod runs, and its node never registers."""
    async with elastic_site(slurm_bed, release, ResumeTimeout="3") as site:
        job = site.submit("-wa-0")
        found = await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "failed")
        assert found["a-0"].reason.startswith(RESUME_TIMEOUT)
        await site.job_is(job, "PENDING")
        await site.ask("SetDown", "a-0", why=f"{HELD}nodes did not come in time")
        await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "held")
        await site.ask("PowerDown", "a-0")
        await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "stopping")
        await site.ask("Settle", "a-0")
        await site.all("off", without="DOWN")


async def test_only_jobs_that_wait_for_nodes_start_some(site: Site) -> None:
    held = site.submit("-N1", "--hold")
    site.submit("-N1", f"--dependency=afterok:{held}")
    site.submit("-N1", "--begin=now+1hour")
    first = site.submit("-N1", "--exclusive")
    # Slurm has looked at those before it.
    await site.job_is(first, "CONFIGURING")
    await eventually(site.nodes, lambda found: sorted(map(phase_of, found.values())) == ["off", "starting"])
    assert demand(site) == {str(first): "CONFIGURING"}
    second = site.submit("-N1", "--exclusive")
    await site.all("starting")
    # All nodes have a job: there is nothing more to start.
    third = site.submit("-N1", "--exclusive", "--array=1-3")
    wait_until(lambda: len(demand(site)) == 5, what="the tasks of the third job wait for nodes", within=60)
    tasks = {f"{third}_{it}": "PENDING" for it in (1, 2, 3)}
    assert demand(site) == {str(first): "CONFIGURING", str(second): "CONFIGURING", **tasks}


@pytest.mark.parametrize("release", VERSIONS)
async def test_jobs_that_an_account_limit_holds_start_nothing(
    slurm_bed: Callable[..., SlurmBed], release: str
) -> None:
    async with elastic_site(slurm_bed, release, accounting=True, AccountingStorageEnforce="limits") as site:
        for account, *limits in (("full", "GrpJobs=0"), ("free",)):
            site.bed.command("sacctmgr", "-i", "add", "account", account, *limits)
            site.bed.command("sacctmgr", "-i", "add", "user", "alice", f"account={account}")
        held = site.submit("-N2", "--account=full")
        first = site.submit("-wa-0", "--account=free")
        # Slurm has looked at the one before it.
        await site.job_is(first, "CONFIGURING")
        assert (await site.client.job(held))[0].state_reason == "AssocGrpJobsLimit"
        assert demand(site) == {str(first): "CONFIGURING"}
        assert phase_of((await site.nodes())["b-0"]) == "off"
        site.bed.command("scancel", str(first))
        site.bed.command("sacctmgr", "-i", "modify", "account", "full", "set", "GrpJobs=-1")
        await site.all("starting")
        await site.job_is(held, "CONFIGURING")


def demand(site: Site) -> dict[str, str]:
    """What `isthmus elastic` shows: jobs and their states."""
    return {it.id: it.state for it in waiting(site.bed.command(*SQUEUE))}


@pytest.mark.parametrize("release", VERSIONS)
async def test_jobs_start_the_nodes_that_have_what_they_ask_for(
    slurm_bed: Callable[..., SlurmBed], release: str
) -> None:
    """Devices and features of nodes that are off; the device is found when the node is up."""
    npu = {"resource": "example.org/npu", "gres": "npu", "files": ["/dev/urandom"]}
    limits = {"cpu": "2", "memory": "512Mi", "example.org/npu": "1"}
    special = {"slurmd": {"resources": {"limits": limits}}, "devices": [npu], "features": "quick"}
    last = {"autoscale": {"idleTime": IDLE, "fallbackOrder": 5}}
    async with elastic_site(slurm_bed, release, only={"a": last, "b": special}) as site:
        with pytest.raises(RuntimeError, match="Requested node configuration is not available"):
            site.submit("--gres=npu:2")
        job = site.submit("--gres=npu:1", "--constraint=quick")
        await eventually(site.nodes, lambda found: phase_of(found["b-0"]) == "starting")
        assert phase_of((await site.nodes())["a-0"]) == "off"
        site.pods["b-0"].start()
        await site.job_is(job, "COMPLETED")
        site.pods["b-0"].end()
        await site.ask("PowerDown", "b-0")
        await eventually(site.nodes, lambda found: phase_of(found["b-0"]) == "stopping")
        await site.ask("Settle", "b-0")
        await site.all("off")
        # Of nodes that would do, those of the NodeSet that is first in order.
        site.submit("-N1")
        found = await eventually(site.nodes, lambda found: phase_of(found["b-0"]) == "starting")
        assert phase_of(found["a-0"]) == "off"


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
