"""Which Slurm nodes the job of a group must not get: those that do not fit, and those that could not be used.

Which nodes fit is known for each template of pods (`cache.feasible`). Besides, a node that Slurm gave and that
Kubernetes could not use is left out for a while, for the group that met it: by then it may be of use again.
"""

import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Final

from isthmus.bridge.cache.feasible import Excluded, FeasibleNodes
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import marker, podclaims
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.kube.feasibility import Constraints
from isthmus.domain.kube.podshape import Shape, shape_of
from isthmus.domain.languages import hostlist
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job

AVOIDED: Final = 60.0
"""Seconds for which a node is left out that Kubernetes could not use."""


class Exclusions:
    """Answers for the groups of one process, and remembers what they avoid."""

    def __init__(
        self,
        world: World,
        feasible: FeasibleNodes,
        *,
        exclusive: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._feasible = feasible
        self._exclusive = exclusive
        self._clock = clock
        self._sharing: dict[GroupKey, bool] = {}
        """Whether the pods of a group share their nodes, where that is not as for all."""
        self._avoided: dict[GroupKey, dict[str, float]] = {}
        """Slurm nodes that Kubernetes could not use for a group, and until when they are left out."""

    def constraints(self, pod: Pod) -> Constraints:
        """Which nodes a pod may run on."""
        return self._world.constraints(pod, shared=self._sharing.get(group_of(pod), not self._exclusive))

    def note_sharing(self, group: GroupKey, *, exclusive: bool) -> None:
        """Record whether the pods of a group get whole nodes."""
        if exclusive == self._exclusive:
            self._sharing.pop(group, None)
        else:
            self._sharing[group] = not exclusive

    def shape(self, pod: Pod) -> Shape:
        """What a pod takes, the devices of its claims included."""
        claims = self._world.devices.of_pod(pod)
        if not claims.needs:
            return shape_of(pod)
        return podclaims.shape_of(pod, claims, self._feasible.taken(self.constraints(pod)))

    def of(self, constraints: Collection[Constraints]) -> Excluded:
        """Which nodes do not fit pods with any of these constraints."""
        return self._feasible.excluded_by_any(constraints)

    def for_job(self, group: GroupKey, constraints: Collection[Constraints]) -> str:
        """Write down, as a host list, all nodes that a new job of a group must not get."""
        return _joined(self.of(constraints).hostlist, self._avoided_by(group))

    def news(self, group: GroupKey, job: Job, pods: Sequence[Pod]) -> str | None:
        """What the list of a waiting job is to be from now on; None if the one that it has will do."""
        if marked := marker.read(job.admin_comment):
            # A process before this one may have submitted it.
            self.note_sharing(group, exclusive=not marked.shared)
        excluded = self.of(dict.fromkeys(self.constraints(pod) for pod in pods))
        avoided, told = self._avoided_by(group), job.excluded_nodes or ""
        wanted, enough = _joined(excluded.hostlist, avoided), _joined(excluded.lasting, avoided)
        known = not excluded.feasible or _same_hosts(told, wanted) or _same_hosts(told, enough)
        return None if known else wanted

    def unfit(self, pods: Sequence[Pod]) -> Collection[str]:
        """The Slurm nodes that none of these pods can use."""
        kinds = dict.fromkeys(self.constraints(pod) for pod in pods)
        found = [self._feasible.misfits(each) for each in kinds]
        return frozenset(found[0]).intersection(*found[1:]) if len(found) > 1 else next(iter(found), ())

    def unusable(self, group: GroupKey, pods: Sequence[Pod]) -> frozenset[str]:
        """The Slurm nodes that a gang does without while some of its pods run."""
        loose = [pod for pod in pods if not (pod.bound or pod.finished or pod.leaving)]
        if group.single or not loose or not any(pod.bound and not pod.finished for pod in pods):
            return frozenset()
        return frozenset(self.unfit(loose)) | self._avoided_by(group)

    def avoid(self, group: GroupKey, slurm_node: str) -> None:
        """Leave a node out for a while."""
        self._avoided.setdefault(group, {})[slurm_node] = self._clock() + AVOIDED

    def ends(self, group: GroupKey) -> list[float]:
        """In how many seconds each node that a group avoids is one of all again."""
        now = self._clock()
        return [until - now for until in self._avoided.get(group, {}).values() if until > now]

    def forget(self, group: GroupKey) -> None:
        self._avoided.pop(group, None)
        self._sharing.pop(group, None)

    def _avoided_by(self, group: GroupKey) -> frozenset[str]:
        now = self._clock()
        return frozenset(node for node, until in self._avoided.get(group, {}).items() if until > now)


@lru_cache(maxsize=1024)
def _joined(excluded: str, avoided: frozenset[str]) -> str:
    return hostlist.fold([*hostlist.expand(excluded), *sorted(avoided)]) if avoided else excluded


@lru_cache(maxsize=1024)
def _same_hosts(one: str, other: str) -> bool:
    # Thousands of waiting jobs have few lists between them.
    return hostlist.same_hosts(one, other)
