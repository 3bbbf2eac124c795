"""Every family that the exporter can expose, in one place: name, type, labels, meaning.

`SOPERATOR` has the names, labels and meanings of Soperator's exporter, so that its dashboards work unchanged. `OWN`
goes beyond it: true counters and histograms made from the transitions that the poller sees, and what no other
exporter shows. Alias sets (`aliases/`) repeat facts of both under the names of other exporters; at most one set is
exposed.
"""

from typing import Final

from isthmus.domain.exporter.exposition import counter, gauge, histogram

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

# ---------------------------------------------------------------------------------------------------- Soperator's

_STATE_FLAGS: Final = (
    "state_is_drain",
    "state_is_maintenance",
    "state_is_reserved",
    "state_is_completing",
    "state_is_fail",
    "state_is_planned",
    "state_is_not_responding",
    "state_is_invalid",
    "state_is_cloud",
    "state_is_power_down",
    "state_is_power_drain",
    "state_is_powered_down",
    "state_is_powering_down",
    "state_is_powering_up",
    "state_is_power_up",
)
_NODE_STATE: Final = ("node_name", "state_base", "state_is_drain", "state_is_maintenance", "state_is_reserved")
_OUTAGE_BUCKETS: Final = (
    30,
    _MINUTE,
    5 * _MINUTE,
    10 * _MINUTE,
    30 * _MINUTE,
    _HOUR,
    2 * _HOUR,
    4 * _HOUR,
    8 * _HOUR,
    12 * _HOUR,
    _DAY,
    2 * _DAY,
    3 * _DAY,
    7 * _DAY,
    14 * _DAY,
    30 * _DAY,
)

NODE_INFO: Final = gauge(
    "slurm_node_info",
    "1 for each node, with its state.",
    "node_name",
    "instance_id",
    "state_base",
    *_STATE_FLAGS,
    "is_unavailable",
    "reservation_name",
    "address",
    "reason",
    "comment",
)
NODE_CPUS_TOTAL: Final = gauge("slurm_node_cpus_total", "CPUs of a node.", "node_name")
NODE_CPUS_ALLOCATED: Final = gauge("slurm_node_cpus_allocated", "Allocated CPUs of a node.", "node_name")
NODE_CPUS_IDLE: Final = gauge("slurm_node_cpus_idle", "Idle CPUs of a node.", "node_name")
NODE_CPUS_EFFECTIVE: Final = gauge(
    "slurm_node_cpus_effective", "CPUs of a node that can be allocated to jobs.", "node_name"
)
NODE_MEMORY_TOTAL: Final = gauge("slurm_node_memory_total_bytes", "Memory of a node.", "node_name")
NODE_MEMORY_ALLOCATED: Final = gauge(
    "slurm_node_memory_allocated_bytes", "Allocated memory of a node.", "node_name"
)
NODE_MEMORY_FREE: Final = gauge(
    "slurm_node_memory_free_bytes", "Memory of a node that its operating system reports as free.", "node_name"
)
NODE_MEMORY_EFFECTIVE: Final = gauge(
    "slurm_node_memory_effective_bytes", "Memory of a node that can be allocated to jobs.", "node_name"
)
NODE_PARTITION: Final = gauge(
    "slurm_node_partition", "1 for each partition that a node is in.", "node_name", "partition"
)
NODE_NVLINK_GROUP: Final = gauge(
    "slurm_node_nvlink_instance_group",
    "1 for each node whose Kubernetes node has an NVLink instance group.",
    "node_name",
    "instance_id",
    "nvlink_instance_group",
    "nodeset_name",
)
NODE_GPU_SECONDS: Final = counter(
    "slurm_node_gpu_seconds_total", "Seconds that the GPUs of a node spent in each state.", *_NODE_STATE
)
NODE_FAILS: Final = counter(
    "slurm_node_fails_total", "Transitions of a node to DOWN or DRAIN.", *_NODE_STATE, "reason"
)
NODE_UNAVAILABLE_SECONDS: Final = histogram(
    "slurm_node_unavailability_duration_seconds",
    "How long a node was unavailable, observed when it is available again.",
    "node_name",
    buckets=_OUTAGE_BUCKETS,
)
NODE_DRAINING_SECONDS: Final = histogram(
    "slurm_node_draining_duration_seconds",
    "How long a node took to drain, observed when its last job has ended.",
    "node_name",
    buckets=_OUTAGE_BUCKETS,
)
JOB_INFO: Final = gauge(
    "slurm_job_info",
    "1 for each job that slurmctld holds.",
    "job_id",
    "job_state",
    "job_state_reason",
    "slurm_partition",
    "job_name",
    "user_name",
    "user_mail",
    "user_id",
    "standard_error",
    "standard_output",
    "array_job_id",
    "array_task_id",
    "submit_time",
    "start_time",
    "end_time",
    "finished_time",
)
NODE_JOB: Final = gauge(
    "slurm_node_job",
    "1 for each node of each running job.",
    "job_id",
    "node_name",
    "nvlink_instance_group",
    "nodeset_name",
)
JOB_DURATION: Final = gauge("slurm_job_duration_seconds", "How long a job has run.", "job_id")
JOB_CPUS: Final = gauge("slurm_job_cpus", "CPUs of a job.", "job_id")
JOB_MEMORY: Final = gauge("slurm_job_memory_bytes", "Memory of a job.", "job_id")
RPC_CALLS: Final = counter("slurm_controller_rpc_calls_total", "Requests to slurmctld by type.", "message_type")
RPC_SECONDS: Final = counter(
    "slurm_controller_rpc_duration_seconds_total",
    "Seconds that slurmctld worked on requests, by type.",
    "message_type",
)
RPC_USER_CALLS: Final = counter(
    "slurm_controller_rpc_user_calls_total", "Requests to slurmctld by user.", "user", "user_id"
)
RPC_USER_SECONDS: Final = counter(
    "slurm_controller_rpc_user_duration_seconds_total",
    "Seconds that slurmctld worked on requests, by user.",
    "user",
    "user_id",
)
SERVER_THREADS: Final = gauge("slurm_controller_server_thread_count", "Threads of slurmctld that serve requests.")

PER_JOB: Final = (JOB_INFO, NODE_JOB, JOB_DURATION, JOB_CPUS, JOB_MEMORY)
"""The families with a series per job; `--per-job-metrics=false` leaves them out."""

SOPERATOR: Final = (
    NODE_INFO,
    NODE_CPUS_TOTAL,
    NODE_CPUS_ALLOCATED,
    NODE_CPUS_IDLE,
    NODE_CPUS_EFFECTIVE,
    NODE_MEMORY_TOTAL,
    NODE_MEMORY_ALLOCATED,
    NODE_MEMORY_FREE,
    NODE_MEMORY_EFFECTIVE,
    NODE_PARTITION,
    NODE_NVLINK_GROUP,
    NODE_GPU_SECONDS,
    NODE_FAILS,
    NODE_UNAVAILABLE_SECONDS,
    NODE_DRAINING_SECONDS,
    *PER_JOB,
    RPC_CALLS,
    RPC_SECONDS,
    RPC_USER_CALLS,
    RPC_USER_SECONDS,
    SERVER_THREADS,
)

# --------------------------------------------------------------------------------------------------------- Our own

_WHOSE: Final = ("partition", "account", "qos")
_WAIT_BUCKETS: Final = (
    1,
    5,
    15,
    60,
    300,
    900,
    1800,
    _HOUR,
    2 * _HOUR,
    6 * _HOUR,
    12 * _HOUR,
    _DAY,
    3 * _DAY,
    7 * _DAY,
)
_RUN_BUCKETS: Final = (1, 10, 60, 300, 900, 1800, _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY)

# Jobs: how many there are now.
JOBS: Final = gauge(
    "isthmus_slurm_jobs", "Jobs that slurmctld holds, by state; each task of an array is one.", *_WHOSE, "state"
)
JOBS_PENDING: Final = gauge(
    "isthmus_slurm_jobs_pending", "Pending jobs by the reason that Slurm gives.", "partition", "reason"
)
PENDING_CPUS: Final = gauge("isthmus_slurm_pending_cpus", "CPUs that pending jobs request.", "partition")
PENDING_GPUS: Final = gauge("isthmus_slurm_pending_gpus", "GPUs that pending jobs request.", "partition")
OLDEST_PENDING: Final = gauge(
    "isthmus_slurm_oldest_pending_timestamp_seconds",
    "When the oldest pending job that is eligible to run became so.",
    "partition",
)
USER_JOBS: Final = gauge("isthmus_slurm_user_jobs", "Jobs of a user by state.", "user", "state")
USER_CPUS: Final = gauge("isthmus_slurm_user_cpus", "CPUs allocated to the running jobs of a user.", "user")
USER_GPUS: Final = gauge("isthmus_slurm_user_gpus", "GPUs allocated to the running jobs of a user.", "user")
ACCOUNT_CPUS: Final = gauge(
    "isthmus_slurm_account_cpus", "CPUs allocated to the running jobs of an account.", "account"
)
ACCOUNT_GPUS: Final = gauge(
    "isthmus_slurm_account_gpus", "GPUs allocated to the running jobs of an account.", "account"
)
ACCOUNT_MEMORY: Final = gauge(
    "isthmus_slurm_account_memory_bytes", "Memory allocated to the running jobs of an account.", "account"
)

# Jobs: what happened to them.
JOBS_SUBMITTED: Final = counter("isthmus_slurm_jobs_submitted_total", "Jobs that were submitted.", *_WHOSE)
JOBS_STARTED: Final = counter("isthmus_slurm_jobs_started_total", "Jobs that started.", *_WHOSE)
JOBS_ENDED: Final = counter("isthmus_slurm_jobs_ended_total", "Jobs that ended, by final state.", *_WHOSE, "state")
JOBS_REQUEUED: Final = counter("isthmus_slurm_jobs_requeued_total", "Jobs that returned to the queue.", *_WHOSE)
JOBS_PREEMPTED: Final = counter("isthmus_slurm_jobs_preempted_total", "Jobs that were preempted.", *_WHOSE)
JOB_WAIT: Final = histogram(
    "isthmus_slurm_job_wait_seconds",
    "How long jobs waited from submission to start, observed when they start.",
    *_WHOSE,
    buckets=_WAIT_BUCKETS,
)
JOB_RUN: Final = histogram(
    "isthmus_slurm_job_run_seconds", "How long jobs ran, observed when they end.", *_WHOSE, buckets=_RUN_BUCKETS
)

# Partitions.
PARTITION_UP: Final = gauge(
    "isthmus_slurm_partition_up", "1 if a partition takes and runs jobs, else 0.", "partition"
)
PARTITION_NODES: Final = gauge(
    "isthmus_slurm_partition_nodes", "Nodes of a partition by state.", "partition", "state"
)
PARTITION_CPUS: Final = gauge("isthmus_slurm_partition_cpus", "CPUs of a partition.", "partition")
PARTITION_CPUS_ALLOCATED: Final = gauge(
    "isthmus_slurm_partition_cpus_allocated", "Allocated CPUs of a partition.", "partition"
)
PARTITION_GPUS: Final = gauge("isthmus_slurm_partition_gpus", "GPUs of a partition.", "partition")
PARTITION_GPUS_ALLOCATED: Final = gauge(
    "isthmus_slurm_partition_gpus_allocated", "Allocated GPUs of a partition.", "partition"
)

# Nodes.
NODES: Final = gauge("isthmus_slurm_nodes", "Nodes by state.", "state")
NODES_OUT: Final = gauge(
    "isthmus_slurm_nodes_out",
    "Nodes that are drained, draining, down or failing, by the class of their reason.",
    "reason_class",
)
NODE_STATE: Final = gauge(
    "isthmus_slurm_node_state",
    "State of a node as a number: 0 idle, 1 mixed, 2 allocated, 3 completing, 4 planned, 5 reserved, 6 maintenance,"
    " 7 powered down, 8 powering up, 9 powering down, 10 draining, 11 drained, 12 failing, 13 not responding,"
    " 14 down, 15 unknown.",
    "node",
    "reason_class",
)
NODE_DRAIN_SINCE: Final = gauge(
    "isthmus_slurm_node_drain_timestamp_seconds",
    "When a node that is drained, draining, down or failing got its reason, and who set it.",
    "node",
    "owner",
)
NODE_GPUS: Final = gauge("isthmus_slurm_node_gpus", "GPUs of a node.", "node")
NODE_GPUS_ALLOCATED: Final = gauge("isthmus_slurm_node_gpus_allocated", "Allocated GPUs of a node.", "node")

# Fair share, limits, reservations, licences.
FAIR_SHARE: Final = gauge(
    "isthmus_slurm_account_fairshare", "Fair-share factor of an account, from 0 to 1.", "account"
)
FAIR_SHARE_USER: Final = gauge(
    "isthmus_slurm_user_fairshare", "Fair-share factor of a user in an account, from 0 to 1.", "account", "user"
)
ACCOUNT_SHARES: Final = gauge(
    "isthmus_slurm_account_shares_ratio", "Share of the cluster that an account is entitled to.", "account"
)
ACCOUNT_USAGE: Final = gauge(
    "isthmus_slurm_account_usage_ratio", "Share of the recent usage that is an account's.", "account"
)
ACCOUNT_LIMIT: Final = gauge(
    "isthmus_slurm_account_limit",
    "Limits of an account: jobs, submitted jobs, cpu, node, gres/gpu.",
    "account",
    "limit",
)
RESERVATION_NODES: Final = gauge("isthmus_slurm_reservation_nodes", "Nodes of a reservation.", "reservation")
RESERVATION_START: Final = gauge(
    "isthmus_slurm_reservation_start_timestamp_seconds", "When a reservation begins.", "reservation"
)
RESERVATION_END: Final = gauge(
    "isthmus_slurm_reservation_end_timestamp_seconds", "When a reservation ends.", "reservation"
)
LICENSES: Final = gauge("isthmus_slurm_licenses", "Licences that exist.", "license")
LICENSES_USED: Final = gauge("isthmus_slurm_licenses_used", "Licences that jobs use.", "license")
LICENSES_RESERVED: Final = gauge("isthmus_slurm_licenses_reserved", "Licences that reservations hold.", "license")

# slurmctld itself.
UP: Final = gauge("isthmus_slurm_up", "1 while slurmctld answers the exporter, else 0.")
LAST_CONTACT: Final = gauge(
    "isthmus_slurm_last_contact_timestamp_seconds", "When slurmctld last answered the exporter."
)
DATA_AGE: Final = gauge(
    "isthmus_slurm_data_age_seconds",
    "Age of what is exposed; while Slurm is unreachable the last values stay and this grows.",
    "collector",
)
CONTROLLER_UP: Final = gauge("isthmus_slurm_controller_up", "1 if a slurmctld answers a ping, else 0.", "host")
CONTROLLER_LATENCY: Final = gauge(
    "isthmus_slurm_controller_ping_seconds", "How long a slurmctld took to answer a ping.", "host"
)
ACCOUNTING_UP: Final = gauge(
    "isthmus_slurm_accounting_up", "1 while slurmdbd answers the exporter, else 0; absent without accounting."
)
AGENT_QUEUE: Final = gauge("isthmus_slurm_agent_queue_size", "Messages that slurmctld has yet to send to nodes.")
AGENT_THREADS: Final = gauge("isthmus_slurm_agent_threads", "Threads of slurmctld that send messages.")
DBD_QUEUE: Final = gauge(
    "isthmus_slurm_slurmdbd_queue_size", "Messages that slurmctld has yet to send to slurmdbd."
)
STATISTICS_SINCE: Final = gauge(
    "isthmus_slurm_statistics_timestamp_seconds", "When slurmctld last reset its statistics."
)
PENDING_RPCS: Final = gauge(
    "isthmus_slurm_pending_rpcs", "Requests that slurmctld has accepted and not begun, by type.", "message_type"
)

SCHED_CYCLES: Final = counter("isthmus_slurm_scheduler_cycles_total", "Cycles of the main scheduler.")
SCHED_LAST: Final = gauge(
    "isthmus_slurm_scheduler_cycle_seconds", "Duration of the last cycle of the main scheduler."
)
SCHED_MEAN: Final = gauge(
    "isthmus_slurm_scheduler_cycle_mean_seconds", "Mean duration of a cycle of the main scheduler."
)
SCHED_MAX: Final = gauge("isthmus_slurm_scheduler_cycle_max_seconds", "Longest cycle of the main scheduler.")
SCHED_DEPTH: Final = gauge(
    "isthmus_slurm_scheduler_depth_mean", "Jobs that a cycle of the main scheduler looks at, on average."
)
SCHED_QUEUE: Final = gauge("isthmus_slurm_scheduler_queue_length", "Jobs in the queue of the main scheduler.")
SCHED_EXITS: Final = counter(
    "isthmus_slurm_scheduler_exits_total", "Why cycles of the main scheduler ended.", "reason"
)
BF_ACTIVE: Final = gauge("isthmus_slurm_backfill_active", "1 while backfill is at work, else 0.")
BF_CYCLES: Final = counter("isthmus_slurm_backfill_cycles_total", "Cycles of the backfill scheduler.")
BF_LAST: Final = gauge(
    "isthmus_slurm_backfill_cycle_seconds", "Duration of the last cycle of the backfill scheduler."
)
BF_MEAN: Final = gauge(
    "isthmus_slurm_backfill_cycle_mean_seconds", "Mean duration of a cycle of the backfill scheduler."
)
BF_MAX: Final = gauge("isthmus_slurm_backfill_cycle_max_seconds", "Longest cycle of the backfill scheduler.")
BF_WHEN: Final = gauge(
    "isthmus_slurm_backfill_last_cycle_timestamp_seconds", "When the last cycle of the backfill scheduler began."
)
BF_DEPTH: Final = gauge(
    "isthmus_slurm_backfill_depth_mean", "Jobs that a cycle of the backfill scheduler looks at, on average."
)
BF_QUEUE: Final = gauge("isthmus_slurm_backfill_queue_length", "Jobs in the queue of the backfill scheduler.")
BF_TABLE: Final = gauge(
    "isthmus_slurm_backfill_table_size", "Time slots that the backfill scheduler tested in its last cycle."
)
BF_JOBS: Final = counter("isthmus_slurm_backfilled_jobs_total", "Jobs that the backfill scheduler started.")
BF_EXITS: Final = counter(
    "isthmus_slurm_backfill_exits_total", "Why cycles of the backfill scheduler ended.", "reason"
)

FOLDED: Final = gauge(
    "isthmus_slurm_folded_series",
    'Series that were added up under "other" to keep a family within its limit.',
    "family",
)

OWN: Final = (
    JOBS,
    JOBS_PENDING,
    PENDING_CPUS,
    PENDING_GPUS,
    OLDEST_PENDING,
    USER_JOBS,
    USER_CPUS,
    USER_GPUS,
    ACCOUNT_CPUS,
    ACCOUNT_GPUS,
    ACCOUNT_MEMORY,
    JOBS_SUBMITTED,
    JOBS_STARTED,
    JOBS_ENDED,
    JOBS_REQUEUED,
    JOBS_PREEMPTED,
    JOB_WAIT,
    JOB_RUN,
    PARTITION_UP,
    PARTITION_NODES,
    PARTITION_CPUS,
    PARTITION_CPUS_ALLOCATED,
    PARTITION_GPUS,
    PARTITION_GPUS_ALLOCATED,
    NODES,
    NODES_OUT,
    NODE_STATE,
    NODE_DRAIN_SINCE,
    NODE_GPUS,
    NODE_GPUS_ALLOCATED,
    FAIR_SHARE,
    FAIR_SHARE_USER,
    ACCOUNT_SHARES,
    ACCOUNT_USAGE,
    ACCOUNT_LIMIT,
    RESERVATION_NODES,
    RESERVATION_START,
    RESERVATION_END,
    LICENSES,
    LICENSES_USED,
    LICENSES_RESERVED,
    UP,
    LAST_CONTACT,
    DATA_AGE,
    CONTROLLER_UP,
    CONTROLLER_LATENCY,
    ACCOUNTING_UP,
    AGENT_QUEUE,
    AGENT_THREADS,
    DBD_QUEUE,
    STATISTICS_SINCE,
    PENDING_RPCS,
    SCHED_CYCLES,
    SCHED_LAST,
    SCHED_MEAN,
    SCHED_MAX,
    SCHED_DEPTH,
    SCHED_QUEUE,
    SCHED_EXITS,
    BF_ACTIVE,
    BF_CYCLES,
    BF_LAST,
    BF_MEAN,
    BF_MAX,
    BF_WHEN,
    BF_DEPTH,
    BF_QUEUE,
    BF_TABLE,
    BF_JOBS,
    BF_EXITS,
    FOLDED,
)
