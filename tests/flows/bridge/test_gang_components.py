"""Gangs whose pods differ: one heterogeneous job, with a component for each kind of pod."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from isthmus import names
from isthmus.bridge import withdrawal
from isthmus.bridge.cache.jobs import OurJob
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.languages.hostlist import expand
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.workload import POD_GROUPS
from isthmus.slurm.errors import AlreadyDone
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.workload_controllers import apply_kinds
from tests.flows.bridge.conftest import make_node, pod, running, until
from tests.flows.bridge.frameworks import gangs
from tests.flows.bridge.test_gangs import Gangs

__all__ = ["gangs"]

SMALL, LARGE = {"kind": "small"}, {"kind": "large"}


@pytest.fixture(autouse=True)
async def kinds(client: Client, nodes: list[str]) -> None:
    """Node e1 is small, the others are large: no node is both."""
    for name in nodes:
        await client.merge_patch(NODES, name, {"metadata": {"labels": SMALL if name == "e1" else LARGE}})


async def trio(gangs: Gangs, group: str = "trio") -> list[Key]:
    """Make a gang of a leader and two workers that need other nodes."""
    await gangs.create(POD_GROUPS, group, {"minMember": 3})
    labels = {names.POD_GROUP_LABEL: group}
    shapes: list[tuple[str, Mapping[str, str]]] = [("leader", SMALL), ("worker-0", LARGE), ("worker-1", LARGE)]
    return [
        await gangs.bridge.create(pod(gangs.namespace, f"{group}-{name}", labels=labels, nodeSelector=dict(where)))
        for name, where in shapes
    ]


def jobs_of(gangs: Gangs, *pods: Pod) -> list[OurJob]:
    """The components that hold these pods."""
    ids = {int(it.metadata.labels[names.JOB_ID_LABEL]) for it in pods}
    return [ours for job_id in sorted(ids) if (ours := gangs.world.jobs.get(job_id))]


async def finish(gangs: Gangs, found: Pod, phase: str = "Succeeded") -> None:
    await gangs.world.kube.merge_patch(PODS, found.metadata.key, {"status": {"phase": phase}}, subresource="status")


async def test_a_gang_of_pods_that_differ_starts_together(gangs: Gangs) -> None:
    leader, *workers = await gangs.bridge.bound(*await trio(gangs))
    assert leader.spec.node_name == "e1"
    assert {it.spec.node_name for it in workers} < {"e2", "e3", "e4"}
    first, second = jobs_of(gangs, leader, *workers)
    assert first.job.queue_id == second.job.queue_id == first.job_id
    assert (first.marker.slots, second.marker.slots) == (1, 2)
    assert len(gangs.living_jobs()) == 2, "each component is one of ours, and there is no third"
    assert second.marker.pods == tuple(str(it.metadata.key) for it in workers)


async def test_a_component_that_is_done_waits_for_the_others(gangs: Gangs) -> None:
    leader, *workers = await gangs.bridge.bound(*await trio(gangs))
    first, second = jobs_of(gangs, leader, *workers)
    await finish(gangs, leader)
    await finish(gangs, workers[0], "Failed")
    await until(lambda: (it := gangs.world.pods.get(workers[0].metadata.key)) and it.finished)
    assert {it.job_id for it in gangs.living_jobs()} == {first.job_id, second.job_id}
    await finish(gangs, workers[1])
    await until(lambda: not gangs.living_jobs())
    for ours in (first, second):
        (ended, *_) = await gangs.world.slurm.job(ours.job_id)
        told = json.loads(ended.admin_comment or "")["outcome"]
        assert told.startswith(str(workers[0].metadata.key)), "the worst member speaks for all"


async def test_a_replaced_member_takes_the_place_of_its_kind(gangs: Gangs) -> None:
    keys = await trio(gangs)
    _, *workers = await gangs.bridge.bound(*keys)
    await gangs.world.kube.delete(PODS, workers[0].metadata.key, grace=0)
    body = pod(gangs.namespace, "trio-new", labels={names.POD_GROUP_LABEL: "trio"}, nodeSelector=LARGE)
    (late,) = await gangs.bridge.bound(await gangs.bridge.create(body))
    assert late.spec.node_name == workers[0].spec.node_name
    assert late.metadata.labels[names.JOB_ID_LABEL] == workers[0].metadata.labels[names.JOB_ID_LABEL]
    assert len(gangs.living_jobs()) == 2


async def test_cancelling_the_job_ends_all_its_pods(gangs: Gangs, slurm_with_external_nodes: SlurmBed) -> None:
    keys = await trio(gangs)
    first, *_ = jobs_of(gangs, *await gangs.bridge.bound(*keys))
    slurm_with_external_nodes.command("scancel", str(first.job_id))
    await until(lambda: all((it := gangs.world.pods.get(key)) is None or it.leaving for key in keys))


async def waiting(gangs: Gangs) -> tuple[list[Key], list[Key], list[OurJob]]:
    """Fill e1, and let a gang wait for it; return the filler, the gang and its components."""
    filler = await gangs.bridge.create(pod(gangs.namespace, "filler", nodeSelector=SMALL))
    await gangs.bridge.bound(filler)
    keys = await trio(gangs)
    for key in keys:
        await gangs.bridge.told(key, "SlurmPending")
    jobs = [it for it in gangs.living_jobs() if it.marker.name == "trio"]
    assert len(jobs) == 2
    return [filler], keys, jobs


async def test_a_member_deleted_while_the_gang_waits_takes_all_components_back(gangs: Gangs) -> None:
    (filler,), (leader, worker, other), _ = await waiting(gangs)
    await gangs.world.kube.delete(PODS, worker, grace=0)
    await until(lambda: len(gangs.living_jobs()) == 1)
    assert "2 of 3 pods" in await gangs.bridge.told(leader, "WaitingForGang")
    body = pod(gangs.namespace, "trio-new", labels={names.POD_GROUP_LABEL: "trio"}, nodeSelector=LARGE)
    late = await gangs.bridge.create(body)
    await gangs.world.kube.delete(PODS, filler, grace=0)
    await gangs.bridge.bound(leader, other, late)
    assert len(gangs.living_jobs()) == 2


async def test_a_gang_whose_job_is_cancelled_while_it_waits_goes(
    gangs: Gangs, slurm_with_external_nodes: SlurmBed
) -> None:
    _, keys, jobs = await waiting(gangs)
    slurm_with_external_nodes.command("scancel", str(min(it.job_id for it in jobs)))
    await until(lambda: not any(gangs.world.pods.get(key) for key in keys))
    assert not [it for it in gangs.living_jobs() if it.marker.name == "trio"]


async def test_a_node_that_no_longer_fits_one_kind_is_left_out_for_that_kind(gangs: Gangs) -> None:
    _, _, jobs = await waiting(gangs)
    leader, workers = sorted(jobs, key=lambda it: it.job_id)
    await gangs.world.kube.merge_patch(NODES, "e4", {"metadata": {"labels": SMALL}})

    def excluded(ours: OurJob) -> list[str]:
        known = gangs.world.jobs.get(ours.job_id)
        return expand((known and known.job.excluded_nodes) or "")

    # What Slurm says of them, since they are read again while they wait.
    await until(lambda: "e4" in excluded(workers) and "e4" not in excluded(leader))


async def test_a_new_process_finds_the_components_of_the_one_before(
    config: Config, slurm_with_external_nodes: SlurmBed, namespace: str, control_plane: ControlPlaneBed
) -> None:
    await asyncio.to_thread(apply_kinds, control_plane, "podgroup")
    async with running(config, slurm_with_external_nodes) as bridge:
        (filler,), keys, jobs = await waiting(Gangs(bridge, namespace))
        (filling,) = await bridge.bound(filler)
    async with running(config, slurm_with_external_nodes) as bridge:
        await bridge.world.kube.delete(PODS, filler, grace=0)
        with suppress(AlreadyDone):  # whoever looks after jobs may be faster
            await bridge.world.slurm.cancel_job(int(filling.metadata.labels[names.JOB_ID_LABEL]))
        pods = await bridge.bound(*keys)
        assert {it.metadata.labels[names.JOB_ID_LABEL] for it in pods} == {str(it.job_id) for it in jobs}


async def test_a_submission_that_slurm_refuses_half_way_costs_no_pod(gangs: Gangs) -> None:
    """Slurm makes the components one by one, and cancels those that it made when it refuses one."""
    await gangs.create(POD_GROUPS, "pair", {"minMember": 2})
    labels = {names.POD_GROUP_LABEL: "pair"}
    wrong = {f"{names.JOB_ANNOTATIONS}reservation": "no-such-reservation"}
    first = await gangs.bridge.create(pod(gangs.namespace, "pair-0", labels=labels, nodeSelector=SMALL))
    body = pod(gangs.namespace, "pair-1", labels=labels, nodeSelector=LARGE, annotations=wrong)
    second = await gangs.bridge.create(body)
    told = await gangs.bridge.told(second, "SlurmRefused")
    assert "eservation" in told
    assert gangs.bridge.counted(names.SUBMIT_ERRORS, **{"class": "terminal"}) >= 1
    (left, *_) = await until(lambda: [it for it in gangs.world.jobs if it.marker.keys == (first,)])
    assert left.job.job_state == ("CANCELLED",)
    assert not withdrawal.is_withdrawn(left, [left]), "it looks as if somebody had cancelled it"
    for key in (first, second):
        assert not (await gangs.world.kube.get(PODS, key)).leaving


async def test_an_older_slurm_is_not_asked_for_what_it_could_never_start(
    config: Config,
    shared_slurm: Callable[..., SlurmBed],
    client: Client,
    namespace: str,
    control_plane: ControlPlaneBed,
) -> None:
    await asyncio.to_thread(apply_kinds, control_plane, "podgroup")
    for name, kind in (("n1", SMALL), ("n2", LARGE)):
        await make_node(client, name, labels=kind)
    try:
        async with running(config, shared_slurm("24.11"), defaults=Defaults(placeholder="batch")) as bridge:
            gangs = Gangs(bridge, namespace)
            await gangs.create(POD_GROUPS, "pair", {"minMember": 2})
            labels = {names.POD_GROUP_LABEL: "pair"}
            keys = [
                await bridge.create(pod(namespace, name, labels=labels, nodeSelector=where))
                for name, where in (("leader", SMALL), ("worker", LARGE))
            ]
            told = await bridge.told(keys[0], "SlurmRefused")
            assert "its pods need different nodes (1 like leader, 1 like worker), which Slurm 24.11" in told
            assert "upgrade Slurm to 26.05" in told
            assert not gangs.living_jobs()
    finally:
        for name in ("n1", "n2"):
            await client.delete(NODES, name)
