"""Workloads, as far as placing their pods and their size needs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Condition, Object, Partial, condition


class JobSpec(Data, frozen=True):
    """How many pods a Job runs at a time, how many must succeed, and for how long it may run."""

    parallelism: int = 1
    completions: int | None = None
    active_deadline_seconds: int = 0


class JobStatus(Data, frozen=True):
    """How many pods of a Job are done."""

    succeeded: int = 0
    failed: int = 0


class Job(Object, frozen=True):
    """A Job of Kubernetes; Slurm's is `model.slurm.Job`."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class OwnJobStatus(Data, frozen=True):
    """How a Job of ours goes: whether it is done, has failed, and why."""

    failed: int = 0
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None


class OwnJob(Object, frozen=True):
    """A Job that we made ourselves, with how it ended."""

    status: OwnJobStatus = OwnJobStatus()

    @property
    def failure(self) -> Condition | None:
        """Why it is not tried again."""
        found = condition(self.status.conditions, "Failed")
        return found if found and found.status == "True" else None

    @property
    def complete(self) -> bool:
        found = condition(self.status.conditions, "Complete")
        return found is not None and found.status == "True"


class CheckJobSpec(Data, frozen=True):
    """How long a run may take, and who runs it: Kubernetes, if nobody is named."""

    active_deadline_seconds: int = 0
    managed_by: str = ""
    suspend: bool = False


class CheckJob(OwnJob, frozen=True):
    """A Job that runs an ActiveCheck."""

    spec: CheckJobSpec = CheckJobSpec()


class CronJobSpec(Data, frozen=True):
    job_template: Mapping[str, Any] = field(default_factory=dict)
    """As it is, to make Jobs from it."""


class CronJobStatus(Data, frozen=True):
    last_schedule_time: datetime | None = None
    last_successful_time: datetime | None = None


class CronJob(Object, frozen=True):
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


class JobTemplate(Data, frozen=True):
    spec: JobSpec = JobSpec()


class JobDependency(Data, frozen=True):
    """A ReplicatedJob that comes first, until it is Ready or Complete."""

    name: str = ""
    status: str = ""


class ReplicatedJob(Data, frozen=True):
    """Several Jobs from one template."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: tuple[JobDependency, ...] = ()


class JobSetSpec(Data, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class JobSet(Object, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class PodGroupSpec(Data, frozen=True):
    """How many members must start together."""

    min_member: int = 0


class PodGroup(Object, frozen=True):
    """A PodGroup of scheduler-plugins (`scheduling.x-k8s.io`)."""

    spec: PodGroupSpec = PodGroupSpec()


class Gang(Data, frozen=True):
    """All or nothing, for so many pods."""

    min_count: int = 1


class SchedulingPolicy(Data, frozen=True):
    """Either a gang or (basic) pods one by one."""

    gang: Gang | None = None


class WorkloadRef(Data, frozen=True):
    """Where the template of a built-in PodGroup stands."""

    workload_name: str = ""


class TemplateRef(Data, frozen=True):
    """What a built-in PodGroup was made from."""

    workload: WorkloadRef | None = None


class BuiltinPodGroupSpec(Data, frozen=True):
    """How the pods of a built-in PodGroup are placed."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    pod_group_template_ref: TemplateRef | None = None


class BuiltinPodGroup(Object, frozen=True):
    """A PodGroup of Kubernetes itself (`scheduling.k8s.io`)."""

    spec: BuiltinPodGroupSpec = BuiltinPodGroupSpec()


class LeaderWorkerTemplate(Data, frozen=True):
    """How many pods a group has, the leader among them."""

    size: int = 1


class LeaderWorkerSetSpec(Data, frozen=True):
    """Groups of a leader and its workers; `startup_policy` is LeaderCreated or LeaderReady."""

    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(Object, frozen=True):
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class RayWorkerGroup(Data, frozen=True):
    """Workers of a RayCluster, of which each replica has so many pods."""

    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False


class RayClusterSpec(Data, frozen=True):
    """One head, and groups of workers."""

    worker_group_specs: tuple[RayWorkerGroup, ...] = ()
    enable_in_tree_autoscaling: bool = False


class RayCluster(Object, frozen=True):
    """A RayCluster of KubeRay, by itself or made by a RayJob or RayService."""

    spec: RayClusterSpec = RayClusterSpec()


class ReplicaSpec(Data, frozen=True):
    """So many pods of one role."""

    replicas: int = 1


class MinAvailable(Data, frozen=True):
    """How many pods must start together, where that is not all of them."""

    min_available: int | None = None


class RunPolicy(Data, frozen=True):
    """How a job of Kubeflow runs."""

    scheduling_policy: MinAvailable | None = None


class MPIJobSpec(Data, frozen=True):
    """A launcher, which may be made when the workers are ready, and workers."""

    mpi_replica_specs: Mapping[str, ReplicaSpec] = field(default_factory=dict)
    launcher_creation_policy: str = "AtStartup"
    run_policy: RunPolicy = RunPolicy()


class MPIJob(Object, frozen=True):
    """An MPIJob of the MPI Operator."""

    spec: MPIJobSpec = MPIJobSpec()


class PyTorchJobSpec(Data, frozen=True):
    """A master and workers."""

    pytorch_replica_specs: Mapping[str, ReplicaSpec] = field(default_factory=dict)
    run_policy: RunPolicy = RunPolicy()


class PyTorchJob(Object, frozen=True):
    """A PyTorchJob of the Training Operator."""

    spec: PyTorchJobSpec = PyTorchJobSpec()


class VolcanoJobSpec(Data, frozen=True):
    """Tasks with so many pods each, of which `min_available` must start together (0 stands for all)."""

    min_available: int = 0
    tasks: tuple[ReplicaSpec, ...] = ()


class VolcanoJob(Object, frozen=True):
    spec: VolcanoJobSpec = VolcanoJobSpec()


JOBS = Kind(Job, "batch/v1", "jobs", "Job")
OWN_JOBS = Kind(OwnJob, "batch/v1", "jobs", "Job")
CHECK_JOBS = Kind(CheckJob, "batch/v1", "jobs", "Job")
CRON_JOBS = Kind(CronJob, "batch/v1", "cronjobs", "CronJob")
JOBSETS = Kind(JobSet, "jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
POD_GROUPS = Kind(PodGroup, "scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup")
BUILTIN_POD_GROUPS = Kind(BuiltinPodGroup, "scheduling.k8s.io/v1alpha2", "podgroups", "PodGroup")
WORKLOADS = Kind(Partial, "scheduling.k8s.io/v1alpha2", "workloads", "Workload")
LEADER_WORKER_SETS = Kind(LeaderWorkerSet, "leaderworkerset.x-k8s.io/v1", "leaderworkersets", "LeaderWorkerSet")
DEPLOYMENTS = Kind(Partial, "apps/v1", "deployments", "Deployment")
REPLICA_SETS = Kind(Partial, "apps/v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Kind(Partial, "apps/v1", "statefulsets", "StatefulSet")
RAY_CLUSTERS = Kind(RayCluster, "ray.io/v1", "rayclusters", "RayCluster")
MPI_JOBS = Kind(MPIJob, "kubeflow.org/v2beta1", "mpijobs", "MPIJob")
PYTORCH_JOBS = Kind(PyTorchJob, "kubeflow.org/v1", "pytorchjobs", "PyTorchJob")
TRAIN_JOBS = Kind(Partial, "trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob")
VOLCANO_JOBS = Kind(VolcanoJob, "batch.volcano.sh/v1alpha1", "jobs", "Job")
