"""What is to be done for a group of pods: submit a job, bind pods to the nodes that Slurm gave, or wait.

A job has slots, one for each pod that it was submitted for. They are filled in Slurm's own order of nodes by pods
in the order of their ranks, so that neighbours in rank are neighbours in the topology. A pod that replaces another
takes the slot that became free, and the job goes on.

    pods without a node ──► free slots of running jobs ──► bind
                       └──► slots of waiting jobs      ──► wait
                       └──► no slot                    ──► submit, if the gang is complete

Nothing here remembers anything: the same pods and jobs lead to the same decision, in this process or the next.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.bridge.ranks import rank
from isthmus.domain.languages import hostlist
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """A living job of the group.

    `nodes` has a Slurm node for each slot, in Slurm's order, once the job runs. Before that it is empty, and
    `slots` says how many there will be.
    """

    job_id: int
    slots: int
    nodes: tuple[str, ...] = ()
    uids: frozenset[str] = frozenset()
    """The pods that it was submitted for."""

    @property
    def running(self) -> bool:
        """Whether Slurm gave it nodes."""
        return bool(self.nodes)


class Demand(msgspec.Struct, frozen=True):
    """How many pods a group has to have.

    `minimum` must be there before any starts. `expected` may come in all: the job is made large enough for them.
    """

    minimum: int = 1
    expected: int = 1


class Seat(msgspec.Struct, frozen=True):
    """A pod and the Slurm node that it gets."""

    pod: Pod
    job_id: int
    slurm_node: str


class Bind(msgspec.Struct, frozen=True):
    """Bind these pods; if `together`, all or none."""

    seats: tuple[Seat, ...]
    together: bool


class Submit(msgspec.Struct, frozen=True):
    """Submit a job with so many slots, for these pods to begin with."""

    pods: tuple[Pod, ...]
    slots: int
    minimum: int


class Cancel(msgspec.Struct, frozen=True):
    """Take a job back."""

    job_id: int
    why: str


class Gather(msgspec.Struct, frozen=True):
    """Wait for more pods."""

    there: int
    minimum: int
    gated: int


class Queue(msgspec.Struct, frozen=True):
    """Wait for Slurm to start this job."""

    job_id: int
    pods: tuple[Pod, ...]


Step = Bind | Submit | Cancel | Gather | Queue

ALONE: Final = Demand()


def decide(
    pods: Sequence[Pod], jobs: Sequence[Allocation], demand: Demand, *, avoided: Collection[str] = ()
) -> list[Step]:
    """Decide about the pods of one group, in any state, given the group's living jobs, the oldest first.

    Slots on Slurm nodes that are `avoided` stay free: their job goes on without them, and who finds no other slot
    gets a further job.
    """
    living = [pod for pod in pods if not pod.finished and not pod.leaving]
    loose = sorted((pod for pod in living if not pod.bound), key=rank)
    ready = [pod for pod in loose if not pod.spec.scheduling_gates]
    waiting_jobs = [job for job in jobs if not job.running]
    steps: list[Step] = []
    there = len(living) - (len(loose) - len(ready))
    complete = there >= demand.minimum or any(job.running for job in jobs)
    if waiting_jobs and not complete:
        return [Cancel(job.job_id, "pods of its gang are gone") for job in waiting_jobs]

    seated, left = _seat(ready, [job for job in jobs if job.running], pods, avoided)
    if seated:
        together = demand.minimum > 1 and not any(pod.bound for pod in living)
        steps.append(Bind(tuple(seated), together=together))
    coming = sum(job.slots for job in waiting_jobs)
    if not left:
        return [*steps, *(Cancel(job.job_id, "no pod is left for it") for job in waiting_jobs if not loose)]
    if not complete:
        return [Gather(there, demand.minimum, len(loose) - len(ready))]
    if coming > max(len(left), demand.expected):
        # Pods went away while their job waited: what Slurm counts for it would be too much.
        newest = waiting_jobs[-1]
        return [*steps, Cancel(newest.job_id, "it is larger than its gang is now")]
    if len(left) > coming:
        fresh = not jobs
        slots = max(len(left), demand.expected) if fresh else len(left) - coming
        minimum = min(slots, demand.minimum) if fresh else slots
        steps.append(Submit(tuple(left[coming:] if not fresh else left), slots, max(1, minimum)))
    if waiting_jobs:
        steps.append(Queue(waiting_jobs[0].job_id, tuple(left[:coming])))
    return steps


def slot_nodes(job: Job, slots: int, *, packed: bool) -> tuple[str, ...]:
    """Tell the node of each slot of a running job, in Slurm's order.

    Unless `packed`, each pod has a node of its own, and Slurm may have given fewer nodes than there are slots.
    """
    if not packed:
        return tuple(hostlist.expand(job.nodes or ""))[:slots]
    each = max(1, int(job.cpus_per_task.value or 1))
    nodes = [share.name for share in job.shares for _ in range(share.cpus // each)]
    return tuple(nodes or hostlist.expand(job.nodes or ""))[:slots]


def is_deserted(job: Allocation, pods: Sequence[Pod]) -> bool:
    """Whether every pod that a running job was for, or that has a slot of it, is gone or done.

    Such a job is about to be ended by whoever looks after jobs. A pod that took a slot of it now would go with it.
    """
    return job.running and not any(
        not pod.finished and (pod.metadata.uid in job.uids or is_placed_by(pod, job.job_id)) for pod in pods
    )


def is_placed_by(pod: Pod, job_id: int) -> bool:
    """Whether a pod has a node by this job."""
    seat = seat_of(pod) if pod.bound else None
    return seat is not None and seat[0] == job_id


def _seat(
    ready: Sequence[Pod], running: Sequence[Allocation], pods: Sequence[Pod], avoided: Collection[str]
) -> tuple[list[Seat], list[Pod]]:
    """Give free slots to pods that have none; return the seats, and the pods for which there was none."""
    left = list(ready)
    seats: list[Seat] = []
    taken = taken_slots(pods) if left else Counter[tuple[int, str]]()
    for job in running:
        free = Counter[str]()
        for node in job.nodes:
            if not left:
                break
            free[node] += 1
            if node not in avoided and free[node] > taken[job.job_id, node]:
                seats.append(Seat(left.pop(0), job.job_id, node))
    return seats, left


def taken_slots(pods: Sequence[Pod]) -> Counter[tuple[int, str]]:
    """Count the slots that pods hold: by job, and by Slurm node. A pod that is leaving holds its own to the end."""
    taken = Counter[tuple[int, str]]()
    for pod in pods:
        if pod.bound and not pod.finished and (seat := seat_of(pod)):
            taken[seat] += 1
    return taken


def seat_of(pod: Pod) -> tuple[int, str] | None:
    """Read from a bound pod which slot it has."""
    job_id = pod.metadata.annotations.get(names.POD_JOB_ANNOTATION, "")
    node = pod.metadata.annotations.get(names.POD_SLURM_NODE_ANNOTATION, "")
    return (int(job_id), node) if job_id.isascii() and job_id.isdigit() and node else None
