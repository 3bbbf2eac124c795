"""Makes and submits the Slurm job of a group, with everything in it by which it is found again.

    options of the pods and their owners ─┐
    nodes that fit                        ├──► one request, or one for each component ──► Slurm ──► a job in flight
    marker and submission key             ┘

That there is exactly one job for each key is the business of `slurm.submitter`.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from isthmus.bridge.cache.feasible import Excluded
from isthmus.bridge.cache.inflight import JobInFlight
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.vacancies import Vacancies
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.claims import ClaimAllocator
from isthmus.bridge.scheduler.conditions import NoNodeFits, NotYet
from isthmus.bridge.scheduler.exclusions import Exclusions
from isthmus.bridge.scheduler.gang import Gang, job_options
from isthmus.domain.bridge import components, jobspec, marker, placeholder
from isthmus.domain.bridge.components import Part
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.bridge.placement import Submit
from isthmus.errors import IsthmusError, Terminal, Wait
from isthmus.model.pod import Pod
from isthmus.model.slurm import JobRequest
from isthmus.runtime.metrics import SchedulingMetrics
from isthmus.slurm.errors import Deferred
from isthmus.slurm.submission import key_of
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

_BUSY_SECONDS: Final = 10.0
"""Seconds without attempts after Slurm had no room: each failed attempt leaves a FAILED job in Slurm."""


class _Order(msgspec.Struct, frozen=True):
    """A job to be made: for whom, how large, and on what terms."""

    group: GroupKey
    gang: Gang
    step: Submit
    defaults: Defaults
    deadline: int


@dataclass(eq=False)
class JobSubmitter:
    """Submits the jobs of one cluster; `defaults` come from the configuration.

    With `choose` it is found out by itself, also after an upgrade, whether Slurm can hold pods by external jobs.
    """

    world: World
    owners: Owners
    exclusions: Exclusions
    claims: ClaimAllocator
    _: KW_ONLY
    metrics: SchedulingMetrics
    defaults: Defaults
    choose: bool = False
    clock: Callable[[], float] = time.monotonic
    _vacancies: Vacancies = field(init=False)
    _busy_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        world = self.world
        self._vacancies = Vacancies(world.slurm_nodes, world.jobs, world.inflight, states=world.states)
        world.poller.on_restart(self._slurm_restarted)

    async def submit(self, group: GroupKey, gang: Gang, step: Submit) -> JobInFlight:
        """Submit the job of a group, exactly once. Raises `NoNodeFits` where it could never start.

        Pods that are alike get a plain job; for others it may have a component for each kind of them.
        """
        self._require_volumes(step.pods)
        options, deadline = await job_options(group, gang, step.pods, self.world, self.owners)
        self.exclusions.note_sharing(group, exclusive=_exclusive(self.defaults, options))
        await self.claims.prepare(step.pods)
        parts = components.parts_of(step.pods, self.exclusions.constraints)
        excluded = [self.exclusions.of(part.constraints) for part in parts]
        if unfit := next((it for it in excluded if not it.feasible), None):
            raise NoNodeFits(unfit.why)
        order = _Order(group, gang, step, await self._chosen(), deadline)
        if len(parts) > 1:
            parts = await self._planned(order, options, parts, excluded)
        parts = tuple(replace(part, excluded=self.exclusions.for_job(group, part.constraints)) for part in parts)
        if len(parts) > 1:
            return await self._submit_components(order, parts)
        return await self._submit_plain(order, parts[0], options)

    async def _submit_plain(self, order: _Order, part: Part, options: JobOptions) -> JobInFlight:
        """Submit a job without components.

        Where no helper allocates them, an external job is first asked for as an allocation that starts now or not
        at all, which on a cluster with room saves the second that slurmctld takes for its next round. It does not
        overtake: Slurm refuses it where a job with a higher priority waits. Where no node is known to be free, or
        for a heterogeneous job, which is started by backfill alone, it is not tried.
        """
        step = order.step
        request = self._request(order, part, options, slots=step.slots, minimum=step.minimum)
        may_start = jobspec.may_start_at_once(request) and not self.world.slurm.allocates
        if may_start and self.clock() >= self._busy_until and self._vacancies.suffice(request):
            try:
                with self._vacancies.attempt(request):
                    return await self._send(order, replace(request, immediate=True))
            except Deferred:
                self._busy_until = math.inf
            except (Terminal, Wait):
                # No room, or something is wrong with it: the ordinary submission shows which.
                self._busy_until = max(self._busy_until, self.clock() + _BUSY_SECONDS)
        return await self._send(order, request)

    async def _submit_components(self, order: _Order, parts: Sequence[Part]) -> JobInFlight:
        """Submit a heterogeneous job: a component for each part, with room for its own pods alone."""
        group, gang = order.group, order.gang
        found = [await job_options(group, gang, part.pods, self.world, self.owners) for part in parts]
        fitted = jobspec.component_options([options for options, _ in found])
        requests = [
            self._request(order, part, options, slots=len(part.pods), minimum=len(part.pods))
            for part, options in zip(parts, fitted, strict=True)
        ]
        return await self._send(order, *requests)

    def forget(self, group: GroupKey) -> None:
        """Record that a group needs no job any more. One that Slurm took after all ends with its pods."""
        for key in self.world.inflight.forget(group):
            self.world.slurm.forget_submission(key)

    def _slurm_restarted(self) -> None:
        """Try again: it may have another configuration."""
        self._busy_until = 0.0

    def _require_volumes(self, pods: Sequence[Pod]) -> None:
        """Raise `NotYet` if a pod could not start wherever it is placed: it must not keep nodes while it waits."""
        for pod in pods:
            if waiting := self.world.wanted_volumes(pod).waiting:
                raise NotYet(waiting, reason="WaitingForVolume")

    async def _planned(
        self, order: _Order, options: JobOptions, parts: Sequence[Part], excluded: Sequence[Excluded]
    ) -> tuple[Part, ...]:
        """Choose between a plain and a heterogeneous job for pods that differ."""
        server = await self.world.slurm.server()
        everything = dict.fromkeys(constraints for part in parts for constraints in part.constraints)
        chosen = components.plan(
            [replace(part, fit=it.feasible) for part, it in zip(parts, excluded, strict=True)],
            shared=self.exclusions.of(everything).feasible,
            slots=order.step.slots,
            exclusive=_exclusive(order.defaults, options),
            components=order.defaults.placeholder == "external" and server.has(Feature.EXTERNAL_COMPONENTS),
            release=server.release,
        )
        log.info("submitting a gang of pods that differ", group=str(order.group), components=len(chosen))
        return chosen

    def _request(self, order: _Order, part: Part, options: JobOptions, *, slots: int, minimum: int) -> JobRequest:
        group, defaults, pods = order.group, order.defaults, part.pods
        exclusive = _exclusive(defaults, options)
        marked = marker.mark(
            group,
            order.gang.uid,
            pods,
            cluster=self.world.cluster,
            slots=slots,
            packed=slots > 1 and not exclusive,
            shared=not exclusive,
            role=part.role,
        )
        return jobspec.request(
            name=pods[0].metadata.name if group.single else group.name,
            comment=marker.comment(pods, asked=options.comment),
            admin_comment=marker.write(marked),
            shapes=[self.exclusions.shape(pod) for pod in pods],
            slots=slots,
            minimum=minimum,
            options=options,
            defaults=defaults,
            excluded_nodes=part.excluded,
            deadline_seconds=order.deadline,
            script=placeholder.SCRIPT if defaults.placeholder == "batch" else None,
            pod_priority=pods[0].spec.priority if pods[0].spec.priority_class_name else None,
        )

    async def _send(self, order: _Order, *requests: JobRequest) -> JobInFlight:
        world, group, gang, step = self.world, order.group, order.gang, order.step
        known = [_attempt(ours) for ours in world.jobs.of_group(group) if ours.marker.uid == gang.uid]
        flight = world.inflight.begin(
            group,
            gang.uid,
            slots=step.slots,
            uids=[pod.metadata.uid for pod in step.pods],
            attempt=max((it + 1 for it in known), default=0),
        )
        world.slurm.note_newest(world.poller.newest)
        try:
            submission = await world.slurm.submit(*requests, key=flight.key)
        except IsthmusError as error:
            refused = isinstance(error, Terminal | Wait)
            if refused:
                world.inflight.refused(flight)
            # That there is no room at once is an answer, not an error.
            if not (refused and requests[0].immediate):
                self.metrics.submit_failed(error)
            raise
        world.inflight.taken(flight, submission.job_id, requests, nodes=submission.nodes)
        return flight

    async def _chosen(self) -> Defaults:
        if not self.choose:
            return self.defaults
        external = (await self.world.slurm.server()).has(Feature.EXTERNAL_JOBS)
        return replace(self.defaults, placeholder="external" if external else "batch")


def _attempt(ours: OurJob) -> int:
    number = (key_of(ours.job.comment) or "").rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _exclusive(defaults: Defaults, options: JobOptions) -> bool:
    return defaults.exclusive if options.exclusive is None else options.exclusive
