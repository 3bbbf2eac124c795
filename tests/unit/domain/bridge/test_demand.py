"""How many pods a gang has to have."""

from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge.demand import demand_of, kueue_demand
from isthmus.domain.bridge.placement import Demand
from isthmus.errors import Terminal
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import Pod, PodStatus
from isthmus.model.workload import (
    BuiltinPodGroup,
    BuiltinPodGroupSpec,
    Gang,
    Job,
    JobDependency,
    JobSet,
    JobSetSpec,
    JobSpec,
    JobStatus,
    JobTemplate,
    LeaderWorkerSet,
    LeaderWorkerSetSpec,
    LeaderWorkerTemplate,
    MinAvailable,
    MPIJob,
    MPIJobSpec,
    PodGroup,
    PodGroupSpec,
    PyTorchJob,
    PyTorchJobSpec,
    RayCluster,
    RayClusterSpec,
    RayWorkerGroup,
    ReplicaSpec,
    ReplicatedJob,
    RunPolicy,
    SchedulingPolicy,
    VolcanoJob,
    VolcanoJobSpec,
)


def member(phase: str = "Pending", *, job: str = "now") -> Pod:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, uid=job, controller=True)
    return Pod(ObjectMeta(namespace="ns", owner_references=(owner,)), status=PodStatus(phase))


GANGS = [
    PodGroup(spec=PodGroupSpec(min_member=3)),
    BuiltinPodGroup(spec=BuiltinPodGroupSpec(SchedulingPolicy(Gang(min_count=3)))),
    JobSet(spec=JobSetSpec((ReplicatedJob(replicas=3),))),
]


TWO_OF_FOUR = JobSpec(parallelism=2, completions=4)
PAIRS = ReplicatedJob(replicas=2, template=JobTemplate(TWO_OF_FOUR))
THREE = LeaderWorkerTemplate(size=3)


@pytest.mark.parametrize(
    ("gang", "demand"),
    [
        (PodGroup(spec=PodGroupSpec(min_member=3)), Demand(3, 3)),
        (BuiltinPodGroup(spec=BuiltinPodGroupSpec(SchedulingPolicy(Gang(min_count=3)))), Demand(3, 3)),
        (LeaderWorkerSet(spec=LeaderWorkerSetSpec(THREE)), Demand(3, 3)),
        (LeaderWorkerSet(spec=LeaderWorkerSetSpec(THREE, startup_policy="LeaderReady")), Demand(1, 3)),
        (JobSet(spec=JobSetSpec((PAIRS, ReplicatedJob()))), Demand(5, 5)),
        (Job(spec=JobSpec(parallelism=3)), Demand(3, 3)),
        (Job(spec=TWO_OF_FOUR), Demand(2, 2)),
        (Job(spec=TWO_OF_FOUR, status=JobStatus(succeeded=3)), Demand(1, 1)),
        (Job(spec=JobSpec(parallelism=9, completions=4)), Demand(4, 4)),
    ],
)
def test_all_members_are_waited_for_however_late_they_come(gang: Any, demand: Demand) -> None:
    assert demand_of(gang, [member()]) == demand


@pytest.mark.parametrize("gang", GANGS, ids=lambda it: type(it).__name__)
def test_a_member_that_failed_is_tried_again_without_those_that_succeeded(gang: Any) -> None:
    assert demand_of(gang, [member("Running"), member("Failed"), member()]) == Demand(3, 3)
    assert demand_of(gang, [member("Succeeded"), member("Failed"), member("Succeeded"), member()]) == Demand(1, 1)


@pytest.mark.parametrize("gang", GANGS[:2], ids=lambda it: type(it).__name__)
def test_what_an_older_run_left_behind_is_no_member(gang: Any) -> None:
    old = [member("Succeeded", job="before") for _ in range(3)]
    assert demand_of(gang, [*old, member(), member()]) == Demand(3, 3)


def ray(*groups: RayWorkerGroup, scales: bool = False) -> RayCluster:
    return RayCluster(spec=RayClusterSpec(groups, enable_in_tree_autoscaling=scales))


def mpi(**more: Any) -> MPIJob:
    return MPIJob(spec=MPIJobSpec({"Launcher": ReplicaSpec(1), "Worker": ReplicaSpec(3)}, **more))


MIN_TWO = RunPolicy(MinAvailable(2))


@pytest.mark.parametrize(
    ("gang", "demand"),
    [
        (ray(), Demand(1, 1)),
        (ray(RayWorkerGroup(replicas=2), RayWorkerGroup(replicas=1, num_of_hosts=4)), Demand(7, 7)),
        (ray(RayWorkerGroup(replicas=None, min_replicas=2)), Demand(3, 3)),
        (ray(RayWorkerGroup(replicas=9, max_replicas=4)), Demand(5, 5)),
        (ray(RayWorkerGroup(replicas=3, suspend=True)), Demand(1, 1)),
        (ray(RayWorkerGroup(replicas=3, min_replicas=1), scales=True), Demand(2, 4)),
        (mpi(), Demand(4, 4)),
        (mpi(launcher_creation_policy="WaitForWorkersReady"), Demand(3, 4)),
        (mpi(run_policy=MIN_TWO), Demand(2, 4)),
        (PyTorchJob(spec=PyTorchJobSpec({"Master": ReplicaSpec(), "Worker": ReplicaSpec(2)})), Demand(3, 3)),
        (PyTorchJob(spec=PyTorchJobSpec({"Worker": ReplicaSpec(5)}, MIN_TWO)), Demand(2, 5)),
        (VolcanoJob(spec=VolcanoJobSpec(0, (ReplicaSpec(1), ReplicaSpec(4)))), Demand(5, 5)),
        (VolcanoJob(spec=VolcanoJobSpec(3, (ReplicaSpec(1), ReplicaSpec(4)))), Demand(3, 5)),
        (object(), Demand(1, 1)),
    ],
)
def test_frameworks_say_their_size(gang: Any, demand: Demand) -> None:
    assert demand_of(gang, [member()]) == demand


def of(replicated_job: str, phase: str = "Pending") -> Pod:
    return Pod(ObjectMeta(labels={names.JOBSET_REPLICATED_JOB_LABEL: replicated_job}), status=PodStatus(phase))


def test_jobs_that_come_after_others_are_not_waited_for() -> None:
    """As Kubeflow's Trainer makes them: what brings data and model comes first, and the nodes when that is done."""
    after = tuple(JobDependency(name, "Complete") for name in ("data", "model"))
    four = JobTemplate(JobSpec(parallelism=4, completions=4))
    steps = ReplicatedJob("data"), ReplicatedJob("model"), ReplicatedJob("node", template=four, depends_on=after)
    found = JobSet(spec=JobSetSpec(steps))
    assert demand_of(found, [of("data"), of("model")]) == Demand(2, 2)
    done = [of("data", "Succeeded"), of("model", "Succeeded")]
    assert demand_of(found, [*done, of("node")]) == Demand(4, 4)


def test_a_launcher_that_waits_for_its_workers_has_a_place_beside_them() -> None:
    two = JobTemplate(JobSpec(parallelism=2, completions=2))
    launcher = ReplicatedJob("launcher", depends_on=(JobDependency("node", "Ready"),))
    found = JobSet(spec=JobSetSpec((ReplicatedJob("node", template=two), launcher)))
    assert demand_of(found, [of("node")]) == Demand(2, 3)
    assert demand_of(found, [of("node"), of("node"), of("launcher")]) == Demand(3, 3)


def grouped(count: str, phase: str = "Pending") -> Pod:
    return Pod(ObjectMeta("p", "ns", annotations={names.KUEUE_COUNT_ANNOTATION: count}), status=PodStatus(phase))


def test_a_kueue_group_says_its_size_on_each_pod() -> None:
    assert kueue_demand([grouped("3")]) == Demand(3, 3)
    assert kueue_demand([grouped("3"), grouped("3", "Succeeded")]) == Demand(2, 2)


@pytest.mark.parametrize("count", ["", "0", "-1", "many"])
def test_a_kueue_group_of_no_size_is_refused(count: str) -> None:
    with pytest.raises(Terminal, match=r"pod-group-total-count of pod ns/p is '.*', expected a number"):
        kueue_demand([grouped(count)])
