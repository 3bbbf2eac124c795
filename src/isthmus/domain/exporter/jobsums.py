"""Which groups a job counts in, and with what. The names of amounts are those of slurmctld's own metrics."""

from typing import Final

from isthmus.domain.exporter.jobfacts import JobFacts, has_ended
from isthmus.domain.exporter.sums import ALL, STATE, Amounts, Group

_WORDS: Final = {
    "BOOT_FAIL": "bootfail",
    "CANCELLED": "cancelled",
    "COMPLETED": "completed",
    "COMPLETING": "completing",
    "CONFIGURING": "configuring",
    "DEADLINE": "deadline",
    "EXPEDITING": "expediting",
    "FAILED": "failed",
    "REQUEUE_FED": "fed_requeued",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "outofmemory",
    "PENDING": "pending",
    "POWER_UP_NODE": "powerup_node",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "RESIZING": "resizing",
    "REVOKED": "revoked",
    "RUNNING": "running",
    "SIGNALING": "signaling",
    "STAGE_OUT": "stageout",
    "SUSPENDED": "suspended",
    "TIMEOUT": "timeout",
}
COUNTS: Final = tuple(sorted([*_WORDS.values(), "finished", "hold", "started"]))
"""What jobs are counted by; a job may count in several, for Slurm has flags beside the state."""

ALLOCATED: Final = ("cpus_alloc", "gpus_alloc", "memory_alloc", "nodes_alloc")
_DEPENDENCY: Final = "Dependency"


def groups(job: JobFacts) -> tuple[Group, ...]:
    """Which groups a job counts in."""
    own: tuple[Group, ...] = (
        ALL,
        ("partition", job.partition),
        ("account", job.account),
        ("user", job.user),
        ("whose", job.partition, job.account, job.qos),
    )
    return (*own, ("reason", job.partition, job.reason)) if job.pending else own


def amounts(job: JobFacts) -> Amounts:
    """With what a job counts."""
    count = job.tasks
    found: dict[str, float] = {"jobs": count, f"{STATE}{job.state}": count}
    for state in job.states:
        if word := _WORDS.get(state):
            found[word] = count
    if has_ended(job.states):
        found["finished"] = count
    if not job.pending:
        found["started"] = count
    if job.held:
        found["hold"] = count
    if job.pending and job.reason == _DEPENDENCY:
        found["pending_dependency"] = count
    if job.holds:
        wanted = job.resources
        found |= zip(ALLOCATED, (wanted.cpus, wanted.gpus, wanted.memory, wanted.nodes), strict=True)
    elif job.pending:
        found |= {"cpus_pending": job.resources.cpus, "gpus_pending": job.resources.gpus}
    return found
