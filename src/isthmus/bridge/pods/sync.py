"""Keeps pods and jobs in step, both ways.

One controller has the ids of our jobs as its keys, the other those pods that have a node and no such job. Hooks of
the caches put keys into their queues; each pass looks at the present state of both worlds and does what is missing,
so that it does not matter what was missed, or how often a pass is repeated.
"""

from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.bridge.pods.actions import PodActions
from isthmus.bridge.pods.gatherer import PodGatherer
from isthmus.bridge.pods.starts import PodStarts
from isthmus.bridge.pods.strays import Strays, is_running
from isthmus.clock import utc_now
from isthmus.domain.bridge import jobstates, podrules
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.errors import Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key, condition
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.completion import Completer
from isthmus.slurm.errors import NotFound

_WORKERS: Final = 16
_OUT_OF_TOUCH: Final = 1.0
_STRAY_AFTER: Final = 2.0
"""A pod may be bound before its job has been read. Slurm is not asked before that: it is a call per pod."""


class PodSync:
    """The two controllers; `workers` are for the manager of the process."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        metrics: Metrics,
        *,
        now: Callable[[], datetime] = utc_now,
        completer: Completer | None = None,
    ) -> None:
        self._world = world
        self._gatherer = PodGatherer(world, now=now)
        self._actions = PodActions(world, recorder, metrics.pods(), now=now, completer=completer)
        self._starts = PodStarts(world, metrics.pods())
        self._strays = Strays(world, self._gatherer, self._actions, recorder)
        self.jobs: Controller[int] = Controller("pods", self.reconcile, metrics=metrics, workers=_WORKERS)
        self.strays: Controller[Key] = Controller("stray-pods", self._strays.reconcile, metrics=metrics)
        for ours in world.jobs:
            self.jobs.queue.add(ours.job_id)
        world.jobs.on_change(self._job_changed)
        world.pods.on_change(self._pod_changed)
        world.nodes.on_change(self._node_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return self.jobs, self.strays, self._starts

    async def reconcile(self, job_id: int) -> None:
        """Look after one job and its pods."""
        ours = self._world.jobs.get(job_id)
        if ours is None:
            return
        if not self._world.in_touch:
            raise Wait("Slurm or the API server does not answer", after=_OUT_OF_TOUCH)
        decision = podrules.decide(self._gatherer.job_view(ours))
        if decision.doubtful:
            ours = await self._as_it_is_now(ours)
            decision = podrules.decide(self._gatherer.job_view(ours)) if ours else podrules.NOTHING
        if ours:
            await self._actions.act(ours, decision.actions)
        if decision.again is not None:
            self.jobs.queue.add(job_id, after=decision.again)

    async def _as_it_is_now(self, ours: OurJob) -> OurJob | None:
        """Ask Slurm itself: a pod may have been bound, and even have ended, since the job was last read."""
        try:
            (job, *_) = await self._world.slurm.job(ours.job_id)
        except NotFound:
            return None
        return OurJob(job, ours.marker)

    # What wakes a key

    def _job_changed(self, job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        if after is None or not jobstates.living(after.job.job_state):
            self._actions.forget(job_id)
        # They may be of two groups: a slurmctld that lost a job gives its id to another.
        for group in {ours.marker.group for ours in (before, after) if ours}:
            self._family_changed(group, job_id, lost=after is None or after.marker.group != group)

    def _family_changed(self, group: GroupKey, job_id: int, *, lost: bool) -> None:
        family = self._world.jobs.of_group(group)
        if not any(jobstates.living(it.job.job_state) for it in family):
            self._gatherer.forget(group)
        for member in family:
            self.jobs.queue.add(member.job_id)
        if lost:
            for pod in (*self._world.members(group), *self._world.pods.by("job", job_id)):
                self._add_stray(pod)

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        old = before if before and self._world.ours(before) else None
        new = after if after and self._world.ours(after) else None
        if old and (new is None or new.metadata.uid != old.metadata.uid):
            self._gatherer.remember(old)
        if (old and _what_matters(old)) == (new and _what_matters(new)):
            return
        for pod in (old, new):
            if pod:
                self._add_jobs(pod)
        if new:
            self._add_stray(new)

    def _node_changed(self, key: Key, before: Node | None, after: Node | None) -> None:
        if podrules.is_dead(before) == podrules.is_dead(after):
            return
        for pod in self._world.pods.by("node", key.name):
            if pod.leaving and self._world.ours(pod):
                self._add_jobs(pod)

    def _add_jobs(self, pod: Pod) -> None:
        for ours in self._gatherer.jobs_of(pod):
            self.jobs.queue.add(ours.job_id)

    def _add_stray(self, pod: Pod) -> None:
        if is_running(pod) and self._gatherer.job_of(pod) is None:
            self.strays.queue.add(pod.metadata.key, after=_STRAY_AFTER)


def _what_matters(pod: Pod) -> Hashable:
    """All that decisions depend on; kubelets report much more than that."""
    told = condition(pod.status.conditions, podrules.SUSPENDED_CONDITION)
    return (
        pod.metadata.uid,
        pod.metadata.labels.get(names.JOB_ID_LABEL),
        pod.spec.node_name,
        bool(pod.spec.scheduling_gates),
        pod.finished,
        pod.metadata.deletion_timestamp,
        told and told.status,
        group_of(pod),
    )
