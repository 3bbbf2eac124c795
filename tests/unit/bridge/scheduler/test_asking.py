"""How many pods a gang has to have."""

from typing import Any

import pytest

from isthmus.bridge.scheduler.asking import demand_of
from isthmus.domain.bridge.placement import Demand
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import Pod, PodStatus
from isthmus.model.workload import (
    BuiltinPodGroup,
    BuiltinPodGroupSpec,
    Gang,
    Job,
    JobSet,
    JobSetSpec,
    JobSpec,
    JobStatus,
    JobTemplate,
    LeaderWorkerSet,
    LeaderWorkerSetSpec,
    LeaderWorkerTemplate,
    PodGroup,
    PodGroupSpec,
    ReplicatedJob,
    SchedulingPolicy,
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
