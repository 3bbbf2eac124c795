"""Gathers what a decision about one job needs, from caches alone.

The one thing that caches cannot show is how a pod ended that is gone by now. So departures are remembered for as
long as a job of the pod's group lives; after a restart such a pod has simply been deleted.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

from isthmus.bridge import withdrawal
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World, job_ids
from isthmus.domain.bridge import jobstates, podrules
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.bridge.podrules import JobView
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.slurm.submission import duplicates, newer

_DEPARTURES: Final = 1000
"""So many departures are remembered of a gang, in which pods may be replaced forever."""


class PodGatherer:
    """Reads the caches of both sides for one job."""

    def __init__(self, world: World, *, now: Callable[[], datetime]) -> None:
        self._world = world
        self._now = now
        self._departed: dict[GroupKey, OrderedDict[str, Pod]] = {}

    def job_view(self, ours: OurJob) -> JobView:
        world, marker = self._world, ours.marker
        family = world.jobs.of_group(marker.group)
        members = world.members(marker.group)
        places = {pod.metadata.uid: self.job_of(pod) for pod in members if pod.bound}
        bound = tuple(pod for pod in members if places.get(pod.metadata.uid) == ours.job_id)
        living = [it for it in family if jobstates.living(it.job.job_state)]
        # The leader of a heterogeneous job answers for the pods of all components.
        leads = ours.job.queue_id == ours.job_id
        others = {it.job_id for it in family if it.job.queue_id == ours.job_id != it.job_id}
        parts = [ours, *(it for it in family if it.job_id in others)]
        elsewhere = tuple(pod for pod in members if places.get(pod.metadata.uid) in others)
        departed = tuple(pod for part in parts for pod in self._departures(part))
        submitted_for = [it for part in parts for it in zip(part.marker.keys, part.marker.uids, strict=False)]
        # One that went over to another group while it waited is not this job's any more, but has been seen.
        first = (pod for key, _ in submitted_for if (pod := world.pods.get(key)))
        seen = {pod.metadata.uid for pod in (*members, *first, *departed)}
        return JobView(
            job=ours.job,
            marker=marker,
            now=self._now(),
            bound=bound,
            loose=tuple(pod for pod in members if not pod.bound and podrules.belongs(pod, marker)),
            departed=departed,
            missing=tuple(key for key, uid in submitted_for if uid not in seen),
            elsewhere=elsewhere,
            led=not leads and any(it.job_id == ours.job.queue_id for it in living),
            dead_nodes=self._dead_nodes((*bound, *elsewhere)),
            slurm_names=self._slurm_names(bound),
            superseded=any(it.marker.uid != marker.uid and newer(it.job_id, ours.job_id) for it in living),
            surplus=any(job.job_id == ours.job_id for job in duplicates(it.job for it in living)),
            withdrawn=withdrawal.is_withdrawn(ours, family),
        )

    def job_of(self, pod: Pod) -> int | None:
        """Find the true job of a bound pod, whatever its label says; None while it is not known."""
        jobs = self._world.jobs
        if any(jobs.get(job_id) is None and not jobs.is_foreign(job_id) for job_id in job_ids(pod)):
            # The scheduler was faster than our caches. An older job of the pod is not its job, least of all one
            # that could not start at once and so is over.
            return None
        return podrules.true_job(pod, [(it.job, it.marker) for it in self.jobs_of(pod)])

    def jobs_of(self, pod: Pod) -> list[OurJob]:
        """Find the jobs that may be a pod's: those of its group, and the one that its label names."""
        jobs = self._world.jobs
        found = {it.job_id: it for it in jobs.of_group(group_of(pod))}
        found |= {job_id: it for job_id in job_ids(pod) if (it := jobs.get(job_id))}
        return list(found.values())

    def remember(self, pod: Pod) -> None:
        """Record that a pod is gone, if that may matter to a job."""
        for group in {it.marker.group for it in self.jobs_of(pod)}:
            departed = self._departed.setdefault(group, OrderedDict())
            departed[pod.metadata.uid] = pod
            if len(departed) > _DEPARTURES:
                departed.popitem(last=False)

    def forget(self, group: GroupKey) -> None:
        """Forget the departures of a group of which no job lives."""
        self._departed.pop(group, None)

    def _departures(self, ours: OurJob) -> list[Pod]:
        job_id, marker = ours.job_id, ours.marker
        return [
            pod
            for uid, pod in self._departed.get(marker.group, {}).items()
            if podrules.is_seated(pod, job_id, marker)
            if podrules.claimed_job(pod) == job_id or (not pod.bound and uid in marker.uids)
        ]

    def _dead_nodes(self, bound: tuple[Pod, ...]) -> frozenset[str]:
        # Only the end of a pod needs a confirmation.
        used = {pod.spec.node_name for pod in bound if pod.leaving and not pod.finished}
        return frozenset(name for name in used if podrules.is_dead(self._world.nodes.get(Key("", name))))

    def _slurm_names(self, bound: tuple[Pod, ...]) -> dict[str, str]:
        used = {pod.spec.node_name for pod in bound}
        return {name: known for name in used if (known := self._world.map.slurm_name(name))}
