"""The tables of the families that every exporter of ours has, and of Soperator's."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.exporter import catalog as c
from isthmus.domain.exporter import nodestates
from isthmus.domain.exporter.exposition import Row
from isthmus.domain.exporter.nodesums import NodeFacts
from isthmus.domain.exporter.sets import BY_STATE, US, Computed, Measured, MetricSet, PerNode, Summed, View, of_node

_MAX_RESERVATION_CHARS: Final = 50
"""As Soperator cuts it."""


def _info(node: NodeFacts) -> Iterator[Row]:
    it = node.node
    yield (
        (
            it.name,
            it.instance_id,
            *nodestates.state_labels(it)[1:],
            *nodestates.flag_labels(it.state),
            it.reservation[:_MAX_RESERVATION_CHARS],
            it.address,
            it.reason,
            it.comment,
        ),
        1,
    )


def _partitions(node: NodeFacts) -> Iterator[Row]:
    return (((node.node.name, partition), 1) for partition in node.node.partitions)


def _number(node: NodeFacts) -> Iterator[Row]:
    yield (node.node.name, node.reason_class), nodestates.NUMBERS[node.state]


def _drain_since(node: NodeFacts) -> Iterator[Row]:
    if node.state in nodestates.OUT and (since := node.node.reason_changed_at.value):
        yield (node.node.name, node.node.reason_set_by_user or ""), since


def _oldest(view: View) -> Iterator[Row]:
    """When the job became eligible that has waited longest, of those that may begin."""
    oldest: dict[str, float] = {}
    for job in view.waiting:
        if not job.held and 0 < job.eligible <= view.now:
            oldest[job.partition] = min(oldest.get(job.partition, job.eligible), job.eligible)
    return (((partition,), moment) for partition, moment in oldest.items())


SOPERATOR: Final = MetricSet(
    nodes=(
        PerNode(c.NODE_INFO, _info),
        of_node(c.NODE_CPUS_TOTAL, lambda it: it.cpus),
        of_node(c.NODE_CPUS_ALLOCATED, lambda it: it.cpus_alloc),
        of_node(c.NODE_CPUS_IDLE, lambda it: it.cpus_idle),
        of_node(c.NODE_CPUS_EFFECTIVE, lambda it: it.cpus_effective),
        of_node(c.NODE_MEMORY_TOTAL, lambda it: it.memory),
        of_node(c.NODE_MEMORY_ALLOCATED, lambda it: it.memory_alloc),
        of_node(c.NODE_MEMORY_FREE, lambda it: it.memory_free),
        of_node(c.NODE_MEMORY_EFFECTIVE, lambda it: it.memory_effective),
        PerNode(c.NODE_PARTITION, _partitions),
    ),
    statistics=(Measured(c.SERVER_THREADS, lambda it: it.server_thread_count),),
)

OWN: Final = MetricSet(
    nodes=(
        PerNode(c.NODE_STATE, _number),
        PerNode(c.NODE_DRAIN_SINCE, _drain_since),
        of_node(c.NODE_GPUS, lambda it: it.gpus),
        of_node(c.NODE_GPUS_ALLOCATED, lambda it: it.gpus_alloc),
    ),
    sums=(
        Summed(c.JOBS, "jobs", "whose", BY_STATE),
        Summed(c.JOBS_PENDING, "jobs", "reason", "jobs"),
        Summed(c.PENDING_CPUS, "jobs", "partition", "cpus_pending"),
        Summed(c.PENDING_GPUS, "jobs", "partition", "gpus_pending"),
        Summed(c.USER_JOBS, "jobs", "user", BY_STATE),
        Summed(c.USER_CPUS, "jobs", "user", "cpus_alloc"),
        Summed(c.USER_GPUS, "jobs", "user", "gpus_alloc"),
        Summed(c.ACCOUNT_CPUS, "jobs", "account", "cpus_alloc"),
        Summed(c.ACCOUNT_GPUS, "jobs", "account", "gpus_alloc"),
        Summed(c.ACCOUNT_MEMORY, "jobs", "account", "memory_alloc"),
        Summed(c.PARTITION_NODES, "nodes", "partition", BY_STATE),
        Summed(c.PARTITION_CPUS, "nodes", "partition", "cpus"),
        Summed(c.PARTITION_CPUS_ALLOCATED, "nodes", "partition", "cpus_alloc"),
        Summed(c.PARTITION_GPUS, "nodes", "partition", "gpus"),
        Summed(c.PARTITION_GPUS_ALLOCATED, "nodes", "partition", "gpus_alloc"),
        Summed(c.NODES, "nodes", "all", BY_STATE),
        Summed(c.NODES_OUT, "nodes", "class", "nodes"),
    ),
    computed=(Computed(c.OLDEST_PENDING, _oldest),),
    statistics=(
        Measured(c.AGENT_QUEUE, lambda it: it.agent_queue_size),
        Measured(c.AGENT_THREADS, lambda it: it.agent_thread_count),
        Measured(c.DBD_QUEUE, lambda it: it.dbd_agent_queue_size),
        Measured(c.STATISTICS_SINCE, lambda it: it.since.value or None),
        Measured(c.SCHED_LAST, lambda it: it.schedule_cycle_last / US),
        Measured(c.SCHED_MEAN, lambda it: it.schedule_cycle_mean / US),
        Measured(c.SCHED_MAX, lambda it: it.schedule_cycle_max / US),
        Measured(c.SCHED_DEPTH, lambda it: it.schedule_cycle_mean_depth),
        Measured(c.SCHED_QUEUE, lambda it: it.schedule_queue_length),
        Measured(c.BF_ACTIVE, lambda it: int(it.bf_active)),
        Measured(c.BF_LAST, lambda it: it.bf_cycle_last / US),
        Measured(c.BF_MEAN, lambda it: it.bf_cycle_mean / US),
        Measured(c.BF_MAX, lambda it: it.bf_cycle_max / US),
        # A slurmctld that has not run backfill yet has nothing to say, and 1970 would set off every alert.
        Measured(c.BF_WHEN, lambda it: it.bf_when_last_cycle.value or None),
        Measured(c.BF_DEPTH, lambda it: it.bf_depth_mean),
        Measured(c.BF_QUEUE, lambda it: it.bf_queue_len),
        Measured(c.BF_TABLE, lambda it: it.bf_table_size),
    ),
)
