"""The Slurm jobs that are ours, found by their id and by their group.

Everything else in Slurm, of other tools, people or clusters, is not in here and is therefore never touched.
"""

from collections.abc import Callable, Iterator

import msgspec

from isthmus.domain.bridge import jobstates, marker, placement
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.marker import Marker
from isthmus.domain.bridge.placement import Allocation
from isthmus.model.slurm import Job
from isthmus.slurm.store import Store

Hook = Callable[[int, "OurJob | None", "OurJob | None"], None]
"""Called for each change with the job's id, its old and its new state; None if it does not exist."""


class OurJob(msgspec.Struct, frozen=True, gc=False):
    job: Job
    marker: Marker

    @property
    def job_id(self) -> int:
        return self.job.job_id

    @property
    def allocation(self) -> Allocation:
        """The job as decisions about placement see it."""
        job, mark = self.job, self.marker
        runs = jobstates.running(job.job_state)
        nodes = placement.slot_nodes(job, mark.slots, packed=mark.packed) if runs else ()
        uids = frozenset(mark.uids)
        if not mark.role:
            return Allocation(job.job_id, mark.slots, nodes, uids)
        whole = int(job.het_job_id.value or 0)
        return Allocation(job.job_id, mark.slots, nodes, uids, whole, mark.role, frozenset(mark.pods))


class OurJobs:
    """Those jobs of a poller that carry our cluster's marker."""

    def __init__(self, jobs: Store[int, Job], *, cluster: str) -> None:
        self._cluster = cluster
        self._ours: dict[int, OurJob] = {}
        self._by_group: dict[GroupKey, dict[int, OurJob]] = {}
        self._foreign: set[int] = set()
        self._hooks: list[Hook] = []
        for job_id, job in jobs.items():
            self._changed(job_id, None, job)
        jobs.on_change(self._changed)

    def __len__(self) -> int:
        return len(self._ours)

    def __iter__(self) -> Iterator[OurJob]:
        return iter(self._ours.values())

    def get(self, job_id: int) -> OurJob | None:
        return self._ours.get(job_id)

    def of_group(self, group: GroupKey) -> tuple[OurJob, ...]:
        """Find the jobs of a group, the oldest first."""
        found = self._by_group.get(group, {})
        return tuple(sorted(found.values(), key=lambda it: it.job_id)) if len(found) > 1 else tuple(found.values())

    def is_foreign(self, job_id: int) -> bool:
        """Whether this is known not to be a job of ours: its details will never matter."""
        return job_id in self._foreign

    def forget_foreign(self) -> None:
        """Know nothing of others' jobs any more: their ids may be given again."""
        self._foreign.clear()

    def on_change(self, hook: Hook) -> None:
        """Call this for every later change."""
        self._hooks.append(hook)

    def _changed(self, job_id: int, _old: Job | None, new: Job | None) -> None:
        before = self._ours.get(job_id)
        after = self._read(new) if new else None
        if new is None:
            self._foreign.discard(job_id)
        elif after is None:
            self._foreign.add(job_id)
        if before is None and after is None:
            return
        if before is not None:
            of_group = self._by_group[before.marker.group]
            del of_group[job_id]
            if not of_group:
                del self._by_group[before.marker.group]
            del self._ours[job_id]
        if after is not None:
            self._ours[job_id] = after
            self._by_group.setdefault(after.marker.group, {})[job_id] = after
        for hook in self._hooks:
            hook(job_id, before, after)

    def _read(self, job: Job) -> OurJob | None:
        found = marker.read(job.admin_comment)
        return OurJob(job, found) if found and found.cluster == self._cluster else None
