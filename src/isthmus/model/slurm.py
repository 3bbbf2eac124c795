"""What we read of Slurm's answers, one set of types for every API version from v0.0.40 to v0.0.45.

A field is here because something reads it; what is not here is skipped while decoding, which is most of the bytes.
Slurm leaves fields out, or sends null, when it has nothing to say, so everything but identity has a default.
"""

import math
from typing import NamedTuple, TypeAlias

import msgspec

States: TypeAlias = tuple[str, ...]
"""A state and its flags, as Slurm gives them: ("IDLE", "DRAIN"). The first is the base state."""


ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
"""The base states of jobs that are over."""


class Number(msgspec.Struct, frozen=True, gc=False):
    """Slurm's number that may be missing or infinite."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0

    @property
    def value(self) -> float | None:
        """The number, infinity, or None where Slurm has none."""
        if self.infinite:
            return math.inf
        return self.number if self.set else None

    @classmethod
    def of(cls, value: float) -> "Number":
        """Wrap a number the way Slurm wants it."""
        return cls(set=False, infinite=True) if value == math.inf else cls(set=True, number=value)


NOTHING = Number()


class Signal(msgspec.Struct, frozen=True, gc=False):
    """Which signal ended a process."""

    id: Number = NOTHING
    name: str | None = None


class ExitCode(msgspec.Struct, frozen=True, gc=False):
    """How a job's script ended: SUCCESS, ERROR, SIGNALED or not yet (PENDING)."""

    status: tuple[str, ...] = ()
    return_code: Number = NOTHING
    signal: Signal = Signal()


class NodeShare(NamedTuple):
    """What a job has of one node: CPUs, and memory in MiB."""

    name: str
    cpus: int
    memory: int


class SharedCpus(msgspec.Struct, frozen=True, gc=False):
    """The CPUs of a node that are a job's."""

    count: int = 0


class SharedMemory(msgspec.Struct, frozen=True, gc=False):
    """The memory of a node that is a job's, in MiB."""

    allocated: int = 0


class AllocatedNode(msgspec.Struct, frozen=True, gc=False):
    """One node of an allocation, as v0.0.41 and newer write it."""

    name: str
    cpus: SharedCpus = SharedCpus()
    memory: SharedMemory = SharedMemory()


class AllocatedNodes(msgspec.Struct, frozen=True, gc=False):
    """The nodes of an allocation; `whole` says that nobody else may use them meanwhile."""

    whole: bool = False
    allocation: tuple[AllocatedNode, ...] = ()


class AllocatedSocket(msgspec.Struct, frozen=True, gc=False):
    """A socket of a node, as v0.0.40 writes it: the job's cores by their numbers."""

    cores: dict[str, str] = {}


class AllocatedNodeV40(msgspec.Struct, frozen=True, gc=False):
    """One node of an allocation, as v0.0.40 writes it. It has no CPUs, but the cores."""

    nodename: str
    memory_allocated: int = 0
    sockets: dict[str, AllocatedSocket] = {}


class JobResources(msgspec.Struct, frozen=True, gc=False):
    """What a job has, in the shape of either API; read it by `Job.shares` and `Job.has_whole_nodes`."""

    nodes: AllocatedNodes | str | None = None
    """v0.0.40 has a host list here."""
    allocated_nodes: tuple[AllocatedNodeV40, ...] = ()


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job that slurmctld knows."""

    job_id: int
    job_state: States = ()
    name: str | None = None
    state_reason: str = ""
    user_name: str | None = None
    user_id: int | None = None
    mail_user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = msgspec.field(name="resv_name", default=None)
    nodes: str | None = None
    scheduled_nodes: str | None = None
    excluded_nodes: str | None = None
    failed_node: str | None = None
    """The one whose failure ended the job."""
    comment: str | None = None
    admin_comment: str | None = None
    mcs_label: str | None = None
    flags: tuple[str, ...] = ()
    array_job_id: Number = NOTHING
    array_task_id: Number = NOTHING
    array_tasks: str | None = msgspec.field(name="array_task_string", default=None)
    """Of an array: the tasks that have not begun and share this record, such as `3-20%2`."""
    het_job_id: Number = NOTHING
    """Of a component of a heterogeneous job: the id of its leader, which is the first component."""
    het_job_offset: Number = NOTHING
    priority: Number = NOTHING
    cpus: Number = NOTHING
    node_count: Number = NOTHING
    time_limit: Number = NOTHING
    submit_time: Number = NOTHING
    start_time: Number = NOTHING
    end_time: Number = NOTHING
    eligible_time: Number = NOTHING
    preempt_time: Number = NOTHING
    suspend_time: Number = NOTHING
    """When it was suspended or resumed last."""
    ran_before_suspension: Number = msgspec.field(name="pre_sus_time", default=NOTHING)
    """For how many seconds it ran before that."""
    deadline: Number = NOTHING
    """Times are seconds since 1970, and 0 where there is none."""
    tasks: Number = NOTHING
    cpus_per_task: Number = NOTHING
    memory_per_node: Number = NOTHING
    features: str | None = None
    """What `constraints` is when the job is submitted."""
    licenses: str | None = None
    wckey: str | None = None
    dependency: str | None = None
    batch_flag: bool = False
    requeue: bool = False
    """Whether Slurm may put it back into the queue."""
    hold: bool = False
    restarts: int = msgspec.field(name="restart_cnt", default=0)
    exit_code: ExitCode = ExitCode()
    tres_requested: str = msgspec.field(name="tres_req_str", default="")
    tres_allocated: str = msgspec.field(name="tres_alloc_str", default="")
    gres_detail: tuple[str | None, ...] = ()
    """For each node of the allocation; None for one that has no GRES."""
    work_directory: str | None = msgspec.field(name="current_working_directory", default=None)
    standard_output: str | None = None
    standard_error: str | None = None
    resources: JobResources | None = msgspec.field(name="job_resources", default=None)

    @property
    def listed_id(self) -> int:
        """The id by which `jobs/state` lists it: its own, or that of the leader of a heterogeneous job."""
        return int(self.het_job_id.value or self.job_id)

    @property
    def queue_id(self) -> int:
        """The id of the whole: of its array or heterogeneous job, if any."""
        return int(self.array_job_id.value or self.het_job_id.value or self.job_id)

    @property
    def has_ended(self) -> bool:
        """Whether it is over, however it went."""
        return not ENDED.isdisjoint(self.job_state[:1])

    @property
    def shares(self) -> tuple[NodeShare, ...]:
        """What the job has of each of its nodes; nothing while it waits."""
        if self.resources is None:
            return ()
        if isinstance(self.resources.nodes, AllocatedNodes):
            return tuple(
                NodeShare(node.name, node.cpus.count, node.memory.allocated)
                for node in self.resources.nodes.allocation
            )
        return tuple(
            NodeShare(node.nodename, sum(len(it.cores) for it in node.sockets.values()), node.memory_allocated)
            for node in self.resources.allocated_nodes
        )

    @property
    def has_whole_nodes(self) -> bool:
        """Whether no other job may use the nodes; unknown in v0.0.40."""
        return (
            self.resources is not None
            and isinstance(self.resources.nodes, AllocatedNodes)
            and self.resources.nodes.whole
        )


class JobState(msgspec.Struct, frozen=True, gc=False):
    """The little that `jobs/state` says about a job. Its id is text: `17`, or `12_3` for the third of an array."""

    job_id: str
    state: States = ()


class JobRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A job to be submitted, or what is to change about one; what is left out is left to Slurm."""

    name: str | None = None
    script: str | None = None
    flags: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    current_working_directory: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    """Only root and SlurmUser may set it."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    mcs_label: str | None = None
    wckey: str | None = None
    licenses: str | None = None
    dependency: str | None = None
    constraints: str | None = None
    nodes: str | None = None
    minimum_nodes: int | None = None
    maximum_nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    memory_per_node: Number | None = None
    memory_per_cpu: Number | None = None
    tres_per_job: str | None = None
    tres_per_node: str | None = None
    tres_per_task: str | None = None
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    array: str | None = None
    time_limit: Number | None = None
    """In minutes."""
    priority: Number | None = None
    nice: int | None = None
    hold: bool | None = None
    immediate: bool | None = None
    """Start now or not at all; Slurm keeps a FAILED job where it could not."""
    begin_time: Number | None = None
    """The second since 1970 before which the job does not start. A change to 1 (0 changes nothing) lets it go."""
    deadline: int | None = None
    """The second since 1970 by which the job has to be over."""
    requeue: bool | None = None
    extra: str | None = None
    standard_output: str | None = None
    standard_error: str | None = None
    user_id: str | None = None
    group_id: str | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node that slurmctld knows."""

    name: str
    state: States = ()
    hostname: str = ""
    address: str = ""
    reason: str = ""
    reason_set_by_user: str | None = None
    reason_changed_at: Number = NOTHING
    cpus: int = 0
    effective_cpus: int = 0
    alloc_cpus: int = 0
    real_memory: int = 0
    alloc_memory: int = 0
    specialized_memory: int = 0
    """What is kept for the operating system, in MiB."""
    free_mem: Number = NOTHING
    features: tuple[str, ...] = ()
    gres: str = ""
    gres_used: str = ""
    partitions: tuple[str, ...] = ()
    comment: str = ""
    extra: str = ""
    instance_id: str = ""
    """What the cloud calls the machine."""
    tres: str = ""
    tres_used: str | None = None
    topology: str = ""
    reservation: str = ""
    """The one that holds it at this moment."""
    boot_time: Number = NOTHING
    slurmd_start_time: Number = NOTHING
    last_busy: Number = NOTHING
    version: str = ""


class PartitionNodes(msgspec.Struct, frozen=True, gc=False):
    """The nodes of a partition, as host lists."""

    configured: str = ""
    total: int = 0


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """Whether a partition takes and runs jobs: UP, DOWN, DRAIN, INACTIVE."""

    state: States = ()


class Partition(msgspec.Struct, frozen=True, gc=False):
    name: str
    nodes: PartitionNodes = PartitionNodes()
    partition: PartitionState = PartitionState()


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """A reservation: nodes that are kept for somebody for a time."""

    name: str
    node_list: str = ""
    node_count: int = 0
    users: str = ""
    flags: tuple[str, ...] = ()
    start_time: Number = NOTHING
    end_time: Number = NOTHING


class Ping(msgspec.Struct, frozen=True, gc=False):
    """Whether one slurmctld answers."""

    hostname: str = ""
    pinged: str = ""
    responding: bool | None = None
    latency: int = 0

    @property
    def answers(self) -> bool:
        """Newer versions say so; older ones only have a word for it."""
        return self.pinged == "UP" if self.responding is None else self.responding


class NodeChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is to change about a node. States are verbs here: DRAIN, RESUME, DOWN, POWER_DOWN and so on."""

    state: tuple[str, ...] = ()
    reason: str | None = None
    comment: str | None = None
    extra: str | None = None
    features: tuple[str, ...] | None = None
    """An empty list changes nothing: ("",) takes all away."""
    features_act: tuple[str, ...] | None = None
    gres: str | None = None
    weight: Number | None = None
    address: tuple[str, ...] | None = None
    hostname: tuple[str, ...] | None = None
    topology_str: str | None = None
    """What is `topology` when the node is read; an empty text takes the node out of all."""


class ReservationRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A reservation to be made or changed; times are seconds since 1970, the duration is in minutes."""

    name: str
    node_list: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str | None = None
    flags: tuple[str, ...] = ()
    start_time: Number | None = None
    end_time: Number | None = None
    duration: Number | None = None


class RpcCount(msgspec.Struct, frozen=True, gc=False):
    """How often slurmctld was asked one kind of question, and how long it worked on it, in microseconds."""

    message_type: str
    count: int = 0
    total_time: int = 0


class RpcUser(msgspec.Struct, frozen=True, gc=False):
    """How often one user asked slurmctld, and how long it worked on that, in microseconds."""

    user: str = ""
    user_id: int = 0
    count: int = 0
    total_time: int = 0


class PendingRpc(msgspec.Struct, frozen=True, gc=False):
    """Requests of one kind that slurmctld has yet to send."""

    message_type: str = ""
    count: int = 0


class CycleExits(msgspec.Struct, frozen=True, gc=False):
    """Why cycles of the main scheduler ended, and how often."""

    end_job_queue: int = 0
    default_queue_depth: int = 0
    max_job_start: int = 0
    max_rpc_cnt: int = 0
    max_sched_time: int = 0
    licenses: int = 0


class BackfillExits(msgspec.Struct, frozen=True, gc=False):
    """Why cycles of the backfill scheduler ended, and how often."""

    end_job_queue: int = 0
    bf_max_job_start: int = 0
    bf_max_job_test: int = 0
    bf_max_time: int = 0
    bf_node_space_size: int = 0
    state_changed: int = 0


class Statistics(msgspec.Struct, frozen=True, gc=False):
    """What slurmctld counts, and since when. Durations are in microseconds."""

    now: Number = msgspec.field(name="req_time", default=NOTHING)
    """The time on its clock."""
    since: Number = msgspec.field(name="req_time_start", default=NOTHING)
    """When it began to count: at its start, anew when it is reconfigured and at midnight; 0 until it has begun."""
    server_thread_count: int = 0
    agent_queue_size: int = 0
    agent_count: int = 0
    agent_thread_count: int = 0
    dbd_agent_queue_size: int = 0
    gettimeofday_latency: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_canceled: int = 0
    jobs_failed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    job_states_ts: Number = NOTHING
    schedule_cycle_last: int = 0
    schedule_cycle_max: int = 0
    schedule_cycle_mean: int = 0
    schedule_cycle_mean_depth: int = 0
    schedule_cycle_per_minute: int = 0
    schedule_cycle_depth: int = 0
    schedule_cycle_sum: int = 0
    schedule_cycle_total: int = 0
    schedule_queue_length: int = 0
    schedule_exit: CycleExits = CycleExits()
    bf_active: bool = False
    bf_backfilled_jobs: int = 0
    bf_last_backfilled_jobs: int = 0
    bf_backfilled_het_jobs: int = 0
    bf_cycle_counter: int = 0
    bf_cycle_last: int = 0
    bf_cycle_max: int = 0
    bf_cycle_mean: int = 0
    bf_cycle_sum: int = 0
    bf_depth_mean: int = 0
    bf_depth_mean_try: int = 0
    bf_depth_sum: int = 0
    bf_depth_try_sum: int = 0
    bf_last_depth: int = 0
    bf_last_depth_try: int = 0
    bf_queue_len: int = 0
    bf_queue_len_mean: int = 0
    bf_queue_len_sum: int = 0
    bf_table_size: int = 0
    bf_table_size_mean: int = 0
    bf_table_size_sum: int = 0
    bf_when_last_cycle: Number = NOTHING
    bf_exit: BackfillExits = BackfillExits()
    rpcs_by_message_type: tuple[RpcCount, ...] = ()
    rpcs_by_user: tuple[RpcUser, ...] = ()
    pending_rpcs: tuple[PendingRpc, ...] = ()


class License(msgspec.Struct, frozen=True, gc=False):
    """A licence that jobs can ask for."""

    name: str = msgspec.field(name="LicenseName", default="")
    total: int = msgspec.field(name="Total", default=0)
    used: int = msgspec.field(name="Used", default=0)
    reserved: int = msgspec.field(name="Reserved", default=0)


class FairShare(msgspec.Struct, frozen=True, gc=False):
    """How far an association is from its share."""

    factor: Number = NOTHING


class Share(msgspec.Struct, frozen=True, gc=False):
    """What a user or an account is entitled to, and has used."""

    name: str = ""
    parent: str = ""
    """For a user, the account."""
    partition: str = ""
    shares_normalized: Number = NOTHING
    effective_usage: Number = NOTHING
    usage_normalized: Number = NOTHING
    fairshare: FairShare = FairShare()
    type: tuple[str, ...] = ()
