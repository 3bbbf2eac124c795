"""Keeps track of orphan allocations (`domain.bridge.orphans`): how many there are, and since when.

A change of a pod or job only records the time for its group. Groups are examined at the next scrape that is half a
minute later, so an event costs a dictionary entry, and a scrape as much as there were changes. An orphan has been
one since the last change of its group.

While one side does not answer, nothing is known: the last count stays, and no time passes.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World, job_ids
from isthmus.domain.bridge import jobstates, orphans
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.model.meta import Key
from isthmus.model.pod import Pod

LASTING: Final = 30.0
"""Seconds after which an allocation that nobody uses counts as an orphan."""

_AT_ONCE: Final = 1000
"""So many groups are examined in one scrape, which takes a few hundredths of a second; others in the next."""


class Orphans:
    """The orphan allocations of one world."""

    def __init__(self, world: World, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._world = world
        self._clock = clock
        self._changed: dict[GroupKey, float] = {}
        """Groups that were not examined since they changed, and when that was, the longest ago first."""
        self._orphans: dict[GroupKey, int] = {}
        """How many orphans groups have that have not changed for long enough."""
        self._counted = 0
        for ours in world.jobs:
            self._job_changed(ours.job_id, None, ours)
        world.jobs.on_change(self._job_changed)
        world.pods.on_change(self._pod_changed)

    def count(self) -> int:
        """Count those that have lasted for half a minute."""
        poller, now = self._world.poller, self._clock()
        # What changed while Slurm was away may be put right from the moment on when it is back.
        settled = now - poller.contact.since >= LASTING
        if not (settled and self._world.in_touch and poller.knows_jobs_since(0.0)):
            return self._counted
        lasting = (group for group, since in self._changed.items() if now - since >= LASTING)
        for group in list(islice(lasting, _AT_ONCE)):
            del self._changed[group]
            if found := self._of(group):
                self._orphans[group] = found
        self._counted = sum(self._orphans.values())
        return self._counted

    def _of(self, group: GroupKey) -> int:
        world = self._world
        family = [(it.job, it.marker) for it in world.jobs.of_group(group)]
        unused = orphans.unused_jobs(family, world.members(group)) if family else ()
        return len(unused) + sum(self._is_without_job(pod) for pod in world.pods.by("group", group))

    def _is_without_job(self, pod: Pod) -> bool:
        jobs = self._world.jobs
        candidates = {it.job_id: it for it in jobs.of_group(group_of(pod))}
        candidates |= {job_id: it for job_id in job_ids(pod) if (it := jobs.get(job_id))}
        return orphans.is_without_job(pod, [(it.job, it.marker) for it in candidates.values()])

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        if before and after and _facts(before) == _facts(after):
            return
        for pod in (before, after):
            if pod and self._world.ours(pod):
                named = (it.marker.group for job_id in job_ids(pod) if (it := self._world.jobs.get(job_id)))
                self._note({group_of(pod), *named})

    def _job_changed(self, job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        if before and after and _job_facts(before) == _job_facts(after):
            return
        groups = {it.marker.group for it in (before, after) if it}
        groups |= {group_of(pod) for pod in self._world.pods.by("job", job_id) if self._world.ours(pod)}
        self._note(groups)

    def _note(self, groups: Iterable[GroupKey]) -> None:
        now = self._clock()
        for group in groups:
            self._changed.pop(group, None)
            self._orphans.pop(group, None)
            if self._world.pods.count("group", group) or self._world.jobs.of_group(group):
                self._changed[group] = now


def _job_facts(ours: OurJob) -> tuple[object, ...]:
    return ours.marker.group, jobstates.holds_nodes(ours.job.job_state)


def _facts(pod: Pod) -> tuple[object, ...]:
    """All that counts here: labels name the job and the group."""
    return pod.metadata.uid, pod.metadata.labels, pod.bound, pod.finished
