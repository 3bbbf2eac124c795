"""Makes the Slurm job of a group, with everything in it by which it is found again."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import jobspec, marker, placeholder
from isthmus.domain.bridge.components import Part
from isthmus.domain.bridge.grouping import GroupKey
from isthmus.domain.bridge.jobask import Ask
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.bridge.placement import Submit
from isthmus.domain.kube.podshape import shape_of
from isthmus.errors import Terminal, Wait
from isthmus.model.pod import Pod
from isthmus.model.slurm import JobRequest
from isthmus.slurm.submission import key_of, with_key
from isthmus.slurm.versions import Feature

_CLUSTER_PART: Final = 13

_ATTEMPTS: Final = 20_000
"""So many groups are remembered: far more than can be submitted before the first of them is seen."""

_BUSY_SECONDS: Final = 10.0
"""After Slurm had no room at once, so long nobody tries: each attempt that fails leaves a FAILED job in Slurm."""


class Terms(NamedTuple):
    """What a job is submitted on: whether its pods get whole nodes, and whether it may have several components."""

    exclusive: bool
    components: bool
    release: str


class Taken(NamedTuple):
    """A job that Slurm took, and whether it took it to start at once."""

    job_id: int
    at_once: bool


class Submitting:
    """Submits the jobs of one cluster; `defaults` come from the configuration.

    With `choose` it is found out by itself, also after an upgrade, whether Slurm can hold pods by external jobs.
    """

    def __init__(
        self,
        world: World,
        defaults: Defaults,
        *,
        choose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._defaults = defaults
        self._choose = choose
        self._clock = clock
        self._busy_until = 0.0
        self._doubted: dict[GroupKey, str] = {}
        """The submission keys of groups of which nobody knows yet whether Slurm took their job."""
        self._attempts: OrderedDict[str, int] = OrderedDict()
        """The next number of each group that was submitted lately; later, its jobs themselves have it."""

    async def terms(self, ask: Ask) -> Terms:
        """Tell what a job that asks for this is submitted on."""
        defaults, server = await self._chosen(), await self._world.slurm.server()
        components = defaults.placeholder == "external" and server.has(Feature.EXTERNAL_COMPONENTS)
        exclusive = defaults.exclusive if ask.exclusive is None else ask.exclusive
        return Terms(exclusive, components, server.release)

    async def submit(
        self, group: GroupKey, uid: str, step: Submit, parts: Sequence[Part], *, asks: Sequence[Ask], deadline: int
    ) -> Taken:
        """Submit the job of a group, exactly once, and return its id: one component for each part, with its ask.

        An external job is first asked for as an allocation that starts now or not at all, which on a cluster with
        room saves the second that slurmctld takes for its next round. It does not overtake: Slurm refuses it where
        a job with a higher priority waits. A heterogeneous job is started by backfill alone, so it is not tried.
        """
        defaults = await self._chosen()
        if len(parts) > 1:
            many = [
                self._request(group, uid, part, ask, defaults=defaults, deadline=deadline)
                for part, ask in zip(parts, jobspec.component_asks(asks), strict=True)
            ]
            return Taken(await self._send(group, uid, *many), at_once=False)
        (part,), (ask,) = parts, asks
        request = self._request(group, uid, part, ask, defaults=defaults, deadline=deadline, step=step)
        if request.flags and self._clock() >= self._busy_until and ask.begin is None and ask.dependency is None:
            try:
                now = msgspec.structs.replace(request, immediate=True)
                return Taken(await self._send(group, uid, now), at_once=True)
            except (Terminal, Wait):
                # No room, or something is wrong with it: the ordinary way will tell.
                self._busy_until = self._clock() + _BUSY_SECONDS
        return Taken(await self._send(group, uid, request), at_once=False)

    def forget(self, group: GroupKey) -> None:
        """Take note that a group needs no job any more. One that Slurm took after all ends with its pods."""
        if key := self._doubted.pop(group, None):
            self._world.slurm.forget_submission(key)

    def _request(
        self,
        group: GroupKey,
        uid: str,
        part: Part,
        ask: Ask,
        *,
        defaults: Defaults,
        deadline: int,
        step: Submit | None = None,
    ) -> JobRequest:
        """Make a plain job as `step` has it, or (None) a component that has room for its own pods alone."""
        pods = part.pods
        slots = step.slots if step else len(pods)
        exclusive = defaults.exclusive if ask.exclusive is None else ask.exclusive
        packed = slots > 1 and not exclusive
        marked = marker.mark(
            group, uid, pods, cluster=self._world.cluster, slots=slots, packed=packed, role=part.role
        )
        return jobspec.request(
            name=_name(group, pods),
            comment=marker.comment(pods, asked=ask.comment),
            admin_comment=marker.write(marked),
            shapes=[shape_of(pod) for pod in pods],
            slots=slots,
            minimum=step.minimum if step else slots,
            ask=ask,
            defaults=defaults,
            excluded_nodes=part.excluded,
            deadline_seconds=deadline,
            script=placeholder.SCRIPT if defaults.placeholder == "batch" else None,
            pod_priority=pods[0].spec.priority if pods[0].spec.priority_class_name else None,
        )

    async def _send(self, group: GroupKey, uid: str, *components: JobRequest) -> int:
        attempt = self._next_attempt(group, uid)
        self._remember(uid, attempt)
        key = f"{self._world.cluster[:_CLUSTER_PART]}:{uid}:{attempt}"
        self._doubted[group] = key
        self._world.slurm.note_newest(self._world.poller.newest)
        try:
            submission = await self._world.slurm.submit(*components, key=key)
        except (Terminal, Wait):
            self._remember(uid, attempt + 1)
            self._doubted.pop(group, None)
            raise
        self._remember(uid, attempt + 1)
        self._doubted.pop(group, None)
        if len(components) == 1:
            (request,) = components
            self._world.job_reader.made(submission.job_id, request, comment=with_key(request.comment, key))
        return submission.job_id

    async def _chosen(self) -> Defaults:
        if not self._choose:
            return self._defaults
        external = (await self._world.slurm.server()).has(Feature.EXTERNAL_JOBS)
        return msgspec.structs.replace(self._defaults, placeholder="external" if external else "batch")

    def _next_attempt(self, group: GroupKey, uid: str) -> int:
        """Number the jobs of a group: a lost answer is looked for under its own number, not an older one."""
        known = [_attempt(ours) for ours in self._world.jobs.of_group(group) if ours.marker.uid == uid]
        return max([self._attempts.get(uid, 0), *(it + 1 for it in known)])

    def _remember(self, uid: str, attempt: int) -> None:
        self._attempts[uid] = attempt
        self._attempts.move_to_end(uid)
        if len(self._attempts) > _ATTEMPTS:
            self._attempts.popitem(last=False)


def _attempt(ours: OurJob) -> int:
    number = (key_of(ours.job.comment) or "").rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _name(group: GroupKey, pods: Sequence[Pod]) -> str:
    return pods[0].metadata.name if group.single else group.name
