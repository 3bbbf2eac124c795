"""Jobs in flight: all that we know of a job and that Slurm's lists do not show yet, in one object per job.

    begun ──► taken by Slurm ──► seen by the poller
      │              │
      │              └──► not seen for long, or slurmctld was restarted ──► asked for ──► there: goes on
      └──► refused                                                           └──► not there: lost

Three parties read the object. It goes when the last of them is done with it:

    scheduler     counts its slots and nodes, until the poller shows the job or no pod needs it   `awaited`
    job reader    answers from its record, until the poller has it                                `record`
    poller        asks about its state often, for a moment                                        `watched_until`

A job that is about to end is watched as well; of such a one nothing but the id is in here.

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

from isthmus.domain.bridge.grouping import GroupKey
from isthmus.domain.bridge.placement import Allocation
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import Job, JobRequest
from isthmus.slurm.submission import with_key

UNSEEN: Final = 15.0
"""After so many seconds a job that was submitted but never seen is asked for by its id, and after as many again."""

_WATCHED: Final = 3.0
"""How long a job that is about to start or to end is asked about by its id; after that it is one among all."""

_SWEEP: Final = 1.0
"""So often, in seconds, those that are done with are looked for. The poller asks many times a second."""

_ATTEMPTS: Final = 20_000
"""So many gangs are remembered: far more than can be submitted before the first of them is seen."""

_CLUSTER_CHARS: Final = 13


@dataclass(eq=False, kw_only=True, slots=True)
class JobInFlight:
    """A job between our request and Slurm's lists."""

    job_id: int = 0
    """0 as long as nobody knows whether Slurm took it."""
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
    """Whoever submitted a job and the poller want to know its nodes at the same time: one of them asks."""
    check_at: float = math.inf
    """When Slurm is to be asked whether it still has it."""
    watched_until: float = -math.inf

    @property
    def at_once(self) -> bool:
        """Whether Slurm took it to start at once."""
        return self.record is not None and self.record.job_state == ("RUNNING",)

    def is_over(self, now: float) -> bool:
        """Whether nobody needs it any more. A record that the poller never comes for is not kept for ever."""
        wanted = self.record is not None and self.check_at > now
        return not self.awaited and not wanted and self.watched_until < now

    @property
    def allocation(self) -> Allocation:
        """The job as decisions see it."""
        nodes = hostlist.expand(self.record.nodes or "") if self.record else ()
        return Allocation(self.job_id, self.slots, tuple(nodes)[: self.slots], self.uids)


class JobsInFlight:
    """The jobs in flight of one process; `nudge` has the poller ask at once."""

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
        """Those that are watched, the first to be one among all first."""
        self._swept_at = -math.inf

    def get(self, job_id: int) -> JobInFlight | None:
        """Find a job by its id."""
        return self._by_id.get(job_id)

    # Submission

    def begin(
        self, group: GroupKey, gang: str, *, slots: int, uids: Collection[str], attempt: int = 0
    ) -> JobInFlight:
        """Take note of a job before it is submitted. One that is in doubt is submitted again under its key.

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

    def taken(self, flight: JobInFlight, job_id: int, components: Sequence[JobRequest]) -> None:
        """Take note that Slurm made the job of these components."""
        self._count(flight.gang, flight.attempt + 1)
        flight.job_id = job_id
        flight.record = _as_submitted(job_id, *components, key=flight.key) if len(components) == 1 else None
        flight.check_at = self._clock() + UNSEEN
        self._by_id[job_id] = flight
        self._await(flight)
        self.watch(job_id)

    def refused(self, flight: JobInFlight) -> None:
        """Take note that there is no such job, and will be none under this key."""
        self._count(flight.gang, flight.attempt + 1)
        self.release(flight)

    # What the scheduler counts on

    def awaited(self, group: GroupKey, gang: str, *, seen: Collection[int]) -> list[JobInFlight]:
        """Find the jobs of a gang that nobody has seen yet; all others of the group are released."""
        taken = [it for it in self._awaited.get(group, ()) if it.job_id]
        unseen = [it for it in taken if it.gang == gang and it.job_id not in seen]
        for flight in taken:
            if flight not in unseen:
                self.release(flight)
        return unseen

    def awaited_groups(self) -> set[GroupKey]:
        """Name the groups that count on a job which Slurm took."""
        return {it.group for it in self._by_id.values() if it.awaited and it.group}

    def check_in(self, flight: JobInFlight) -> float:
        """Tell in how many seconds Slurm is to be asked whether it has a job; 0 for now."""
        return max(0.0, flight.check_at - self._clock())

    def checked(self, flight: JobInFlight) -> None:
        """Take note that Slurm has it."""
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

    # What the poller and the job reader need

    def watch(self, job_id: int) -> None:
        """Ask about this job often for a while, because it is about to start or to end."""
        if not self.watched():
            self._nudge()
        flight = self._by_id.setdefault(job_id, JobInFlight(job_id=job_id))
        flight.watched_until = self._clock() + _WATCHED
        self._watched.pop(job_id, None)
        self._watched[job_id] = flight

    def watched(self) -> Collection[int]:
        """Name the jobs that are to be asked about often; whatever is done with leaves here, now and then."""
        now = self._clock()
        while self._watched and self._watched[first := next(iter(self._watched))].watched_until < now:
            del self._watched[first]
        if now >= self._swept_at + _SWEEP:
            self._swept_at = now
            for flight in [it for it in self._by_id.values() if it.is_over(now)]:
                del self._by_id[flight.job_id]
        return self._watched.keys()

    def seen(self, job_id: int) -> None:
        """Take note that the poller has the record of a job."""
        if flight := self._by_id.get(job_id):
            flight.record = None

    def slurm_restarted(self) -> None:
        """Take no job for granted: Slurm may have lost it, and have given its id to another."""
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


def _as_submitted(job_id: int, request: JobRequest, *, key: str) -> Job:
    """Write the record of a plain job as it was submitted."""
    return Job(
        job_id,
        job_state=("RUNNING" if request.immediate else "PENDING",),
        name=request.name,
        partition=request.partition,
        account=request.account,
        qos=request.qos,
        comment=with_key(request.comment, key),
        admin_comment=request.admin_comment,
        excluded_nodes=",".join(request.excluded_nodes),
    )
