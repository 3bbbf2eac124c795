"""What to do for a group of pods: submit a job, bind pods to the nodes that Slurm gave, or wait.

A job has slots, one for each pod that it was submitted for. They are filled in Slurm's own order of nodes by pods
in the order of their ranks, so that neighbours in rank are neighbours in the topology. A pod that replaces another
takes the slot that became free, and the job continues.

    pods without a node ──► free slots of running jobs ──► bind
                       └──► slots of waiting jobs      ──► wait
                       └──► no slot                    ──► submit, if the gang is complete

The components of a heterogeneous job are jobs here, each with slots for pods of one role. They are started, taken
back and counted as one.

Nothing here remembers anything: the same pods and jobs lead to the same decision, in this process or the next.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.bridge.components import role_of
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
    het_job_id: int = 0
    """The heterogeneous job of which it is a component; 0 if it is none."""
    role: str = ""
    """The role of the pods that it has slots for; empty where any pod of the group fits."""
    pods: frozenset[str] = frozenset()
    """Of a component: the names of the pods that it was submitted for, as the marker has them."""

    @property
    def running(self) -> bool:
        """Whether Slurm gave it nodes."""
        return bool(self.nodes)

    @property
    def whole(self) -> int:
        """The id by which all of it is cancelled."""
        return self.het_job_id or self.job_id


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

    Slots on Slurm nodes that are `avoided` stay free: their job continues without them, and pods without a slot
    get another job.
    """
    living = [pod for pod in pods if not pod.finished and not pod.leaving]
    loose = sorted((pod for pod in living if not pod.bound), key=rank)
    ready = [pod for pod in loose if not pod.spec.scheduling_gates]
    starting = {job.whole for job in jobs if not job.running}
    running = [job for job in jobs if job.whole not in starting]
    waiting_jobs = [job for job in jobs if job.whole in starting]
    steps: list[Step] = []
    there = len(living) - (len(loose) - len(ready))
    complete = there >= demand.minimum or bool(running)
    if waiting_jobs and not complete:
        return _take_back(waiting_jobs, "pods of its gang are gone")

    seated, left = _seat(ready, running, pods, avoided)
    if seated:
        together = demand.minimum > 1 and not any(pod.bound for pod in living)
        steps.append(Bind(tuple(seated), together=together))
    if not left:
        return [*steps, *_take_back([] if loose else waiting_jobs, "no pod is left for it")]
    if not complete:
        return [Gather(there, demand.minimum, len(loose) - len(ready))]
    if sum(job.slots for job in waiting_jobs) > max(len(left), demand.expected):
        # Pods went away while their job waited: what Slurm counts for it would be too much.
        return [*steps, *_take_back(waiting_jobs[-1:], "it is larger than its gang is now")]
    queued: list[Step] = []
    for job in waiting_jobs:
        if takers := _takers(left, job, waiting_jobs, places=job.slots):
            queued.append(Queue(job.job_id, tuple(takers)))
            left = _without(left, takers)
    if left:
        slots = len(left) if jobs else max(len(left), demand.expected)
        minimum = slots if jobs else min(slots, demand.minimum)
        steps.append(Submit(tuple(left), slots, max(1, minimum)))
    return [*steps, *queued]


def _take_back(jobs: Sequence[Allocation], why: str) -> list[Step]:
    return [Cancel(job_id, why) for job_id in dict.fromkeys(job.whole for job in jobs)]


def slot_nodes(job: Job, slots: int, *, packed: bool) -> tuple[str, ...]:
    """The node of each slot of a running job, in Slurm's order.

    Unless `packed`, each pod has a node of its own, and Slurm may have given fewer nodes than there are slots.
    """
    if not packed:
        return tuple(hostlist.expand(job.nodes or ""))[:slots]
    each = max(1, int(job.cpus_per_task.value or 1))
    nodes = [share.name for share in job.shares for _ in range(share.cpus // each)]
    return tuple(nodes or hostlist.expand(job.nodes or ""))[:slots]


def is_deserted(job: Allocation, pods: Sequence[Pod]) -> bool:
    """Whether every pod that a running job was for, or that has a slot of it, is gone or done.

    The pod controller is about to end such a job. A pod that took a slot of it now would be evicted with it.
    """
    return job.running and not any(
        not pod.finished and (pod.metadata.uid in job.uids or placed_by(pod) == job.job_id) for pod in pods
    )


def placed_by(pod: Pod) -> int | None:
    """The job by which a pod has a node."""
    seat = seat_of(pod) if pod.bound else None
    return seat[0] if seat else None


def _seat(
    ready: Sequence[Pod], running: Sequence[Allocation], pods: Sequence[Pod], avoided: Collection[str]
) -> tuple[list[Seat], list[Pod]]:
    """Give free slots to pods that have none; return the seats, and the pods for which there was none."""
    left = list(ready)
    seats: list[Seat] = []
    taken = taken_slots(pods) if left else Counter[tuple[int, str]]()
    for job in running:
        if not left:
            break
        counted = Counter[str]()
        free = []
        for node in job.nodes:
            counted[node] += 1
            if node not in avoided and counted[node] > taken[job.job_id, node]:
                free.append(node)
        takers = _takers(left, job, running, places=len(free))
        seats += [Seat(pod, job.job_id, node) for pod, node in zip(takers, free, strict=False)]
        left = _without(left, takers)
    return seats, left


def _without(pods: Sequence[Pod], takers: Sequence[Pod]) -> list[Pod]:
    taken = {pod.metadata.uid for pod in takers}
    return [pod for pod in pods if pod.metadata.uid not in taken]


def _takers(left: Sequence[Pod], job: Allocation, jobs: Sequence[Allocation], *, places: int) -> Sequence[Pod]:
    """Choose the pods that take places of a job, in the order of their ranks."""
    if not job.role:
        return left[:places]
    # Another pod may have come in place of one that the job was submitted for; it is known by its name or its role.
    named = [it for it in jobs if it.role and it is not job]
    others = {uid for it in named for uid in it.uids}, {key for it in named for key in it.pods}
    return [pod for pod in left if _has_place(pod, job, *others)][:places]


def _has_place(pod: Pod, job: Allocation, other_uids: Collection[str], other_pods: Collection[str]) -> bool:
    uid, key = pod.metadata.uid, str(pod.metadata.key)
    if uid in job.uids or uid in other_uids:
        return uid in job.uids
    if key in job.pods or key in other_pods:
        return key in job.pods
    return role_of(pod) == job.role


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
