"""Jobs in flight: all that we know of a job and that Slurm's lists do not show yet, in one object per job.

    begun ──► taken by Slurm ──► seen by the poller
      │              │
      │              └──► not seen for long, or slurmctld was restarted ──► asked for ──► there: goes on
      └──► refused                                                           └──► not there: lost

Four parties read the object. It is dropped when the last of them is done with it:

    scheduler     counts its slots and nodes, until the poller shows the job or no pod needs it   `awaited`
    vacancies     count the whole nodes that Slurm gave it, until the poller shows which          `starting`
    job reader    answers from its record, until the poller has it                                `record`
    poller        asks about its state often, for a moment                                        `watched_until`

A job that is about to end is watched as well; of such a job only the id is known here.

slurmctld saves its jobs some seconds after it took them. If it is killed in between, such a job is gone, and its id
may be given to another. So a job counts as there only if it carries our marker (`JobReader.has`).
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.placement import Allocation
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import Job, JobRequest
from isthmus.slurm.submission import with_key

UNSEEN: Final = 15.0
"""Seconds after which a job that was submitted but never seen is read by its id, and again after as many."""

_WATCHED: Final = 3.0
"""How long a job that is about to start or to end is polled by its id; after that it is polled with all others."""

_SWEEP: Final = 1.0
"""Seconds between sweeps of finished entries. The poller asks many times a second."""

_ATTEMPTS: Final = 20_000
"""Gangs that are remembered: far more than can be submitted before the first of them is seen."""

_CLUSTER_CHARS: Final = 13


@dataclass(eq=False, kw_only=True, slots=True)
class JobInFlight:
    """A job between our request and Slurm's lists."""

    job_id: int = 0
    """0 until it is known that Slurm took it."""
    group: GroupKey | None = None
    gang: str = ""
    """The uid of the gang's object, or of the pod that is alone: as in the job's marker."""
    uids: frozenset[str] = frozenset()
    """The pods that it was submitted for."""
    slots: int = 0
    attempt: int = 0
    key: str = ""
    """The submission key, which ends with the number of the attempt."""
    awaited: bool = False
    """Whether the scheduler counts on it."""
    record: Job | None = None
    """What its record says, as far as we know it from its submission; its nodes once they have been read."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The submitter and the poller need the nodes of a job at the same time: one of them reads them."""
    whole_nodes: int = 0
    """How many nodes it started on that it does not share."""
    check_at: float = math.inf
    """When to ask Slurm whether it still has the job."""
    watched_until: float = -math.inf

    @property
    def at_once(self) -> bool:
        """Whether Slurm took it to start at once."""
        return self.record is not None and self.record.job_state == ("RUNNING",)

    def is_over(self, now: float) -> bool:
        """Whether it can be dropped. A record that the poller never asks for is not kept forever."""
        wanted = self.record is not None and self.check_at > now
        return not self.awaited and not wanted and self.watched_until < now

    @property
    def allocation(self) -> Allocation:
        """The job as decisions see it."""
        nodes = hostlist.expand(self.record.nodes or "") if self.record else ()
        return Allocation(self.job_id, self.slots, tuple(nodes)[: self.slots], self.uids)


class JobsInFlight:
    """The jobs in flight of one process; `nudge` makes the poller ask at once."""

    def __init__(
        self, *, cluster: str, nudge: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._nudge = nudge
        self._clock = clock
        self._by_id: dict[int, JobInFlight] = {}
        self._awaited: dict[GroupKey, list[JobInFlight]] = {}
        self._attempts: OrderedDict[str, int] = OrderedDict()
        """The next attempt of each gang that was submitted lately; later, its jobs themselves have the number."""
        self._watched: dict[int, JobInFlight] = {}
        """Those that are watched, by the end of that time."""
        self._starting: dict[int, JobInFlight] = {}
        """Those with `whole_nodes` that the poller has not shown."""
        self._swept_at = -math.inf

    def get(self, job_id: int) -> JobInFlight | None:
        return self._by_id.get(job_id)

    def submitted(self, job_id: int, group: GroupKey, gang: str) -> bool:
        """Whether this process submitted a job. The poller may see one before Slurm has answered its submission."""
        return job_id in self._by_id or any(
            not it.job_id and it.gang == gang for it in self._awaited.get(group, ())
        )

    # Submission

    def begin(
        self, group: GroupKey, gang: str, *, slots: int, uids: Collection[str], attempt: int = 0
    ) -> JobInFlight:
        """Record a job before it is submitted. One that is in doubt is submitted again under its key.

        `attempt` is the least number that no known job of the gang has: a lost answer is looked for under its own
        number, not an older one.
        """
        attempt = max(attempt, self._attempts.get(gang, 0))
        self._count(gang, attempt)
        key = f"{self._cluster[:_CLUSTER_CHARS]}:{gang}:{attempt}"
        doubted = (it for it in self._awaited.get(group, ()) if it.key == key and not it.job_id)
        flight = next(doubted, None) or JobInFlight(group=group, gang=gang, attempt=attempt, key=key)
        flight.slots, flight.uids = slots, frozenset(uids)
        self._await(flight)
        return flight

    def taken(self, flight: JobInFlight, job_id: int, components: Sequence[JobRequest], *, nodes: str = "") -> None:
        """Record that Slurm made the job of these components; with `nodes`, that it started there at once."""
        self._count(flight.gang, flight.attempt + 1)
        flight.job_id = job_id
        flight.record = None
        if len(components) == 1:
            flight.record = _as_submitted(job_id, *components, key=flight.key, nodes=nodes)
            if not _is_known_by_its_nodes(components[0], slots=flight.slots):
                flight.record = msgspec.structs.replace(flight.record, nodes=None)
        flight.check_at = self._clock() + UNSEEN
        self._by_id[job_id] = flight
        if flight.at_once and (whole := whole_nodes(components[0])):
            flight.whole_nodes = whole
            self._starting[job_id] = flight
        self._await(flight)
        if flight.record is None or not flight.record.nodes:
            self.watch(job_id)

    def refused(self, flight: JobInFlight) -> None:
        """Record that there is no such job, and will be none under this key."""
        self._count(flight.gang, flight.attempt + 1)
        self.release(flight)

    # What the scheduler counts on

    def awaited(self, group: GroupKey, gang: str, *, seen: Collection[int]) -> list[JobInFlight]:
        """Find the jobs of a gang that are not in `seen`; all others of the group are released."""
        taken = [it for it in self._awaited.get(group, ()) if it.job_id]
        unseen = [it for it in taken if it.gang == gang and it.job_id not in seen]
        for flight in taken:
            if flight not in unseen:
                self.release(flight)
        return unseen

    def awaited_groups(self) -> set[GroupKey]:
        """The groups that count on a job which Slurm took."""
        return {it.group for it in self._by_id.values() if it.awaited and it.group}

    def check_in(self, flight: JobInFlight) -> float:
        """In how many seconds to ask Slurm whether it has a job; 0 for now."""
        return max(0.0, flight.check_at - self._clock())

    def checked(self, flight: JobInFlight) -> None:
        """Record that Slurm has it."""
        flight.check_at = self._clock() + UNSEEN

    def release(self, flight: JobInFlight) -> None:
        """Count on a job no longer."""
        flight.awaited = False
        of_group = self._awaited.get(flight.group, []) if flight.group else []
        if flight in of_group:
            of_group.remove(flight)
        if flight.group and not of_group:
            self._awaited.pop(flight.group, None)

    def forget(self, group: GroupKey) -> list[str]:
        """Count on no job of a group any more; return the keys of those that are in doubt."""
        released = self._awaited.pop(group, [])
        for flight in released:
            flight.awaited = False
        return [flight.key for flight in released if not flight.job_id]

    def starting(self) -> Collection[JobInFlight]:
        """Jobs that have whole nodes, of which the poller has not shown which; Slurm may have lost an old one."""
        now = self._clock()
        for job_id in [it.job_id for it in self._starting.values() if it.check_at <= now]:
            del self._starting[job_id]
        return self._starting.values()

    # What the poller and the job reader need

    def watch(self, job_id: int) -> None:
        """Poll this job often for a while, because it is about to start or to end."""
        if not self.watched():
            self._nudge()
        flight = self._by_id.setdefault(job_id, JobInFlight(job_id=job_id))
        flight.watched_until = self._clock() + _WATCHED
        self._watched.pop(job_id, None)
        self._watched[job_id] = flight

    def watched(self) -> Collection[int]:
        """The jobs to poll often. Drops finished entries now and then."""
        now = self._clock()
        while self._watched and self._watched[first := next(iter(self._watched))].watched_until < now:
            del self._watched[first]
        if now >= self._swept_at + _SWEEP:
            self._swept_at = now
            for flight in [it for it in self._by_id.values() if it.is_over(now)]:
                del self._by_id[flight.job_id]
        return self._watched.keys()

    def seen(self, job_id: int) -> None:
        """Record that the poller has the record of a job."""
        self._starting.pop(job_id, None)
        if flight := self._by_id.get(job_id):
            flight.record = None

    def slurm_restarted(self) -> None:
        """Take no job for granted: Slurm may have lost it, and have given its id to another."""
        self._starting.clear()
        for flight in self._by_id.values():
            flight.record = None
            flight.check_at = self._clock()

    def _await(self, flight: JobInFlight) -> None:
        # A group may have been forgotten while its job was being submitted.
        if not flight.awaited and flight.group:
            flight.awaited = True
            self._awaited.setdefault(flight.group, []).append(flight)

    def _count(self, gang: str, attempt: int) -> None:
        self._attempts[gang] = attempt
        self._attempts.move_to_end(gang)
        if len(self._attempts) > _ATTEMPTS:
            self._attempts.popitem(last=False)


def whole_nodes(request: JobRequest) -> int:
    """How many nodes a job needs for itself; 0 for one that shares them."""
    return (request.minimum_nodes or 1) if request.shared == ("none",) else 0


def _is_known_by_its_nodes(request: JobRequest, *, slots: int) -> bool:
    """Whether the names of its nodes are enough: each is for one pod, and gives no devices."""
    return (slots == 1 or whole_nodes(request) > 0) and not (request.tres_per_node or request.tres_per_task)


def _as_submitted(job_id: int, request: JobRequest, *, key: str, nodes: str) -> Job:
    """Write the record of a plain job as it was submitted."""
    return Job(
        job_id,
        nodes=nodes or None,
        job_state=("RUNNING" if request.immediate or nodes else "PENDING",),
        name=request.name,
        partition=request.partition,
        account=request.account,
        qos=request.qos,
        comment=with_key(request.comment, key),
        admin_comment=request.admin_comment,
        excluded_nodes=",".join(request.excluded_nodes),
    )
