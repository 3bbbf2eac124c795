"""The names of vpenso/prometheus-slurm-exporter, which most dashboards on grafana.com still have."""

from collections.abc import Callable, Iterator
from typing import Final

from isthmus.domain.exporter.exposition import Row
from isthmus.domain.exporter.nodesums import NodeFacts
from isthmus.domain.exporter.sets import (
    Computed,
    MetricSet,
    PerNode,
    Summed,
    View,
    gauge,
    measured,
)

_MIB: Final = 1 << 20
_ALL: Final = ("all",)
_NODE_STATES: Final = {
    "alloc": ("allocated",),
    "comp": ("completing",),
    "down": ("down", "not_responding"),
    "drain": ("drained", "draining"),
    "err": (),
    "fail": ("failing",),
    "idle": ("idle",),
    "maint": ("maintenance",),
    "mix": ("mixed",),
    "resv": ("reserved",),
}
_QUEUE: Final = (
    "pending",
    "running",
    "suspended",
    "cancelled",
    "completing",
    "completed",
    "configuring",
    "failed",
    "timeout",
    "preempted",
    "node_fail",
)


def _of_node(name: str, value: Callable[[NodeFacts], float]) -> PerNode:
    family = gauge(f"slurm_node_{name}", f"Of a node: {name.replace('_', ' ')}.", "node", "status")
    return PerNode(family, lambda node: (((node.node.name, node.state), value(node)),))


def _sum_of(name: str, value: Callable[[View], float]) -> Computed:
    return Computed(
        gauge(f"slurm_{name}", f"{name.replace('_', ' ').capitalize()}."), lambda view: [((), value(view))]
    )


def _nodes_in(states: tuple[str, ...]) -> Callable[[View], float]:
    return lambda view: sum(view.nodes.get(_ALL, f"state/{state}") for state in states)


def _jobs_in(state: str) -> Callable[[View], float]:
    return lambda view: view.jobs.get(_ALL, f"state/{state}")


def _cpus_idle(view: View) -> float:
    """Idle CPUs of nodes that take jobs."""
    return view.nodes.get(_ALL, "cpus_idle") - view.nodes.get(_ALL, "cpus_other")


def _gpu_utilization(view: View) -> float:
    total = view.nodes.get(_ALL, "gpus")
    return view.nodes.get(_ALL, "gpus_alloc") / total if total else 0.0


def _partition_idle(view: View) -> Iterator[Row]:
    for partition in view.partitions:
        group = ("partition", partition)
        yield (partition,), view.nodes.get(group, "cpus_idle") - view.nodes.get(group, "cpus_other")


def _people() -> Iterator[Summed]:
    for kind in ("account", "user"):
        for name, amount in (
            ("jobs_pending", "pending"),
            ("jobs_running", "running"),
            ("cpus_running", "cpus_alloc"),
            ("jobs_suspended", "suspended"),
        ):
            family = gauge(f"slurm_{kind}_{name}", f"Of a {kind}: {name.replace('_', ' ')}.", kind)
            yield Summed(family, "jobs", kind, amount)


SET: Final = MetricSet(
    nodes=(
        _of_node("cpu_alloc", lambda it: it.cpus_alloc),
        _of_node("cpu_idle", lambda it: it.cpus_idle),
        _of_node("cpu_other", lambda it: max(0, it.cpus - it.cpus_alloc - it.cpus_idle)),
        _of_node("cpu_total", lambda it: it.cpus),
        _of_node("mem_alloc", lambda it: it.memory_alloc // _MIB),
        _of_node("mem_total", lambda it: it.memory // _MIB),
    ),
    sums=(
        Summed(
            gauge("slurm_partition_cpus_allocated", "Allocated CPUs.", "partition"),
            "nodes",
            "partition",
            "cpus_alloc",
        ),
        Summed(
            gauge("slurm_partition_cpus_other", "CPUs of nodes that take no jobs.", "partition"),
            "nodes",
            "partition",
            "cpus_other",
        ),
        Summed(gauge("slurm_partition_cpus_total", "CPUs.", "partition"), "nodes", "partition", "cpus"),
        Summed(gauge("slurm_partition_jobs_pending", "Pending jobs.", "partition"), "jobs", "partition", "pending"),
        Summed(
            gauge("slurm_queue_pending_dependency", "Jobs that wait for a dependency."),
            "jobs",
            "all",
            "pending_dependency",
        ),
        *_people(),
    ),
    computed=(
        _sum_of("cpus_alloc", lambda view: view.nodes.get(_ALL, "cpus_alloc")),
        _sum_of("cpus_idle", _cpus_idle),
        _sum_of("cpus_other", lambda view: view.nodes.get(_ALL, "cpus_other")),
        _sum_of("cpus_total", lambda view: view.nodes.get(_ALL, "cpus")),
        _sum_of("gpus_alloc", lambda view: view.nodes.get(_ALL, "gpus_alloc")),
        _sum_of("gpus_idle", lambda view: view.nodes.get(_ALL, "gpus") - view.nodes.get(_ALL, "gpus_alloc")),
        _sum_of("gpus_total", lambda view: view.nodes.get(_ALL, "gpus")),
        _sum_of("gpus_utilization", _gpu_utilization),
        *(_sum_of(f"nodes_{name}", _nodes_in(states)) for name, states in _NODE_STATES.items()),
        *(_sum_of(f"queue_{state}", _jobs_in(state)) for state in _QUEUE),
        Computed(
            gauge("slurm_partition_cpus_idle", "Idle CPUs of nodes that take jobs.", "partition"), _partition_idle
        ),
    ),
    statistics=measured(
        "slurm_scheduler",
        {
            "threads": "server_thread_count",
            "queue_size": "agent_queue_size",
            "dbd_queue_size": "dbd_agent_queue_size",
            "last_cycle": "schedule_cycle_last",
            "mean_cycle": "schedule_cycle_mean",
            "cycle_per_minute": "schedule_cycle_per_minute",
            "backfill_last_cycle": "bf_cycle_last",
            "backfill_mean_cycle": "bf_cycle_mean",
            "backfill_depth_mean": "bf_depth_mean",
            "backfilled_jobs_since_start_total": "bf_backfilled_jobs",
            "backfilled_jobs_since_cycle_total": "bf_last_backfilled_jobs",
            "backfilled_heterogeneous_total": "bf_backfilled_het_jobs",
        },
    ),
    fair_share=gauge("slurm_account_fairshare", "Fair-share factor of an account.", "account"),
)
