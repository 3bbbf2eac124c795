"""What the exporter counts of a job: its state as squeue shows it, whose it is, and what it asks for or has.

Slurm keeps the tasks of an array that have not begun in one record. They count one by one here, as in `squeue -r`.
"""

import functools
from typing import Final, NamedTuple

from isthmus.domain.exporter.arraytasks import task_mask
from isthmus.domain.languages.tres import TresError, parse_gres, parse_tres
from isthmus.model.slurm import ENDED, Job, States

_MIB: Final = 1 << 20
_PENDING: Final = "PENDING"
_HOLDS_RESOURCES: Final = frozenset({"RUNNING", "SUSPENDED"})

# Flags that squeue shows instead of the base state, in its order.
_SHOWN_FLAGS: Final = (
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
)


class Resources(NamedTuple):
    """Memory is in bytes."""

    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    nodes: int = 0

    def times(self, count: int) -> "Resources":
        return Resources(*(amount * count for amount in self)) if count != 1 else self


class JobFacts(NamedTuple):
    """A job, as the families of the exporter count it."""

    partition: str
    account: str
    qos: str
    user: str
    state: str
    """As squeue shows it, in lower case."""
    states: States
    reason: str
    """Why it waits; empty for a job that does not."""
    tasks: int
    """How many jobs it stands for: more than one for the waiting tasks of an array."""
    pending: bool
    holds: bool
    """Whether it has resources."""
    held: bool
    resources: Resources
    """What all of them have, or ask for."""
    eligible: float
    """When it may begin, in seconds since 1970; 0 while that is not known."""


def facts(job: Job) -> JobFacts:
    """Read a job's record."""
    first = job.job_state[0] if job.job_state else ""
    pending = first == _PENDING
    tasks = waiting_tasks(job)
    return JobFacts(
        # A job may wait for several partitions; it is counted in the one that it would rather have.
        partition=(job.partition or "").partition(",")[0],
        account=job.account or "",
        qos=job.qos or "",
        user=job.user_name or "",
        state=shown_state(job.job_state),
        states=job.job_state,
        reason=job.state_reason if pending else "",
        tasks=tasks,
        pending=pending,
        holds=first in _HOLDS_RESOURCES,
        held=pending and job.priority.value == 0,
        resources=resources(job).times(tasks),
        eligible=float(job.eligible_time.value or 0),
    )


@functools.lru_cache(maxsize=256)
def shown_state(states: States) -> str:
    """The state that squeue shows, in lower case."""
    for flag in _SHOWN_FLAGS:
        if flag in states:
            return flag.lower()
    return states[0].lower() if states else "unknown"


def waiting_tasks(job: Job) -> int:
    """Count the tasks that a record stands for."""
    if not job.array_tasks or job.array_task_id.value is not None:
        return 1
    return max(1, task_mask(job.array_tasks).bit_count())


def resources(job: Job) -> Resources:
    """What a job has, or what one that waits asks for."""
    has, asks = counted(job.tres_allocated), counted(job.tres_requested)
    return Resources(
        cpus=has.cpus or asks.cpus or int(job.cpus.value or 0),
        memory=has.memory or asks.memory,
        gpus=has.gpus or sum(gpus(it or "") for it in job.gres_detail) or asks.gpus,
        nodes=has.nodes or int(job.node_count.value or 0),
    )


@functools.lru_cache(maxsize=4096)
def counted(tres: str) -> Resources:
    """Read `cpu=4,mem=16G,node=1,gres/gpu=2`; what cannot be read counts nothing."""
    try:
        found = parse_tres(tres)
    except TresError:
        return Resources()
    typed = sum(count for name, count in found.items() if name.startswith("gres/gpu:"))
    return Resources(
        cpus=found.get("cpu", 0),
        memory=found.get("mem", 0) * _MIB,
        gpus=found.get("gres/gpu", typed),
        nodes=found.get("node", 0),
    )


@functools.lru_cache(maxsize=4096)
def gpus(gres: str) -> int:
    """Count the GPUs of `gpu:a100:4(S:0-1),nic:2`."""
    try:
        return sum(it.count for it in parse_gres(gres) if it.name == "gpu")
    except TresError:
        return 0


def has_ended(states: States) -> bool:
    return not ENDED.isdisjoint(states[:1])
