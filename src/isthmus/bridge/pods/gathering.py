"""Puts together what bears on one job, from caches alone.

The one thing that caches cannot show is how a pod ended that is gone by now. So departures are remembered for as
long as a job of the pod's group lives; after a restart such a pod has simply been deleted.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.bridge import withdrawal
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World, job_ids
from isthmus.domain.bridge import jobstates, podrules
from isthmus.domain.bridge.grouping import GroupKey, group_of
from isthmus.domain.bridge.podrules import Scene
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.slurm.submission import duplicates, newer

_DEPARTURES: Final = 1000
"""So many departures are remembered of a gang, in which pods may be replaced for ever."""


class Gathering:
    """Looks at both worlds for the sake of one job."""

    def __init__(self, world: World, *, now: Callable[[], datetime]) -> None:
        self._world = world
        self._now = now
        self._departed: dict[GroupKey, OrderedDict[str, Pod]] = {}

    def scene(self, ours: OurJob) -> Scene:
        """Gather everything about a job."""
        world, marker = self._world, ours.marker
        family = world.jobs.of_group(marker.group)
        members = [pod for pod in world.members(marker.group) if podrules.belongs(pod, marker)]
        bound = tuple(pod for pod in members if pod.bound and self.job_of(pod) == ours.job_id)
        departed = tuple(self._departures(ours))
        seen = {pod.metadata.uid for pod in (*world.members(marker.group), *departed)}
        living = [it for it in family if jobstates.living(it.job.job_state)]
        return Scene(
            job=ours.job,
            marker=marker,
            now=self._now(),
            bound=bound,
            loose=tuple(pod for pod in members if not pod.bound),
            departed=departed,
            missing=tuple(key for key, uid in zip(marker.keys, marker.uids, strict=False) if uid not in seen),
            dead_nodes=self._dead_nodes(bound),
            slurm_names=self._slurm_names(bound),
            superseded=any(it.marker.uid != marker.uid and newer(it.job_id, ours.job_id) for it in living),
            surplus=any(job.job_id == ours.job_id for job in duplicates(it.job for it in living)),
            withdrawn=withdrawal.is_withdrawn(ours, family),
        )

    def job_of(self, pod: Pod) -> int | None:
        """Find the true job of a bound pod, whatever its label says; None as long as nobody knows."""
        jobs = self._world.jobs
        if any(jobs.get(job_id) is None and not jobs.is_foreign(job_id) for job_id in job_ids(pod)):
            # The scheduler was faster than our caches. An older job of the pod is not its job, least of all one
            # that could not start at once and so is over.
            return None
        return podrules.true_job(pod, [(it.job, it.marker) for it in self._world.jobs.of_group(group_of(pod))])

    def remember(self, pod: Pod) -> None:
        """Take note that a pod is gone, if that may matter to a job."""
        group = group_of(pod)
        if not self._world.jobs.of_group(group):
            return
        departed = self._departed.setdefault(group, OrderedDict())
        departed[pod.metadata.uid] = pod
        if len(departed) > _DEPARTURES:
            departed.popitem(last=False)

    def forget(self, group: GroupKey) -> None:
        """Forget the departures of a group of which no job lives."""
        self._departed.pop(group, None)

    def _departures(self, ours: OurJob) -> list[Pod]:
        label = str(ours.job_id)
        return [
            pod
            for uid, pod in self._departed.get(ours.marker.group, {}).items()
            if pod.metadata.labels.get(names.JOB_ID_LABEL) == label or (not pod.bound and uid in ours.marker.uids)
        ]

    def _dead_nodes(self, bound: tuple[Pod, ...]) -> frozenset[str]:
        # Only the end of a pod needs somebody to confirm it.
        used = {pod.spec.node_name for pod in bound if pod.leaving and not pod.finished}
        return frozenset(name for name in used if podrules.is_dead(self._world.nodes.get(Key("", name))))

    def _slurm_names(self, bound: tuple[Pod, ...]) -> dict[str, str]:
        used = {pod.spec.node_name for pod in bound}
        return {name: known for name in used if (known := self._world.map.slurm_name(name))}
