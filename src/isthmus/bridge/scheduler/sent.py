"""Jobs whose submission Slurm has answered, and that no cache shows yet.

    submitted ──► sent ──► seen by the poller: forgotten here
                    │
                    └────► not seen for long, or slurmctld was restarted ──► asked for ──► there: kept
                                                                                └──► not there: lost

slurmctld saves its jobs some seconds after it took them. If it is killed in between, such a job is gone, and its id
may be given to another. So a job counts as there only if it carries our marker.
"""

import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec
import structlog

from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.grouping import GroupKey
from isthmus.domain.bridge.placement import Allocation
from isthmus.slurm.errors import NotFound

log = structlog.get_logger()

UNSEEN: Final = 15.0
"""After so many seconds a job that was submitted but never seen is asked for by its id, and after as many again."""


class Sent(Allocation, frozen=True, gc=False):
    """A job that was submitted, for the gang with this uid, and when it is to be asked for."""

    uid: str = ""
    check_at: float = 0.0


class SentJobs:
    """Remembers them; `wake` has a group looked at again after so many seconds."""

    def __init__(
        self,
        world: World,
        *,
        wake: Callable[[GroupKey, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._wake = wake
        self._clock = clock
        self._sent: dict[GroupKey, list[Sent]] = {}
        world.poller.on_restart(self._slurm_restarted)

    def add(self, group: GroupKey, job_id: int, *, slots: int, uid: str, uids: Collection[str]) -> Sent:
        """Take note of a job for these pods."""
        sent = Sent(job_id, slots, uids=frozenset(uids), uid=uid, check_at=self._clock() + UNSEEN)
        self._sent.setdefault(group, []).append(sent)
        return sent

    def started(self, group: GroupKey, sent: Sent, nodes: tuple[str, ...]) -> bool:
        """Take note of the nodes of a job; say whether it is still of interest."""
        known = self._sent.get(group, [])
        if sent not in known:
            return False
        known[known.index(sent)] = msgspec.structs.replace(sent, nodes=nodes[: sent.slots])
        return True

    async def of(self, group: GroupKey, uid: str, *, seen: Collection[int]) -> list[Sent]:
        """Find the jobs of a gang that nobody has seen yet; those that Slurm has lost are forgotten."""
        kept: list[Sent] = []
        for sent in self._sent.get(group, ()):
            if sent.job_id in seen or sent.uid != uid:
                continue
            found = sent
            if self._clock() >= sent.check_at:
                if not await self._is_there(sent):
                    log.warning("a submitted job is gone", group=str(group), job=sent.job_id)
                    continue
                found = msgspec.structs.replace(sent, check_at=self._clock() + UNSEEN)
            kept.append(found)
            self._wake(group, max(0.0, found.check_at - self._clock()))
        if kept:
            self._sent[group] = kept
        else:
            self._sent.pop(group, None)
        return kept

    def drop(self, group: GroupKey, job_id: int) -> None:
        """Forget a job that was taken back."""
        if group in self._sent:
            self._sent[group] = [sent for sent in self._sent[group] if sent.job_id != job_id]

    def forget(self, group: GroupKey) -> None:
        """Forget all jobs of a group."""
        self._sent.pop(group, None)

    async def _is_there(self, sent: Sent) -> bool:
        try:
            jobs = await self._world.slurm.job(sent.job_id)
        except NotFound:
            return False
        found = (marker.read(job.admin_comment) for job in jobs)
        return any(it and it.cluster == self._world.cluster and it.uid == sent.uid for it in found)

    def _slurm_restarted(self) -> None:
        now = self._clock()
        for group, known in self._sent.items():
            self._sent[group] = [msgspec.structs.replace(sent, check_at=now) for sent in known]
            self._wake(group, 0.0)
