"""Gangs on a real API server and a real Slurm, made by the real controllers of JobSet and LeaderWorkerSet."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from isthmus import names
from isthmus.bridge.cache.jobs import OurJob
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.groups import GANG_ANNOTATION
from isthmus.domain.languages.hostlist import expand
from isthmus.kube.config import Config
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.workload import (
    BUILTIN_POD_GROUPS,
    JOBS,
    JOBSETS,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    STATEFUL_SETS,
)
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import WITHIN, Bridge, pod, running, until
from tests.flows.bridge.whole import whole
from tests.flows.kube.conftest import make_namespace

SHARED = {f"{names.JOB_ANNOTATIONS}exclusive": "false"}
GANG = {GANG_ANNOTATION: "true"}


class Gangs:
    """A bridge with all its controllers, and what people do with gangs."""

    def __init__(self, bridge: Bridge, namespace: str) -> None:
        self.bridge = bridge
        self.world = bridge.world
        self.namespace = namespace

    async def create(self, kind: Kind[Any], name: str, spec: Mapping[str, Any], **meta: Any) -> Key:
        metadata = {"namespace": self.namespace, "name": name, **meta}
        await self.world.kube.create(kind, {"metadata": metadata, "spec": spec})
        return Key(self.namespace, name)

    async def members(self, group: str, *numbers: int, **more: Any) -> list[Key]:
        """Create pods of a PodGroup of scheduler-plugins."""
        labels = {names.POD_GROUP_LABEL: group}
        return [
            await self.bridge.create(pod(self.namespace, f"{group}-{number}", labels=labels, **more))
            for number in numbers
        ]

    def pods(self, **labels: str) -> list[Pod]:
        """Pods of this test with such labels, by name."""
        found = [
            it
            for it in self.world.pods.values()
            if it.metadata.namespace == self.namespace and labels.items() <= it.metadata.labels.items()
        ]
        return sorted(found, key=lambda it: it.metadata.name)

    async def bound(self, count: int) -> list[Pod]:
        """Wait until the test has so many pods, all with nodes."""

        def all_bound() -> list[Pod] | None:
            found = [it for it in self.pods() if not it.leaving and not it.finished]
            return found if len(found) == count and all(it.bound for it in found) else None

        pods: list[Pod] = await until(all_bound)
        return pods

    def living_jobs(self) -> list[OurJob]:
        return [
            it
            for it in self.world.jobs
            if it.marker.namespace == self.namespace and jobstates.living(it.job.job_state)
        ]

    async def one_job(self, *pods: Pod) -> OurJob:
        """Make sure that these pods have one job, and its nodes."""
        labels = {it.metadata.labels[names.JOB_ID_LABEL] for it in pods}
        assert len(labels) == 1
        job_id = int(labels.pop())
        # The cache may know the job's id before it knows its nodes.
        ours: OurJob = await until(lambda: (it := self.world.jobs.get(job_id)) and it.job.nodes and it)
        assert {it.spec.node_name for it in pods} <= set(expand(ours.job.nodes or ""))
        return ours


@pytest.fixture
async def gangs(bridge: Bridge, namespace: str, workload_controllers: ControlPlaneBed) -> AsyncIterator[Gangs]:
    del workload_controllers
    async with whole(bridge):
        yield Gangs(bridge, namespace)
    # Their controllers would replace the pods that are deleted next, and the following test would meet those.
    kube = bridge.world.kube
    kinds: tuple[Kind[Any], ...] = (LEADER_WORKER_SETS, JOBSETS, STATEFUL_SETS, JOBS)
    for kind in kinds:
        await kube.delete_all(kind, namespace=namespace, propagation="Background")
        async with asyncio.timeout(WITHIN):
            while (await kube.list(kind, namespace=namespace)).items:  # noqa: ASYNC110 - controllers let go of them
                await asyncio.sleep(0.05)


def template(**more: Any) -> dict[str, Any]:
    """A pod template of the kinds that make pods."""
    made = pod("", "", **more)
    del made["metadata"]["namespace"], made["metadata"]["name"]
    return made


async def test_a_gang_starts_together_by_one_job_and_not_before_it_is_complete(gangs: Gangs) -> None:
    await gangs.create(POD_GROUPS, "trio", {"minMember": 3})
    first, second = await gangs.members("trio", 0, 1)
    await gangs.bridge.told(first, "WaitingForGang", containing="2 of 3 pods")
    assert not gangs.living_jobs(), "an incomplete gang holds nodes"
    (third,) = await gangs.members("trio", 2)
    pods = await gangs.bridge.bound(first, second, third)
    job = await gangs.one_job(*pods)
    assert [it.spec.node_name for it in pods] == expand(job.job.nodes or ""), "ranks are not in Slurm's order"
    assert len(gangs.living_jobs()) == 1
    assert job.job.name == "trio"


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.usefixtures("nodes", "workload_controllers")
async def test_a_gang_that_may_grow_is_not_submitted_before_it_stopped_growing(
    config: Config, slurm_with_external_nodes: SlurmBed, namespace: str
) -> None:
    """With a clock that stands still: the members come as late as they like, and none comes too late."""
    clock = Clock()
    async with running(config, slurm_with_external_nodes, clock=clock) as bridge:
        gangs = Gangs(bridge, namespace)

        async def looked_at() -> None:
            """Wait for a pass that began after this call: the first one to end may have begun before."""
            count, labels = names.DECISIONS.name, {"step": "submit"}
            before = bridge.metrics.registry.get_sample_value(count, labels) or 0
            await until(
                lambda: (
                    gangs.living_jobs()
                    or (bridge.metrics.registry.get_sample_value(count, labels) or 0) > before + 1
                )
            )

        await gangs.create(POD_GROUPS, "many", {"minMember": 1})
        await gangs.members("many", 0)
        await looked_at()
        await gangs.members("many", 1, 2)
        await until(lambda: len(gangs.pods()) == 3)
        await looked_at()
        assert not gangs.living_jobs(), "it was submitted while it may still grow"
        clock.now += 1
        (job,) = await until(gangs.living_jobs)
        assert job.marker.slots == 3


async def test_a_gang_waits_for_its_podgroup(gangs: Gangs) -> None:
    keys = await gangs.members("late", 0, 1)
    told = await gangs.bridge.told(keys[0], "WaitingForGang")
    assert f"{gangs.namespace}/late does not exist" in told
    await gangs.create(POD_GROUPS, "late", {"minMember": 2})
    await gangs.one_job(*await gangs.bridge.bound(*keys))


async def test_a_built_in_podgroup_starts_together(gangs: Gangs) -> None:
    await gangs.create(BUILTIN_POD_GROUPS, "pair", {"schedulingPolicy": {"gang": {"minCount": 2}}})
    group = {"podGroupName": "pair"}
    first = await gangs.bridge.create(pod(gangs.namespace, "pair-0", schedulingGroup=group))
    assert "1 of 2 pods" in await gangs.bridge.told(first, "WaitingForGang")
    second = await gangs.bridge.create(pod(gangs.namespace, "pair-1", schedulingGroup=group))
    await gangs.one_job(*await gangs.bridge.bound(first, second))


async def test_a_member_that_is_replaced_joins_the_running_gang(gangs: Gangs) -> None:
    await gangs.create(POD_GROUPS, "trio", {"minMember": 3})
    pods = await gangs.bridge.bound(*await gangs.members("trio", 0, 1, 2))
    job = await gangs.one_job(*pods)
    await gangs.world.kube.delete(PODS, pods[1].metadata.key, grace=0)
    (key,) = await gangs.members("trio", 7)
    (late,) = await gangs.bridge.bound(key)
    assert late.metadata.labels[names.JOB_ID_LABEL] == str(job.job_id)
    assert late.spec.node_name == pods[1].spec.node_name, "it is not in the place that became free"
    assert [it.job_id for it in gangs.living_jobs()] == [job.job_id]


async def test_a_member_whose_place_cannot_be_used_gets_another_and_the_gang_goes_on(gangs: Gangs) -> None:
    """One bad node must not end a gang: its job, and the pods that run by it, stay."""
    await gangs.create(POD_GROUPS, "trio", {"minMember": 3})
    pods = await gangs.bridge.bound(*await gangs.members("trio", 0, 1, 2))
    job = await gangs.one_job(*pods)
    lost, *others = pods
    await gangs.world.kube.merge_patch(NODES, lost.spec.node_name, {"spec": {"unschedulable": True}})
    await until(
        lambda: (it := gangs.world.nodes.get(Key("", lost.spec.node_name))) is not None and it.spec.unschedulable
    )
    await gangs.world.kube.delete(PODS, lost.metadata.key, grace=0)
    (key,) = await gangs.members("trio", 7)
    (late,) = await gangs.bridge.bound(key)
    assert late.spec.node_name not in {it.spec.node_name for it in pods}
    assert late.metadata.labels[names.JOB_ID_LABEL] != str(job.job_id)
    found = [gangs.world.pods.get(it.metadata.key) for it in others]
    assert [it and (it.metadata.uid, it.leaving) for it in found] == [(it.metadata.uid, False) for it in others]
    (same, *_) = await gangs.world.slurm.job(job.job_id)
    assert same.job_state == ("RUNNING",)


async def test_a_gang_that_comes_anew_does_not_take_what_its_predecessor_is_losing(gangs: Gangs) -> None:
    """The job of pods that are all gone is about to be ended: who took its slots now would go with it."""
    await gangs.create(POD_GROUPS, "pair", {"minMember": 2})
    pods = await gangs.bridge.bound(*await gangs.members("pair", 0, 1))
    job = await gangs.one_job(*pods)
    for gone in pods:
        await gangs.world.kube.delete(PODS, gone.metadata.key, grace=0)
    found = await gangs.bridge.bound(*await gangs.members("pair", 2, 3))
    again = await gangs.one_job(*found)
    assert again.job_id != job.job_id
    await until(lambda: [it.job_id for it in gangs.living_jobs()] == [again.job_id])
    assert not any(it.leaving for it in gangs.pods())


async def test_members_that_have_ended_do_not_count(gangs: Gangs) -> None:
    """A gang that ran and ended under this name is not half of the next one."""
    await gangs.create(POD_GROUPS, "pair", {"minMember": 2})
    pods = await gangs.bridge.bound(*await gangs.members("pair", 0, 1))
    await gangs.one_job(*pods)  # The cache may not know it yet, and then it would seem to have ended.
    for done in pods:
        change = {"status": {"phase": "Succeeded"}}
        await gangs.world.kube.merge_patch(PODS, done.metadata.key, change, subresource="status")
    await until(lambda: not gangs.living_jobs())
    (alone,) = await gangs.members("pair", 2)
    assert "1 of 2 pods" in await gangs.bridge.told(alone, "WaitingForGang")
    (other,) = await gangs.members("pair", 3)
    await gangs.one_job(*await gangs.bridge.bound(alone, other))


async def test_a_member_deleted_while_the_gang_waits_takes_the_job_with_it(gangs: Gangs) -> None:
    fillers = [await gangs.bridge.create(pod(gangs.namespace, f"filler-{number}")) for number in range(2)]
    filling = await gangs.bridge.bound(*fillers)
    await gangs.create(POD_GROUPS, "trio", {"minMember": 3})
    keys = await gangs.members("trio", 0, 1, 2)
    assert "waits because" in await gangs.bridge.told(keys[0], "SlurmPending")
    await gangs.world.kube.delete(PODS, keys[1], grace=0)
    await until(lambda: len(gangs.living_jobs()) == len(filling))
    assert "2 of 3 pods" in await gangs.bridge.told(keys[0], "WaitingForGang")
    await gangs.members("trio", 3)
    await until(lambda: len(gangs.living_jobs()) == len(filling) + 1)
    for filler in fillers:
        await gangs.world.kube.delete(PODS, filler, grace=0)
    pods = await gangs.bound(3)
    await gangs.one_job(*pods)


async def test_a_gang_larger_than_the_cluster_waits_and_says_why(gangs: Gangs) -> None:
    await gangs.create(POD_GROUPS, "huge", {"minMember": 6})
    await gangs.members("huge", *range(6))

    def told() -> bool:
        conditions = [it for found in gangs.pods() for it in found.status.conditions]
        return any("more than are in service there (PartitionNodeLimit)" in it.message for it in conditions)

    assert await until(told)
    assert not any(it.bound for it in gangs.pods())


@pytest.mark.usefixtures("nodes", "workload_controllers")
async def test_autoscalers_see_a_gang_that_is_larger_than_the_cluster(
    config: Config, slurm_with_external_nodes: SlurmBed, namespace: str
) -> None:
    async with running(config, slurm_with_external_nodes, nodes_on_demand=True) as bridge:
        gangs = Gangs(bridge, namespace)
        await gangs.create(POD_GROUPS, "huge", {"minMember": 6})
        for key in await gangs.members("huge", *range(6)):
            assert "PartitionNodeLimit" in await bridge.told(key, "Unschedulable")


async def test_gangs_that_allow_it_share_nodes(gangs: Gangs) -> None:
    await gangs.create(POD_GROUPS, "many", {"minMember": 6}, annotations=SHARED)
    pods = await gangs.bridge.bound(*await gangs.members("many", *range(6)))
    await gangs.one_job(*pods)
    assert len({it.spec.node_name for it in pods}) < 6
    await gangs.create(POD_GROUPS, "more", {"minMember": 6}, annotations=SHARED)
    await gangs.one_job(*await gangs.bridge.bound(*await gangs.members("more", *range(6))))


async def test_gangs_of_the_same_name_in_two_namespaces_do_not_mix(gangs: Gangs) -> None:
    other = Gangs(gangs.bridge, await make_namespace(gangs.world.kube))
    try:
        for each in (gangs, other):
            await each.create(POD_GROUPS, "pair", {"minMember": 2})
        (here,) = await gangs.members("pair", 0)
        (there,) = await other.members("pair", 0)
        assert "1 of 2 pods" in await gangs.bridge.told(here, "WaitingForGang")
        assert "1 of 2 pods" in await gangs.bridge.told(there, "WaitingForGang")
        await gangs.members("pair", 1)
        await other.members("pair", 1)
        mine, theirs = await gangs.bound(2), await other.bound(2)
        assert (await gangs.one_job(*mine)).job_id != (await other.one_job(*theirs)).job_id
    finally:
        await gangs.world.kube.delete_all(PODS, namespace=other.namespace, grace=0)


async def test_each_group_of_a_leaderworkerset_is_a_job(gangs: Gangs) -> None:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}
    set_ = await gangs.create(LEADER_WORKER_SETS, "lws", spec)
    await gangs.bound(4)
    jobs = []
    for index in ("0", "1"):
        group = gangs.pods(**{names.LWS_NAME_LABEL: "lws", names.LWS_GROUP_INDEX_LABEL: index})
        jobs.append(await gangs.one_job(*group))
        by_rank = sorted(group, key=lambda it: it.metadata.labels[names.LWS_WORKER_INDEX_LABEL])
        assert [it.spec.node_name for it in by_rank] == expand(jobs[-1].job.nodes or "")
    assert jobs[0].job_id != jobs[1].job_id
    await gangs.world.kube.delete(LEADER_WORKER_SETS, set_)


async def test_workers_that_wait_for_their_leader_get_the_nodes_kept_for_them(gangs: Gangs) -> None:
    spec = {
        "replicas": 1,
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()},
    }
    set_ = await gangs.create(LEADER_WORKER_SETS, "late", spec)
    (leader,) = await gangs.bound(1)
    conditions = [{"type": type_, "status": "True"} for type_ in ("Ready", "ContainersReady", "PodScheduled")]
    status = {"phase": "Running", "conditions": conditions}
    await gangs.world.kube.merge_patch(PODS, leader.metadata.key, {"status": status}, subresource="status")
    await gangs.one_job(*await gangs.bound(3))
    await gangs.world.kube.delete(LEADER_WORKER_SETS, set_)


async def test_a_jobset_that_asks_for_it_is_one_gang(gangs: Gangs) -> None:
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    job["template"] = template(restartPolicy="Never", annotations=GANG)
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job}}]}
    set_ = await gangs.create(JOBSETS, "set", spec)
    pods = await gangs.bound(4)
    ours = await gangs.one_job(*pods)

    def rank(it: Pod) -> tuple[int, int]:
        labels = it.metadata.labels
        return int(labels[names.JOBSET_JOB_INDEX_LABEL]), int(labels[names.JOB_INDEX_LABEL])

    assert [it.spec.node_name for it in sorted(pods, key=rank)] == expand(ours.job.nodes or "")
    await gangs.world.kube.delete(JOBSETS, set_)


async def test_a_job_that_asks_for_it_is_one_gang_and_one_that_does_not_is_none(gangs: Gangs) -> None:
    def spec(**annotations: str) -> dict[str, Any]:
        made = template(restartPolicy="Never", annotations=annotations)
        return {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": made}

    together = await gangs.create(JOBS, "together", spec(**GANG))
    apart = await gangs.create(JOBS, "apart", spec())
    await gangs.bound(4)
    await gangs.one_job(*gangs.pods(**{names.JOB_NAME_LABEL: "together"}))
    ids = {it.metadata.labels[names.JOB_ID_LABEL] for it in gangs.pods(**{names.JOB_NAME_LABEL: "apart"})}
    assert len(ids) == 2
    for key in (together, apart):
        await gangs.world.kube.delete(JOBS, key)


async def test_a_gang_whose_job_is_cancelled_while_it_waits_is_not_submitted_again(
    gangs: Gangs, slurm_with_external_nodes: SlurmBed
) -> None:
    fillers = [await gangs.bridge.create(pod(gangs.namespace, f"filler-{number}")) for number in range(3)]
    await gangs.bridge.bound(*fillers)
    await gangs.create(POD_GROUPS, "pair", {"minMember": 2})
    keys = await gangs.members("pair", 0, 1)
    await gangs.bridge.told(keys[0], "SlurmPending")
    (waiting,) = [it for it in gangs.living_jobs() if it.marker.name == "pair"]
    slurm_with_external_nodes.command("scancel", str(waiting.job_id))
    await until(lambda: not any(gangs.world.pods.get(key) for key in keys))
    assert not [it for it in gangs.living_jobs() if it.marker.name == "pair"]
