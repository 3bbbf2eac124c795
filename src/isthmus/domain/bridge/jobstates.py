"""What the state of a Slurm job means to its pods.

    WAITING ──► RUNNING ⇄ SUSPENDED ──► ENDING ──► ENDED
       ▲           │
       └─ requeued ┘

Slurm gives one of a dozen base states and any number of flags. What a later Slurm adds is UNKNOWN: such a job
lives, and nothing is done about it.
"""

from enum import StrEnum
from typing import Final

import msgspec

from isthmus.model.slurm import States


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


class End(msgspec.Struct, frozen=True):
    """How a job ended: one CamelCase word for conditions and Events, and words that continue "Slurm job 7".

    `label` is the word for metrics.
    """

    reason: str
    text: str
    label: str


_ENDS: Final = {
    "BOOT_FAIL": End("SlurmJobBootFailed", "could not start because its nodes did not boot", "boot_fail"),
    "CANCELLED": End("SlurmJobCancelled", "was cancelled", "cancelled"),
    "COMPLETED": End("SlurmJobCompleted", "has ended", "completed"),
    "DEADLINE": End("SlurmJobDeadline", "missed its deadline", "deadline"),
    "FAILED": End("SlurmJobFailed", "failed", "failed"),
    "NODE_FAIL": End("SlurmJobNodeFailed", "ended because a node of it failed", "node_fail"),
    "OUT_OF_MEMORY": End("SlurmJobOutOfMemory", "ran out of memory", "out_of_memory"),
    "PREEMPTED": End("SlurmJobPreempted", "was preempted by another job", "preempted"),
    "TIMEOUT": End("SlurmJobTimeout", "reached its time limit", "timeout"),
}

REQUEUED: Final = End("SlurmJobRequeued", "was put back into the queue", "requeued")
MOVED: Final = End("SlurmJobNodeLost", "no longer has the node of this pod", "moved")
GONE: Final = End("SlurmJobGone", "is not known to Slurm any more", "lost")

_LIVING: Final = {
    "PENDING": Phase.WAITING,
    "RUNNING": Phase.RUNNING,
    "SUSPENDED": Phase.SUSPENDED,
}
_ENDING_FLAGS: Final = frozenset({"COMPLETING", "STAGE_OUT"})
_NOT_YET: Final = frozenset({"CONFIGURING", "POWER_UP_NODE"})


def phase(states: States) -> Phase:
    """Classify a job by its base state and flags."""
    base, flags = states[0] if states else "", states[1:]
    if base in _ENDS:
        return Phase.ENDED if _ENDING_FLAGS.isdisjoint(flags) else Phase.ENDING
    found = _LIVING.get(base, Phase.UNKNOWN)
    if found is Phase.RUNNING and "STOPPED" in flags:
        return Phase.SUSPENDED
    # PENDING with COMPLETING is a requeued job of which the last run is being cleaned up: it waits.
    if found is Phase.RUNNING and not _ENDING_FLAGS.isdisjoint(flags):
        return Phase.ENDING
    return found


def living(states: States) -> bool:
    """Whether a job waits or has its nodes: it is not over, and its end is not under way."""
    return phase(states) not in {Phase.ENDING, Phase.ENDED}


def holds_nodes(states: States) -> bool:
    """Whether a job has its nodes, be it that they are still booting or that it is suspended."""
    return phase(states) in {Phase.RUNNING, Phase.SUSPENDED}


def running(states: States) -> bool:
    """Whether a job has nodes that can be used now: they are neither still booting nor taken away for a while."""
    return phase(states) is Phase.RUNNING and _NOT_YET.isdisjoint(states)


def end(states: States) -> End:
    """How a job ended, or, where it has not, that it is done."""
    return _ENDS.get(states[0] if states else "", _ENDS["COMPLETED"])
