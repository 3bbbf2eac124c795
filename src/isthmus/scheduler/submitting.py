"""Makes the Slurm job of a group, with everything in it by which it is found again."""

from collections.abc import Sequence
from typing import Final

import msgspec

from isthmus.bridge.jobs import OurJob
from isthmus.bridge.world import World
from isthmus.domain import jobspec, marker, placeholder
from isthmus.domain.grouping import GroupKey
from isthmus.domain.jobask import Ask
from isthmus.domain.jobspec import Defaults
from isthmus.domain.placement import Submit
from isthmus.domain.podshape import shape_of
from isthmus.model.pod import Pod
from isthmus.slurm.submission import key_of, with_key
from isthmus.slurm.submitter import Submission
from isthmus.slurm.versions import Feature

_CLUSTER_PART: Final = 13


class Submitting:
    """Submits the jobs of one cluster; `defaults` come from the configuration.

    With `choose` it is found out by itself, also after an upgrade, whether Slurm can hold pods by external jobs.
    """

    def __init__(self, world: World, defaults: Defaults, *, choose: bool = False) -> None:
        self._world = world
        self._defaults = defaults
        self._choose = choose
        self._attempts: dict[str, int] = {}

    async def submit(
        self,
        group: GroupKey,
        uid: str,
        step: Submit,
        *,
        ask: Ask,
        deadline: int,
        excluded: str,
    ) -> Submission:
        """Submit the job of a group, exactly once, and return its id."""
        defaults = await self._chosen()
        exclusive = defaults.exclusive if ask.exclusive is None else ask.exclusive
        packed = step.slots > 1 and not exclusive
        marked = marker.mark(group, uid, step.pods, cluster=self._world.cluster, slots=step.slots, packed=packed)
        request = jobspec.request(
            name=_name(group, step.pods),
            comment=marker.comment(step.pods),
            admin_comment=marker.write(marked),
            shapes=[shape_of(pod) for pod in step.pods],
            slots=step.slots,
            minimum=step.minimum,
            ask=ask,
            defaults=defaults,
            excluded_nodes=excluded,
            deadline_seconds=deadline,
            script=placeholder.SCRIPT if defaults.placeholder == "batch" else None,
            pod_priority=step.pods[0].spec.priority if step.pods[0].spec.priority_class_name else None,
        )
        attempt = self._next_attempt(group, uid)
        self._attempts[uid] = attempt
        key = f"{self._world.cluster[:_CLUSTER_PART]}:{uid}:{attempt}"
        submission = await self._world.slurm.submit(request, key=key)
        self._attempts[uid] = attempt + 1
        self._world.reading.made(submission.job_id, request, with_key(request.comment, key))
        return submission

    async def _chosen(self) -> Defaults:
        if not self._choose:
            return self._defaults
        external = (await self._world.slurm.server()).has(Feature.EXTERNAL_JOBS)
        return msgspec.structs.replace(self._defaults, placeholder="external" if external else "batch")

    def _next_attempt(self, group: GroupKey, uid: str) -> int:
        """Number the jobs of a group: a lost answer is looked for under its own number, not an older one."""
        known = [_attempt(ours) for ours in self._world.jobs.of_group(group) if ours.marker.uid == uid]
        return max([self._attempts.get(uid, 0), *(it + 1 for it in known)])

    def forget(self, uid: str) -> None:
        """Forget the numbers of a group that is gone."""
        self._attempts.pop(uid, None)


def _attempt(ours: OurJob) -> int:
    number = (key_of(ours.job.comment) or "").rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _name(group: GroupKey, pods: Sequence[Pod]) -> str:
    return pods[0].metadata.name if group.single else group.name
