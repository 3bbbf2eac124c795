"""Jobs that Slurm took and then does not have, pods that nobody can read, submissions that nobody waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from isthmus import names
from isthmus.bridge.cache import inflight
from isthmus.bridge.cache.world import cluster_id
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.pod import PODS
from isthmus.slurm import submitter
from tests.bed.faults import Faults, Proxy
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import Bridge, pod, running, until
from tests.flows.bridge.crash_bed import Ground
from tests.flows.slurm.helpers import hold_census

pytestmark = pytest.mark.usefixtures("nodes")

SUBMISSIONS = "*/job/[as]*"
NEVER_THERE = 4_000_000
"""An id that Slurm has not given to any job."""


@asynccontextmanager
async def behind(proxy_of: Faults, slurm: SlurmBed, config: Config) -> AsyncIterator[tuple[Bridge, Proxy]]:
    async with (
        proxy_of.in_front_of(slurm.rest_url) as proxy,
        running(config, proxy.url, key=slurm.jwt_key) as bridge,
    ):
        await bridge.world.poller.synced()
        yield bridge, proxy


def acknowledge(proxy: Proxy, job_id: int) -> None:
    """Let the next submission be answered and come to nothing, as by a slurmctld that is killed right after it."""
    proxy.respond(200, body=f'{{"job_id": {job_id}}}'.encode(), method="POST", path=SUBMISSIONS, times=1)


@pytest.fixture
async def watchful(
    slurm_with_external_nodes: SlurmBed, faults: Faults, config: Config, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Bridge, Proxy]]:
    """A bridge that misses a job half a second after its submission, and the proxy before its Slurm."""
    monkeypatch.setattr(inflight, "UNSEEN", 0.5)
    async with behind(faults, slurm_with_external_nodes, config) as found:
        yield found


async def test_a_job_that_was_acknowledged_and_is_never_seen_is_submitted_again(
    watchful: tuple[Bridge, Proxy], namespace: str
) -> None:
    bridge, proxy = watchful
    acknowledge(proxy, NEVER_THERE)
    (found,) = await bridge.bound(await bridge.create(pod(namespace, "lost")))
    assert found.metadata.labels[names.JOB_ID_LABEL] != str(NEVER_THERE)


async def test_the_job_of_somebody_else_is_not_taken_for_one_that_is_lost(
    watchful: tuple[Bridge, Proxy], slurm_with_external_nodes: SlurmBed, client: Client, namespace: str
) -> None:
    """slurmctld gives the id of a job that it forgot to the next one."""
    bridge, proxy = watchful
    ground = Ground(
        client,
        bridge.world.slurm,
        slurm_with_external_nodes,
        cluster=await cluster_id(client),
        namespace=namespace,
        scheduler_name=names.SCHEDULER_NAME,
    )
    foreign = await ground.foreign_job("somebody else's")
    acknowledge(proxy, foreign)
    (found,) = await bridge.bound(await bridge.create(pod(namespace, "lost")))
    assert found.metadata.labels[names.JOB_ID_LABEL] != str(foreign)


async def test_a_job_that_a_restarted_slurmctld_does_not_know_is_submitted_again(
    slurm_bed: Callable[..., SlurmBed],
    faults: Faults,
    config: Config,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inflight, "UNSEEN", 3600.0)  # so that the restart alone is the reason to ask
    slurm = slurm_bed("26.05", nodes=0, external_nodes=2, accounting=False)
    async with behind(faults, slurm, config) as (bridge, proxy):
        # It must have told since when it counts, and we must have read that.
        while not (await bridge.world.slurm.diagnose()).since.value:  # noqa: ASYNC110 - Slurm tells nobody
            await asyncio.sleep(0.1)
        proxy.seen.clear()
        await proxy.until_seen(path="*/diag*", times=2)
        acknowledge(proxy, NEVER_THERE)
        key = await bridge.create(pod(namespace, "lost"))
        await proxy.until_seen(method="POST", path=SUBMISSIONS)
        slurm.restart("slurmctld")
        await bridge.bound(key)


@pytest.mark.parametrize("text", ["128e000006", "1001E", "0" * 100 + "1"])
async def test_odd_quantities_of_one_pod_stall_no_other(bridge: Bridge, namespace: str, text: str) -> None:
    """The API server takes them."""
    odd = await bridge.create(pod(namespace, "odd", cpu=text, schedulerName="somebody-else", nodeName="e1"))
    await until(lambda: bridge.world.pods.get(odd))
    await bridge.bound(await bridge.create(pod(namespace, "next", nodeSelector={})))
    assert bridge.world.in_touch


async def test_the_doubts_about_a_deleted_pod_go_with_it(
    slurm_with_external_nodes: SlurmBed,
    faults: Faults,
    config: Config,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as a submission is in doubt, each look for another reads every job since then."""
    monkeypatch.setattr(submitter, "_LOOKS", (0.0,))
    monkeypatch.setattr(submitter, "_LATE_LOOKS", (0.0,))
    async with behind(faults, slurm_with_external_nodes, config) as (bridge, proxy):
        proxy.cut(method="POST", path=SUBMISSIONS)
        key = await bridge.create(pod(namespace, "doubtful"))
        await until(lambda: bridge.world.slurm._submitter._doubts)
        await until(lambda: bridge.counted(names.SUBMIT_ERRORS, **{"class": "retry"}))
        await bridge.world.kube.delete(PODS, key, grace=0)
        await until(lambda: not bridge.world.slurm._submitter._doubts)


async def test_beside_very_many_jobs_new_pods_start_and_older_ones_get_no_second_job(
    slurm_with_external_nodes: SlurmBed, config: Config, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of all jobs takes minutes there. Whose job may be in it waits for it, and nobody else."""
    later = {f"{names.JOB_ANNOTATIONS}begin": "2037-01-01T00:00:00Z"}
    async with running(config, slurm_with_external_nodes) as bridge:
        old = await bridge.create(pod(namespace, "old", annotations=later))
        await until(lambda: [it for it in bridge.world.jobs if it.marker.name == "old"])
    counted = hold_census(monkeypatch)
    async with running(config, slurm_with_external_nodes) as bridge:
        await bridge.told(old, "ReadingSlurm")
        await bridge.bound(await bridge.create(pod(namespace, "new")))
        counted.set()
        await bridge.told(old, "SlurmPending")
        jobs = [it for it in bridge.world.jobs if it.marker.name == "old"]
        assert len(jobs) == 1, "it was submitted twice"
