"""Pods that have a node, but no job of ours that could be theirs.

    no job id                    somebody bound it by hand: left alone, with a warning
    the job of somebody else     its label is wrong or forged, or the job's marker was written over: left alone,
                                 with a warning, and so is the job
    a job that nobody knows      its job is gone, and it has to go, too
    a job younger than itself    likewise: Slurm forgot its job, and gave the id to another

A job counts as gone only if Slurm itself says so, twice.
"""

import time
from collections.abc import Callable
from typing import Final

from isthmus.bridge.cache.world import World, job_ids
from isthmus.bridge.pods.acting import Acting
from isthmus.bridge.pods.gathering import Gathering
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


class Strays:
    """Finds out what became of the jobs of such pods."""

    def __init__(
        self,
        world: World,
        gathering: Gathering,
        acting: Acting,
        recorder: Recorder,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._gathering = gathering
        self._acting = acting
        self._recorder = recorder
        self._clock = clock
        self._gone_since: dict[Key, tuple[int, float]] = {}
        """When Slurm first said that it does not know a pod's job."""

    async def reconcile(self, key: Key) -> None:
        """Look after one pod."""
        pod = self._world.pods.get(key)
        if pod is None or not is_running(pod) or self._gathering.job_of(pod) is not None:
            self._gone_since.pop(key, None)
            return
        job_id = next(iter(job_ids(pod)), None)
        if job_id is None:
            self._warn(pod, "BoundWithoutSlurm", "has a node, but no Slurm job: Slurm does not know of it")
        elif await self._is_someone_elses(job_id, pod):
            self._gone_since.pop(key, None)
            self._warn(pod, "SlurmJobNotItsOwn", f"carries the id of Slurm job {job_id}, which is not its own")
        else:
            self._gone_since.pop(key, None)
            await self._acting.evict(podrules.evict_orphan(pod, job_id))

    async def _is_someone_elses(self, job_id: int, pod: Pod) -> bool:
        """Tell somebody else's job from one that is gone; raises `Wait` as long as neither is certain."""
        if not self._world.in_touch:
            raise Wait("Slurm or the API server does not answer", after=_LOOK_AGAIN)
        try:
            (found, *_) = await self._world.slurm.job(job_id)
        except NotFound:
            self._must_be_gone_for_long(job_id, pod.metadata.key)
            return False
        marked = marker.read(found.admin_comment)
        if marked and marked.cluster == self._world.cluster and podrules.is_seated(pod, job_id, marked):
            raise Wait(f"job {job_id} was not read yet", after=_LOOK_AGAIN)
        return not await self._has_id_of_another(found, pod)

    async def _has_id_of_another(self, job: Job, pod: Pod) -> bool:
        """Whether the pod's own job was forgotten by Slurm; raises `Wait` if slurmctld cannot tell its age yet."""
        times = await self._world.kube.get(_POD_TIMES, pod.metadata.key)
        scheduled = condition(times.status.conditions, "PodScheduled")
        if scheduled is None or scheduled.last_transition_time is None:
            return False
        since = (await self._world.slurm.diagnose()).since.value
        if since == 0:
            raise Wait("slurmctld has only just started", after=_LOOK_AGAIN)
        return podrules.has_id_of_another(job, bound=scheduled.last_transition_time, counts_since=since or 0)

    def _must_be_gone_for_long(self, job_id: int, key: Key) -> None:
        now = self._clock()
        known, since = self._gone_since.get(key, (job_id, now))
        if known != job_id:
            since = now
        self._gone_since[key] = job_id, since
        if now - since < _TWICE_WITHIN:
            raise Wait(f"Slurm does not know job {job_id}", after=_TWICE_WITHIN)

    def _warn(self, pod: Pod, reason: str, text: str) -> None:
        self._recorder.event(PODS, pod, reason, f"This pod {text}; it is left alone", warning=True)


def is_running(pod: Pod) -> bool:
    """Whether a pod has a node, and neither ended nor is to go."""
    return pod.bound and not (pod.finished or pod.leaving)
