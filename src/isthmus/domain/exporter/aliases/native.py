"""The names of slurmctld's own metrics (25.11 and newer), with the values that they should have.

slurmctld shows the nodes that power down under `powering_up`, cuts numbers to 16 or 32 bits, writes megabytes where
it says bytes, and counts tasks of arrays one by one in some families and by record in others. Here each name has
what it says, and tasks count one by one.
"""

from collections.abc import Iterator
from typing import Final, Literal

from isthmus.domain.exporter import jobsums, nodesums
from isthmus.domain.exporter.exposition import Row
from isthmus.domain.exporter.sets import (
    Computed,
    MetricSet,
    Summed,
    View,
    gauge,
    measured,
    most_nodes,
    of_node,
)

_JOB_AMOUNTS: Final = (*jobsums.COUNTS, *jobsums.ALLOCATED)
_NODE_COUNTS: Final = tuple(word for word in nodesums.COUNTS if word != "error")
_IN_PARTITIONS: Final = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
_NODE_AMOUNTS: Final = {
    "cpus_alloc": "cpus_alloc",
    "cpus_effective": "cpus_efctv",
    "cpus_idle": "cpus_idle",
    "memory_alloc": "mem_alloc",
    "memory_effective": "mem_avail",
    "memory_free": "mem_free",
    "memory": "mem_tot",
}
_WAIT_NODE_LIMIT: Final = "PartitionNodeLimit"


def _jobs() -> Iterator[Summed]:
    for prefix, kind, labels in (
        ("slurm", "all", ()),
        ("slurm_user", "user", ("username",)),
        ("slurm_account", "account", ("account",)),
        ("slurm_partition", "partition", ("partition",)),
    ):
        yield Summed(gauge(f"{prefix}_jobs", "Jobs.", *labels), "jobs", kind, "jobs")
        for amount in _JOB_AMOUNTS:
            if (kind, amount) == ("partition", "nodes_alloc"):
                continue
            # Jobs may share a node, which counts once among all.
            source: Literal["jobs", "nodes"] = "nodes" if (kind, amount) == ("all", "nodes_alloc") else "jobs"
            text = f"Jobs: {amount.replace('_', ' ')}."
            yield Summed(gauge(f"{prefix}_jobs_{amount}", text, *labels), source, kind, amount)


def _nodes() -> Iterator[Summed]:
    yield Summed(gauge("slurm_nodes", "Nodes."), "nodes", "all", "nodes")
    for word in _NODE_COUNTS:
        text = f"Nodes: {word.replace('_', ' ')}."
        yield Summed(gauge(f"slurm_nodes_{word}", text), "nodes", "all", word)
        inside = _IN_PARTITIONS.get(word, word)
        yield Summed(gauge(f"slurm_partition_nodes_{inside}", text, "partition"), "nodes", "partition", word)
    for amount, word in _NODE_AMOUNTS.items():
        text = f"Of all nodes of a partition: {amount.replace('_', ' ')}."
        yield Summed(gauge(f"slurm_partition_nodes_{word}", text, "partition"), "nodes", "partition", amount)
    for amount in ("cpus", "gpus", "nodes"):
        text = f"Of a partition: {amount}."
        yield Summed(gauge(f"slurm_partition_{amount}", text, "partition"), "nodes", "partition", amount)


def _partitions(view: View) -> Iterator[Row]:
    yield (), len(view.partitions)


def _wait_node_limit(view: View) -> Iterator[Row]:
    for partition in view.partitions:
        yield (partition,), view.jobs.get(("reason", partition, _WAIT_NODE_LIMIT), "jobs")


def _largest() -> Iterator[Computed]:
    """Give both names the same value: slurmctld has the largest least number of nodes under `min`."""
    for name in ("max_job_nodes", "min_job_nodes"):
        text = "Nodes that the largest pending job requests."
        yield Computed(gauge(f"slurm_partition_jobs_{name}", text, "partition"), most_nodes)
        yield Computed(
            gauge(f"slurm_partition_jobs_{name}_nohold", f"{text[:-1]}, without held jobs.", "partition"),
            lambda view: most_nodes(view, held=False),
        )


SET: Final = MetricSet(
    nodes=tuple(
        of_node(gauge(f"slurm_node_{name}", f"Of a node: {name.replace('_', ' ')}.", "node"), value)
        for name, value in (
            ("cpus", lambda it: it.cpus),
            ("cpus_alloc", lambda it: it.cpus_alloc),
            ("cpus_effective", lambda it: it.cpus_effective),
            ("cpus_idle", lambda it: it.cpus_idle),
            ("gpus", lambda it: it.gpus),
            ("gpus_alloc", lambda it: it.gpus_alloc),
            ("memory_bytes", lambda it: it.memory),
            ("memory_alloc_bytes", lambda it: it.memory_alloc),
            ("memory_effective_bytes", lambda it: it.memory_effective),
            ("memory_free_bytes", lambda it: it.memory_free),
        )
    ),
    sums=(*_jobs(), *_nodes()),
    computed=(
        Computed(gauge("slurm_partitions", "Partitions."), _partitions),
        Computed(
            gauge("slurm_partition_jobs_wait_part_node_limit", "Jobs that wait for too many nodes.", "partition"),
            _wait_node_limit,
        ),
        *_largest(),
    ),
    statistics=measured(
        "slurm",
        {
            "agent_cnt": "agent_count",
            "agent_queue_size": "agent_queue_size",
            "agent_thread_cnt": "agent_thread_count",
            "server_thread_cnt": "server_thread_count",
            "slurmdbd_queue_size": "dbd_agent_queue_size",
            "last_proc_req_start": "since.value",
            "sched_stats_timestamp": "now.value",
            "schedule_cycle_cnt": "schedule_cycle_total",
            "schedule_cycle_depth": "schedule_cycle_depth",
            "schedule_cycle_last": "schedule_cycle_last",
            "schedule_cycle_max": "schedule_cycle_max",
            "schedule_cycle_tot": "schedule_cycle_sum",
            "schedule_queue_len": "schedule_queue_length",
            "sched_mean_cycle": "schedule_cycle_mean",
            "sched_mean_depth_cycle": "schedule_cycle_mean_depth",
            "sched_exit_end": "schedule_exit.end_job_queue",
            "sched_exit_max_depth": "schedule_exit.default_queue_depth",
            "sched_exit_max_job_start": "schedule_exit.max_job_start",
            "sched_exit_lic": "schedule_exit.licenses",
            "sched_exit_rpc_cnt": "schedule_exit.max_rpc_cnt",
            "sched_exit_timeout": "schedule_exit.max_sched_time",
            "bf_active": "bf_active",
            "bf_cycle_cnt": "bf_cycle_counter",
            "bf_cycle_last": "bf_cycle_last",
            "bf_cycle_max": "bf_cycle_max",
            "bf_cycle_tot": "bf_cycle_sum",
            "bf_mean_cycle": "bf_cycle_mean",
            "bf_depth_mean": "bf_depth_mean",
            "bf_depth_tot": "bf_depth_sum",
            "bf_depth_try_tot": "bf_depth_try_sum",
            "bf_try_depth_mean": "bf_depth_mean_try",
            "bf_last_depth": "bf_last_depth",
            "bf_last_depth_try": "bf_last_depth_try",
            "bf_queue_len": "bf_queue_len",
            "bf_queue_len_mean": "bf_queue_len_mean",
            "bf_queue_len_tot": "bf_queue_len_sum",
            "bf_table_size": "bf_table_size",
            "bf_table_size_tot": "bf_table_size_sum",
            "bf_mean_table_sz": "bf_table_size_mean",
            "bf_when_last_cycle": "bf_when_last_cycle.value",
            "bf_exit_end": "bf_exit.end_job_queue",
            "bf_exit_max_job_start": "bf_exit.bf_max_job_start",
            "bf_exit_max_job_test": "bf_exit.bf_max_job_test",
            "bf_exit_state_changed": "bf_exit.state_changed",
            "bf_exit_table_limit": "bf_exit.bf_node_space_size",
            "bf_exit_timeout": "bf_exit.bf_max_time",
            "backfilled_jobs": "bf_backfilled_jobs",
            "backfilled_het_jobs": "bf_backfilled_het_jobs",
            "last_backfilled_jobs": "bf_last_backfilled_jobs",
            "sdiag_jobs_submitted": "jobs_submitted",
            "sdiag_jobs_started": "jobs_started",
            "sdiag_jobs_completed": "jobs_completed",
            "sdiag_jobs_canceled": "jobs_canceled",
            "sdiag_jobs_failed": "jobs_failed",
            "sdiag_jobs_pending": "jobs_pending",
            "sdiag_jobs_running": "jobs_running",
            "sdiag_job_states_ts": "job_states_ts.value",
            "sdiag_latency": "gettimeofday_latency",
        },
    ),
)
