"""The names of SlinkyProject/slurm-exporter 0.3, which was given up in 2025.

Every name there ends in `_total` though nothing is a counter, and what is called bytes is megabytes. The names
stay; the units are those of the names.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from isthmus.domain.exporter.sets import Computed, MetricSet, Summed, gauge, measured, most_nodes, of_node

_JOBS: Final = {
    "bootfail": "bootfail",
    "cancelled": "cancelled",
    "completed": "completed",
    "completing": "completing",
    "configuring": "configuring",
    "deadline": "deadline",
    "failed": "failed",
    "hold": "hold",
    "nodefail": "node_failed",
    "outofmemory": "outofmemory",
    "pending": "pending",
    "powerupnode": "powerup_node",
    "preempted": "preempted",
    "running": "running",
    "stageout": "stageout",
    "suspended": "suspended",
    "timeout": "timeout",
}
_NODES: Final = {
    "allocated": "alloc",
    "completing": "completing",
    "down": "down",
    "drain": "drain",
    "error": "error",
    "fail": "fail",
    "future": "future",
    "idle": "idle",
    "maintenance": "maint",
    "mixed": "mixed",
    "notresponding": "noresp",
    "planned": "planned",
    "rebootrequested": "reboot_req",
    "reserved": "resv",
    "unknown": "unknown",
}
_AMOUNTS: Final = {
    "cpus_total": "cpus",
    "cpus_effective_total": "cpus_effective",
    "cpus_alloc_total": "cpus_alloc",
    "cpus_idle_total": "cpus_idle",
    "memory_bytes": "memory",
    "memory_effective_bytes": "memory_effective",
    "memory_alloc_bytes": "memory_alloc",
    "memory_free_bytes": "memory_free",
}


def _words(name: str) -> str:
    return name.removesuffix("_total").replace("_", " ")


def _jobs() -> Iterator[Summed]:
    for prefix, kind, labels in (
        ("slurm", "all", ()),
        ("slurm_partition", "partition", ("partition",)),
        ("slurm_account", "account", ("account",)),
        ("slurm_user", "user", ("user",)),
    ):
        yield Summed(gauge(f"{prefix}_jobs_total", "Jobs.", *labels), "jobs", kind, "jobs")
        for name, amount in _JOBS.items():
            yield Summed(gauge(f"{prefix}_jobs_{name}_total", f"Jobs: {name}.", *labels), "jobs", kind, amount)
        for name, amount in (("cpus_alloc_total", "cpus_alloc"), ("memory_alloc_bytes", "memory_alloc")):
            yield Summed(gauge(f"{prefix}_jobs_{name}", f"Jobs: {_words(name)}.", *labels), "jobs", kind, amount)


def _nodes() -> Iterator[Summed]:
    for prefix, kind, labels in (("slurm", "all", ()), ("slurm_partition", "partition", ("partition",))):
        yield Summed(gauge(f"{prefix}_nodes_total", "Nodes.", *labels), "nodes", kind, "nodes")
        for name, amount in _NODES.items():
            yield Summed(gauge(f"{prefix}_nodes_{name}_total", f"Nodes: {name}.", *labels), "nodes", kind, amount)
        for name, amount in _AMOUNTS.items():
            family = gauge(f"{prefix}_nodes_{name}", f"Of all nodes: {_words(name)}.", *labels)
            yield Summed(family, "nodes", kind, amount)


SET: Final = MetricSet(
    nodes=tuple(
        of_node(gauge(f"slurm_node_{name}", f"Of a node: {_words(name)}.", "node"), attrgetter(amount))
        for name, amount in _AMOUNTS.items()
    ),
    sums=(*_jobs(), *_nodes()),
    computed=(
        Computed(
            gauge(
                "slurm_partition_jobs_pending_maxnodecount_total",
                "Nodes that the largest pending job requests.",
                "partition",
            ),
            most_nodes,
        ),
    ),
    statistics=measured(
        "slurm",
        {
            "scheduler_thread_total": "server_thread_count",
            "scheduler_agent_total": "agent_count",
            "scheduler_agent_queue_total": "agent_queue_size",
            "scheduler_agent_thread_total": "agent_thread_count",
            "scheduler_dbd_agent_queue_total": "dbd_agent_queue_size",
            "scheduler_cycle_last_seconds": "schedule_cycle_last",
            "scheduler_cycle_max_seconds": "schedule_cycle_max",
            "scheduler_cycle_mean_seconds": "schedule_cycle_mean",
            "scheduler_cycle_meandepth_total": "schedule_cycle_mean_depth",
            "scheduler_cycle_perminute_total": "schedule_cycle_per_minute",
            "scheduler_queue_total": "schedule_queue_length",
            "scheduler_jobs_submitted_total": "jobs_submitted",
            "scheduler_jobs_started_total": "jobs_started",
            "scheduler_jobs_completed_total": "jobs_completed",
            "scheduler_jobs_canceled_total": "jobs_canceled",
            "scheduler_jobs_failed_total": "jobs_failed",
            "scheduler_jobs_pending_total": "jobs_pending",
            "scheduler_jobs_running_total": "jobs_running",
            "bfscheduler_backfilledjobs_total": "bf_backfilled_jobs",
            "bfscheduler_lastbackfilledjobs_total": "bf_last_backfilled_jobs",
            "bfscheduler_backfilledhetjobs_total": "bf_backfilled_het_jobs",
            "bfscheduler_cycle_total": "bf_cycle_counter",
            "bfscheduler_cycle_last_seconds": "bf_cycle_last",
            "bfscheduler_cycle_max_seconds": "bf_cycle_max",
            "bfscheduler_cycle_mean_seconds": "bf_cycle_mean",
            "bfscheduler_lastdepth_total": "bf_last_depth",
            "bfscheduler_depth_mean_total": "bf_depth_mean",
            "bfscheduler_queue_total": "bf_queue_len",
            "bfscheduler_queue_mean_total": "bf_queue_len_mean",
            "bfscheduler_table_size_total": "bf_table_size",
        },
    ),
)
