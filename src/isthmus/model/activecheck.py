"""Checks that find bad nodes: the kind ActiveCheck of slurm.nebius.ai.

Fields are Soperator's, so its manifests are taken as they are; fields that are ours say so. A check becomes a
CronJob of its name. One of the type `k8sJob` runs pods; one of the type `slurmJob` runs jobs in Slurm, which
`health.checkjobs` submits without any pod.

`kubectl get` shows `COLUMNS`, the nine of Soperator.
"""

from datetime import datetime
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta
from isthmus.model.schema import FreeForm, Rule, keyed_by, rules
from isthmus.model.slinky import ReportedStatus
from isthmus.model.soperator import GROUP

VERSION: Final = "v1alpha1"
DEFAULT_SCHEDULE: Final = "0 0 1 1 *"
MAX_NODES: Final = 512
"""Nodes that a status lists; of more that fail, the first by name."""

CheckType = Literal["k8sJob", "slurmJob"]
K8sJobStatus = Literal["Active", "Pending", "Complete", "Failed", "Suspended", "Unknown"]
RunStatus = Literal["InProgress", "Complete", "Failed", "Cancelled", "Error", "Skipped"]
NodeResult = Literal["Failed", "Error", "Passed"]

_Name = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]
_Count = Annotated[int, Meta(ge=0, le=2_147_483_647)]
_Text = Annotated[str, Meta(max_length=512)]
_Prefix = Annotated[str, Meta(max_length=128, pattern=r"^[^\n\r]*$")]
_User = Annotated[str, Meta(max_length=32, pattern=r"^([a-z_][a-z0-9_-]*[$]?)?$")]
_Word = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9_.,-]*$")]

_PART = r"([*?]|[0-9a-zA-Z]+(-[0-9a-zA-Z]+)?)(/[0-9]+)?"
_FIELD = rf"{_PART}(,{_PART})*"
_CRON = rf"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [0-9smh.]+|{_FIELD}( +{_FIELD}){{4}})$"
_Schedule = Annotated[
    str,
    Meta(min_length=1, max_length=256),
    rules(
        Rule(
            f"self.matches('{_CRON}')",
            'schedule has five fields, minute hour day-of-month month day-of-week, such as "0 0,12 * * *";'
            " or is @hourly, @daily, @weekly, @monthly or @yearly",
        ),
    ),
]


class DrainSlurmNode(Data, frozen=True):
    drain_reason_prefix: _Prefix = ""
    """What the reason begins with, such as [node_problem]; without it, nothing is drained."""


class CommentSlurmNode(Data, frozen=True):
    comment_prefix: _Prefix = ""
    """What the comment begins with; without it, nothing is written."""


class UndrainSlurmNode(Data, frozen=True):
    drain_reason_prefix: _Prefix = ""
    """Only drains whose reason begins with this; without it, those of this check. Never those of others."""


class Notify(Data, frozen=True):
    receivers: Annotated[tuple[_Name, ...], Meta(max_length=16)] = ()
    """Receivers of the HealthPolicy to notify; all if empty."""


class Reactions(Data, frozen=True):
    """What is to happen with the nodes of a run. `domain.health` decides whether, when and how many at a time."""

    drain_slurm_node: DrainSlurmNode | None = None
    comment_slurm_node: CommentSlurmNode | None = None
    undrain_slurm_node: UndrainSlurmNode | None = None
    """Resume nodes that were drained (Isthmus only)."""
    notify: Notify | None = None
    """Notify the receivers of the HealthPolicy (Isthmus only)."""


class ContainerSpec(Data, frozen=True):
    image: Annotated[str, Meta(max_length=1024)] = ""
    """Without it, the image of the operator's Slurm pods."""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[FreeForm, ...] = ()
    """Of a slurmJob, variables with a value reach the Slurm job; SBATCH_… variables are options, as for sbatch."""
    volume_mounts: tuple[FreeForm, ...] = ()
    volumes: tuple[FreeForm, ...] = ()
    app_armor_profile: str = "unconfined"
    image_pull_policy: Literal["Always", "Never", "IfNotPresent"] = "IfNotPresent"
    image_pull_secrets: tuple[FreeForm, ...] = ()


class K8sJobSpec(Data, frozen=True):
    job_container: ContainerSpec = ContainerSpec()
    munge_container: ContainerSpec | None = None
    """munged beside the container, which then finds Slurm's configuration in /etc/slurm."""
    script_ref_name: _Name | None = None
    """A ConfigMap whose key script.sh is run instead of the container's command."""


class SlurmJobSpec(Data, frozen=True):
    job_container: ContainerSpec = ContainerSpec()
    """No pod is created; only the variables are used."""
    munge_container: ContainerSpec = ContainerSpec()
    sbatch_script_ref_name: _Name | None = None
    """A ConfigMap whose key sbatch.sh is the script."""
    sbatch_script: Annotated[str, Meta(max_length=262144)] | None = None
    each_worker_jobs: bool = False
    """One job on each usable worker, instead of one job that Slurm places."""
    max_number_of_jobs: _Count = 0
    """With eachWorkerJobs: on so many workers, chosen again for each run; 0 for all."""
    partition: _Word = ""
    """Where jobs are submitted (Isthmus only). Without it, to `hidden` if that exists, else to Slurm's default."""
    user: _User = ""
    """Who runs them (Isthmus only). Without it, soperatorchecks if Slurm knows that user, else root."""


class ActiveCheckSpec(Data, frozen=True):
    name: _Name = ""
    """Name of the first Job and of the script's ConfigMap; if empty, that of the check."""
    slurm_cluster_ref_name: _Name = ""
    """The SlurmCluster or Controller that is checked."""
    check_type: CheckType = "k8sJob"
    depends_on: Annotated[tuple[_Name, ...], Meta(max_length=64)] = ()
    """Checks of the same namespace. A run starts only while the last run of each of them is complete."""
    schedule: _Schedule = DEFAULT_SCHEDULE
    suspend: bool = True
    """Whether the schedule is suspended; the run after creation and manual runs still start."""
    run_after_creation: bool = True
    active_deadline_seconds: Annotated[int, Meta(ge=1, le=2_147_483_647)] = 1800
    """How long a run may take, waiting included; what is not over then is cancelled, and is an error."""
    successful_jobs_history_limit: _Count = 3
    failed_jobs_history_limit: _Count = 16
    jitter_seconds: Annotated[int, Meta(ge=0, le=86400)] = 0
    """Spread the jobs of a run over so many seconds (Isthmus only); for slurmJob."""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: FreeForm | None = None
    tolerations: tuple[FreeForm, ...] = ()
    pod_template_name_ref: _Name | None = None
    """A PodTemplate that overrides the pod, field by field."""
    host_users: bool | None = None
    k8s_job_spec: K8sJobSpec = field(name="k8sJobSpec", default=K8sJobSpec())
    slurm_job_spec: SlurmJobSpec | None = None
    success_reactions: Reactions | None = None
    failure_reactions: Reactions | None = None


class K8sJobsStatus(Data, frozen=True):
    """The last Job of Kubernetes."""

    last_job_name: str = ""
    last_job_status: K8sJobStatus | None = None
    last_job_schedule_time: datetime | None = None
    last_job_successful_time: datetime | None = None
    last_transition_time: datetime | None = None


class JobAndReason(Data, frozen=True):
    job_id: str = field(name="jobID")
    reason: str = ""


_Jobs = Annotated[tuple[JobAndReason, ...], Meta(max_length=MAX_NODES)]


class SlurmJobsStatus(Data, frozen=True):
    """The last run in Slurm; tests of single nodes do not count as runs."""

    last_run_id: str = ""
    """The first of its jobs."""
    last_run_name: str = ""
    last_run_status: RunStatus | None = None
    last_run_fail_jobs_and_reasons: _Jobs = ()
    last_run_error_jobs_and_reasons: _Jobs = ()
    last_run_cancelled_jobs: Annotated[tuple[str, ...], Meta(max_length=MAX_NODES)] = ()
    last_run_submit_time: datetime | None = None
    last_transition_time: datetime | None = None


class CheckedNode(Data, frozen=True):
    """Result of a node in the last run that tested it."""

    node: str
    result: NodeResult
    """Failed: it did not pass. Error: it is not known, because the check itself failed. Passed is listed only where
    successReactions ask for something."""
    job_id: str = ""
    """The Slurm job; for a k8sJob, the Job."""
    evidence: _Text = ""
    at: datetime | None = None


class ActiveCheckStatus(ReportedStatus, frozen=True):
    k8s_jobs_status: K8sJobsStatus = field(name="k8sJobsStatus", default=K8sJobsStatus())
    slurm_jobs_status: SlurmJobsStatus = SlurmJobsStatus()
    nodes: Annotated[tuple[CheckedNode, ...], Meta(max_length=MAX_NODES), keyed_by("node")] = ()
    """Nodes that do not pass (Isthmus only). A node stays listed until it passes, or is gone."""
    passed: int = 0
    """Nodes that passed in the last run (Isthmus only)."""


class ActiveCheck(Data, frozen=True):
    """A check that runs on a schedule, and what is to happen with nodes that fail it."""

    spec: Annotated[
        ActiveCheckSpec,
        rules(
            Rule(
                "has(self.slurmClusterRefName) && self.slurmClusterRefName != ''",
                "name the SlurmCluster that is to be checked",
                field_path=".slurmClusterRefName",
            ),
            Rule(
                "!has(self.checkType) || self.checkType != 'slurmJob' || has(self.slurmJobSpec)",
                "a check of the type slurmJob needs slurmJobSpec",
                field_path=".slurmJobSpec",
            ),
            Rule(
                "!has(self.checkType) || self.checkType != 'slurmJob' || !has(self.slurmJobSpec)"
                " || has(self.slurmJobSpec.sbatchScript) != has(self.slurmJobSpec.sbatchScriptRefName)",
                "give the script in slurmJobSpec either as sbatchScript or by sbatchScriptRefName",
                field_path=".slurmJobSpec",
            ),
            Rule(
                "!has(self.jitterSeconds) || self.jitterSeconds == 0"
                " || (has(self.checkType) && self.checkType == 'slurmJob')",
                "jitterSeconds is for the type slurmJob: Kubernetes starts pods at once",
                field_path=".jitterSeconds",
            ),
            Rule(
                # What affinity holds is free form, which CEL cannot count.
                "!has(self.nodeSelector) || size(self.nodeSelector) == 0 || !has(self.affinity)",
                "give either nodeSelector or affinity",
                field_path=".affinity",
            ),
        ),
    ]
    metadata: ObjectMeta = ObjectMeta()
    status: ActiveCheckStatus = ActiveCheckStatus()


class CheckColumn(NamedTuple):
    """A column of `kubectl get`."""

    title: str
    path: str
    type: str
    description: str


COLUMNS: Final = (
    CheckColumn("Type", ".spec.checkType", "string", "Whether it runs pods or Slurm jobs"),
    CheckColumn("Init", ".spec.runAfterCreation", "boolean", "Whether it runs once after its creation"),
    CheckColumn("Suspend", ".spec.suspend", "boolean", "Whether its schedule is suspended"),
    CheckColumn("Schedule", ".spec.schedule", "string", "When it runs"),
    CheckColumn("K8s Status", ".status.k8sJobsStatus.lastJobStatus", "string", "The last Job of Kubernetes"),
    CheckColumn("Slurm Status", ".status.slurmJobsStatus.lastRunStatus", "string", "The last run in Slurm"),
    CheckColumn("Slurm Submit Time", ".status.slurmJobsStatus.lastRunSubmitTime", "string", "When that began"),
    CheckColumn("Slurm ID", ".status.slurmJobsStatus.lastRunId", "string", "The first Slurm job of that run"),
    CheckColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created"),
)

ACTIVE_CHECKS = Kind(ActiveCheck, f"{GROUP}/{VERSION}", "activechecks", "ActiveCheck")
