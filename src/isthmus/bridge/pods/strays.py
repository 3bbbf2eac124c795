"""Pods that have a node, but no job of ours that could be theirs.

    no job id                    it was bound by hand: left alone, with a warning
    the job of another tool      its label is wrong or forged, or the job's marker was written over: left alone,
                                 with a warning, and so is the job
    a job unknown to Slurm       its job is gone, so the pod is evicted
    a job younger than itself    likewise: Slurm forgot its job, and gave the id to another

A job counts as gone only if Slurm itself says so, twice.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from isthmus.bridge.cache.world import World, job_ids
from isthmus.bridge.pods.actions import PodActions
from isthmus.bridge.pods.gatherer import PodGatherer
from isthmus.domain.bridge import marker, podrules
from isthmus.errors import Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Condition, Key, condition
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job
from isthmus.slurm.errors import NotFound

_TWICE_WITHIN: Final = 1.0
_LOOK_AGAIN: Final = 1.0


class _Conditions(Data, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _PodTimes(Data, frozen=True):
    """A pod with the times that caches leave out."""

    status: _Conditions = _Conditions()


_POD_TIMES: Final = Kind(_PodTimes, "v1", "pods", "Pod")


@dataclass(eq=False)
class Strays:
    """Finds out what became of the jobs of such pods."""

    world: World
    gatherer: PodGatherer
    actions: PodActions
    recorder: Recorder
    _gone_since: dict[Key, tuple[int, float]] = field(default_factory=dict, init=False)
    """When Slurm first said that it does not know a pod's job."""

    async def reconcile(self, key: Key) -> None:
        """Look after one pod."""
        pod = self.world.pods.get(key)
        if pod is None or not is_running(pod) or self.gatherer.job_of(pod) is not None:
            self._gone_since.pop(key, None)
            return
        job_id = next(iter(job_ids(pod)), None)
        if job_id is None:
            self._warn(pod, "BoundWithoutSlurm", "has a node, but no Slurm job: something else bound it")
        elif await self._is_someone_elses(job_id, pod):
            self._gone_since.pop(key, None)
            self._warn(pod, "SlurmJobNotItsOwn", f"carries the id of Slurm job {job_id}, which is not its own")
        else:
            self._gone_since.pop(key, None)
            await self.actions.evict(podrules.evict_orphan(pod, job_id))

    async def _is_someone_elses(self, job_id: int, pod: Pod) -> bool:
        """Whether a job is another tool's, and not just gone; raises `Wait` as long as neither is certain."""
        if not self.world.in_touch:
            raise Wait("Slurm or the API server does not answer", after=_LOOK_AGAIN)
        try:
            (found, *_) = await self.world.slurm.job(job_id)
        except NotFound:
            self._must_be_gone_for_long(job_id, pod.metadata.key)
            return False
        marked = marker.read(found.admin_comment)
        if marked and marked.cluster == self.world.cluster and podrules.is_seated(pod, job_id, marked):
            raise Wait(f"job {job_id} has not been read yet", after=_LOOK_AGAIN)
        return not await self._has_id_of_another(found, pod)

    async def _has_id_of_another(self, job: Job, pod: Pod) -> bool:
        """Whether the pod's own job was forgotten by Slurm; raises `Wait` if slurmctld cannot tell its age yet."""
        times = await self.world.kube.get(_POD_TIMES, pod.metadata.key)
        scheduled = condition(times.status.conditions, "PodScheduled")
        if scheduled is None or scheduled.last_transition_time is None:
            return False
        since = (await self.world.slurm.diagnose()).since.value
        if since == 0:
            raise Wait("slurmctld has only just started", after=_LOOK_AGAIN)
        return podrules.has_id_of_another(job, bound=scheduled.last_transition_time, counts_since=since or 0)

    def _must_be_gone_for_long(self, job_id: int, key: Key) -> None:
        now = time.monotonic()
        known, since = self._gone_since.get(key, (job_id, now))
        if known != job_id:
            since = now
        self._gone_since[key] = job_id, since
        if now - since < _TWICE_WITHIN:
            raise Wait(f"Slurm does not know job {job_id}", after=_TWICE_WITHIN)

    def _warn(self, pod: Pod, reason: str, text: str) -> None:
        self.recorder.event(PODS, pod, reason, f"This pod {text}; it is left alone", warning=True)


def is_running(pod: Pod) -> bool:
    """Whether a pod has a node, and neither ended nor is to go."""
    return pod.bound and not (pod.finished or pod.leaving)
