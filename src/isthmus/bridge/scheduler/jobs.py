"""The Slurm jobs of a group as the scheduler counts on them: those that the caches have, and those in flight.

A job counts as long as it lives and pods may use it. One that is a duplicate, that is being taken back, or whose
pods are all gone is about to end; who would take its slots now would go with it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from isthmus.bridge import withdrawal
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.conditions import NotYet
from isthmus.bridge.scheduler.gang import Gang
from isthmus.bridge.withdrawal import Withdrawals
from isthmus.domain.bridge import jobstates, placement
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.placement import Allocation, Submit
from isthmus.model.pod import Pod
from isthmus.slurm.submission import duplicates

log = structlog.get_logger()

_CANCELLED: Final = 30.0
_CANCELLED_REMEDY: Final = "the pod is deleted as soon as the bridge's controllers run"


class GroupJobs:
    """Finds the jobs of groups, and takes them back; `wake` has a group looked at again after so many seconds."""

    def __init__(self, world: World, ledger: Ledger, *, wake: Callable[[GroupKey, float], None]) -> None:
        self._world = world
        self._ledger = ledger
        self._wake = wake
        self._withdrawals = Withdrawals(world)
        self._here_before: set[str] = set()
        """Pods that were there when we began to work: a process before us may have submitted jobs for them."""

    def begin(self) -> None:
        """Record the pods that are there before any work is done."""
        self._here_before = {pod.metadata.uid for pod in self._world.pods.values() if self._world.ours(pod)}

    async def of(self, group: GroupKey, gang: Gang, pods: Sequence[Pod]) -> list[Allocation]:
        """Gather the group's living jobs, the oldest first: those that the caches have, then those to come."""
        family = [it for it in self._world.jobs.of_group(group) if it.marker.uid == gang.uid]
        living = [it for it in family if jobstates.living(it.job.job_state)]
        surplus = {job.job_id for job in duplicates(it.job for it in living)} if len(living) > 1 else ()
        # Of jobs with one key, the pod controller ends all but one.
        usable = [it for it in living if it.job_id not in surplus and not await self._withdrawals.covers(it)]
        found: list[Allocation] = [ours.allocation for ours in usable]
        found += await self._unseen(group, gang, seen={it.job_id for it in family})
        deserted = await self._deserted(group, found, pods)
        return [job for job in found if job.whole not in deserted]

    async def _unseen(self, group: GroupKey, gang: Gang, *, seen: Collection[int]) -> list[Allocation]:
        """Gather the jobs that were submitted and that no cache shows yet, without those that Slurm has lost."""
        inflight, found = self._world.inflight, list[Allocation]()
        for flight in inflight.awaited(group, gang.uid, seen=seen):
            if not inflight.check_in(flight):
                if not await self._world.job_reader.has(flight):
                    log.warning("a submitted job is gone", group=str(group), job=flight.job_id)
                    inflight.release(flight)
                    continue
                inflight.checked(flight)
            self._wake(group, inflight.check_in(flight))
            found.append(flight.allocation)
        return found

    async def _deserted(self, group: GroupKey, jobs: Sequence[Allocation], pods: Sequence[Pod]) -> set[int]:
        """Take jobs back that have no pods any more, and name them.

        Only where other pods would take their slots: the pod controller ends them as their pods ended.
        """
        placeless = any(not (pod.bound or pod.finished or pod.leaving) for pod in pods)
        if group.single or not placeless or any(map(self._ledger.assumes, pods)):
            return set()
        used = {job.whole for job in jobs if not placement.is_deserted(job, pods)}
        deserted = {job.whole for job in jobs} - used
        for job_id in deserted:
            await self.take_back(group, job_id, "its pods are gone")
        return deserted

    async def take_back(self, group: GroupKey, job_id: int, why: str) -> None:
        """Cancel a job of a group whose pods will have another."""
        log.info("withdrawing a job", group=str(group), job=job_id, why=why)
        await self._withdrawals.take_back(job_id, why)
        if flight := self._world.inflight.get(job_id):
            self._world.inflight.release(flight)

    def is_used(self, job_id: int, pods: Sequence[Pod]) -> bool:
        """Whether a pod runs by this job, or is being bound to a node of the group's, which may be its."""
        ours = self._world.jobs.get(job_id)
        family = self._world.jobs.of_group(ours.marker.group) if ours else ()
        # Components are one job.
        ids = {job_id, *(it.job_id for it in family if ours and it.job.queue_id == ours.job.queue_id)}
        return any(
            self._ledger.assumes(pod) or (placement.placed_by(pod) in ids and not pod.finished) for pod in pods
        )

    # What has to be certain before another job is submitted

    def require_known(self, gang: Gang, pods: Sequence[Pod]) -> None:
        """Raise `NotYet` as long as a group may have a job that has not been read: at a start there may be many."""
        if self._here_before.isdisjoint(pod.metadata.uid for pod in pods):
            return
        made = [it.metadata.creation_timestamp for it in (*pods, *filter(None, [gang.object]))]
        if not self._world.poller.knows_jobs_since(min(it.timestamp() if it else 0.0 for it in made)):
            raise NotYet("the jobs in Slurm are still being read", reason="ReadingSlurm")

    async def require_not_cancelled(self, group: GroupKey, gang: Gang, step: Submit) -> None:
        """Raise `NotYet` for pods whose job was cancelled by others: the pod controller evicts them."""
        family = [it for it in self._world.jobs.of_group(group) if it.marker.uid == gang.uid]
        uids = (pod.metadata.uid for pod in step.pods)
        job_id = await withdrawal.withdrawn_for(self._world, family, uids) if family else None
        if job_id is not None:
            raise NotYet(
                f"Slurm job {job_id} was cancelled",
                reason="SlurmJobCancelled",
                after=_CANCELLED,
                remedy=_CANCELLED_REMEDY,
            )
