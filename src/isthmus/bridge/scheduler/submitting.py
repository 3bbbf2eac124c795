"""Makes the Slurm job of a group, with everything in it by which it is found again."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from isthmus.bridge.cache.inflight import JobInFlight
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
from isthmus.slurm.submission import key_of
from isthmus.slurm.versions import Feature

_BUSY_SECONDS: Final = 10.0
"""After Slurm had no room at once, so long nobody tries: each attempt that fails leaves a FAILED job in Slurm."""


class Terms(NamedTuple):
    """What a job is submitted on: whether its pods get whole nodes, and whether it may have several components."""

    exclusive: bool
    components: bool
    release: str


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

    async def terms(self, ask: Ask) -> Terms:
        """Tell what a job that asks for this is submitted on."""
        defaults, server = await self._chosen(), await self._world.slurm.server()
        components = defaults.placeholder == "external" and server.has(Feature.EXTERNAL_COMPONENTS)
        exclusive = defaults.exclusive if ask.exclusive is None else ask.exclusive
        return Terms(exclusive, components, server.release)

    async def submit(
        self, group: GroupKey, uid: str, step: Submit, parts: Sequence[Part], *, asks: Sequence[Ask], deadline: int
    ) -> JobInFlight:
        """Submit the job of a group, exactly once: one component for each part, with its ask.

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
            return await self._send(group, uid, step, *many)
        (part,), (ask,) = parts, asks
        request = self._request(group, uid, part, ask, defaults=defaults, deadline=deadline, step=step)
        if request.flags and self._clock() >= self._busy_until and ask.begin is None and ask.dependency is None:
            try:
                now = msgspec.structs.replace(request, immediate=True)
                return await self._send(group, uid, step, now)
            except (Terminal, Wait):
                # No room, or something is wrong with it: the ordinary way will tell.
                self._busy_until = self._clock() + _BUSY_SECONDS
        return await self._send(group, uid, step, request)

    def forget(self, group: GroupKey) -> None:
        """Take note that a group needs no job any more. One that Slurm took after all ends with its pods."""
        for key in self._world.inflight.forget(group):
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

    async def _send(self, group: GroupKey, uid: str, step: Submit, *components: JobRequest) -> JobInFlight:
        world = self._world
        known = [_attempt(ours) for ours in world.jobs.of_group(group) if ours.marker.uid == uid]
        flight = world.inflight.begin(
            group,
            uid,
            slots=step.slots,
            uids=[pod.metadata.uid for pod in step.pods],
            attempt=max((it + 1 for it in known), default=0),
        )
        world.slurm.note_newest(world.poller.newest)
        try:
            submission = await world.slurm.submit(*components, key=flight.key)
        except (Terminal, Wait):
            world.inflight.refused(flight)
            raise
        world.inflight.taken(flight, submission.job_id, components)
        return flight

    async def _chosen(self) -> Defaults:
        if not self._choose:
            return self._defaults
        external = (await self._world.slurm.server()).has(Feature.EXTERNAL_JOBS)
        return msgspec.structs.replace(self._defaults, placeholder="external" if external else "batch")


def _attempt(ours: OurJob) -> int:
    number = (key_of(ours.job.comment) or "").rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _name(group: GroupKey, pods: Sequence[Pod]) -> str:
    return pods[0].metadata.name if group.single else group.name
