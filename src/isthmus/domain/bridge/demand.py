"""How many pods a gang has: how many must be there before any of them starts, and how many may come.

The size comes from the object that makes the pods, not from counting those that happen to be there: they come one
by one. Members that did their part are not waited for: one that failed is tried again without them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from isthmus import names
from isthmus.domain.bridge.placement import ALONE, Demand
from isthmus.domain.kube.selectors import integer
from isthmus.errors import Terminal
from isthmus.model.pod import Pod
from isthmus.model.workload import (
    BuiltinPodGroup,
    Job,
    JobSet,
    LeaderWorkerSet,
    MPIJob,
    PodGroup,
    PyTorchJob,
    RayCluster,
    RayWorkerGroup,
    ReplicaSpec,
    ReplicatedJob,
    RunPolicy,
    VolcanoJob,
)


def demand_of(found: Any, pods: Sequence[Pod]) -> Demand:  # noqa: PLR0911 - one for each kind
    """Read the size of a gang from the object behind it, given the pods that there are."""
    match found:
        case PodGroup():
            size = max(1, found.spec.min_member - _done(pods))
            return Demand(size, size)
        case BuiltinPodGroup():
            size = found.spec.scheduling_policy.gang.min_count if found.spec.scheduling_policy.gang else 1
            size = max(1, size - _done(pods))
            return Demand(size, size)
        case LeaderWorkerSet():
            size = found.spec.leader_worker_template.size
            # Workers of such a set are made when their leader is ready, so the leader cannot wait for them.
            late = found.spec.startup_policy == "LeaderReady"
            return Demand(1 if late else size, size)
        case JobSet():
            return _of_jobset(found, pods)
        case Job():
            size = _at_a_time(found.spec.parallelism, found.spec.completions, done=found.status.succeeded)
            return Demand(size, size)
        case RayCluster():
            groups = [group for group in found.spec.worker_group_specs if not group.suspend]
            wanted = 1 + sum(_wanted(group) * group.num_of_hosts for group in groups)
            least = 1 + sum(group.min_replicas * group.num_of_hosts for group in groups)
            # Its autoscaler adds and removes workers later.
            return Demand(least if found.spec.enable_in_tree_autoscaling else wanted, wanted)
        case MPIJob():
            specs = found.spec.mpi_replica_specs
            size = _total(specs)
            late = found.spec.launcher_creation_policy == "WaitForWorkersReady"
            launchers = specs["Launcher"].replicas if late and "Launcher" in specs else 0
            return _without_done(_least(found.spec.run_policy, size) - launchers, size, pods)
        case PyTorchJob():
            size = _total(found.spec.pytorch_replica_specs)
            return _without_done(_least(found.spec.run_policy, size), size, pods)
        case VolcanoJob():
            size = sum(task.replicas for task in found.spec.tasks)
            return _without_done(min(found.spec.min_available, size) or size, size, pods)
        case _:
            return ALONE


def kueue_demand(pods: Sequence[Pod]) -> Demand:
    """Read the size of a pod group of Kueue, which stands on each of its pods."""
    first = pods[0]
    told = first.metadata.annotations.get(names.KUEUE_COUNT_ANNOTATION, "")
    size = integer(told)
    if not size or size < 1:
        raise Terminal(
            f"{names.KUEUE_COUNT_ANNOTATION} of pod {first.metadata.key} is {told[:20]!r}, expected a number",
            remedy="set it to the number of pods of the group, on each of them",
        )
    return _without_done(size, size, pods)


def _of_jobset(found: JobSet, pods: Sequence[Pod]) -> Demand:
    """Count the Jobs of a JobSet that exist already or depend on no other: the rest come after these."""
    there = {pod.metadata.labels.get(names.JOBSET_REPLICATED_JOB_LABEL) for pod in pods}
    now = [job for job in found.spec.replicated_jobs if not job.depends_on or job.name in there]
    # A Job that is made when others are ready runs beside them, and needs its nodes then.
    soon = [
        job
        for job in found.spec.replicated_jobs
        if job not in now and all(other.status == "Ready" for other in job.depends_on)
    ]
    least = _pods_of(now)
    return _without_done(least, least + _pods_of(soon), pods)


def _pods_of(jobs: Iterable[ReplicatedJob]) -> int:
    return sum(
        job.replicas * _at_a_time(job.template.spec.parallelism, job.template.spec.completions) for job in jobs
    )


def _without_done(least: int, size: int, pods: Iterable[Pod]) -> Demand:
    done = sum(1 for pod in pods if pod.status.phase == "Succeeded")
    return Demand(max(1, least - done), max(1, size - done))


def _done(pods: Sequence[Pod]) -> int:
    """Count members that succeeded and whose controller has others yet: an older run that left pods is none."""
    current: Collection[object] = {pod.metadata.controller for pod in pods if not pod.finished} - {None}
    return sum(1 for pod in pods if pod.status.phase == "Succeeded" and pod.metadata.controller in current)


def _at_a_time(parallelism: int, completions: int | None, *, done: int = 0) -> int:
    return max(1, parallelism if completions is None else min(parallelism, completions - done))


def _wanted(group: RayWorkerGroup) -> int:
    wanted = max(group.replicas or 0, group.min_replicas)
    return wanted if group.max_replicas is None else min(wanted, group.max_replicas)


def _total(specs: Mapping[str, ReplicaSpec]) -> int:
    return sum(spec.replicas for spec in specs.values())


def _least(policy: RunPolicy, size: int) -> int:
    said = policy.scheduling_policy and policy.scheduling_policy.min_available
    return min(said, size) if said else size
