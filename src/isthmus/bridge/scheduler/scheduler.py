"""Places pods by Slurm.

    pod appears ──► decide ──► submit ─┐
                      ▲                │ the poller sees the job start
                      │                ▼
                      └── bind ◄── the nodes that Slurm gave

The unit of work is a group of pods (`domain.grouping`). Each pass gathers the group's pods and jobs from caches,
asks `domain.placement` what to do, and does it. What it remembers between passes is only what the caches cannot
show yet: jobs whose submission was answered but that the poller has not read, and jobs that it is taking back. All
else is found again after a restart.
"""

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Final, NoReturn

import structlog
from msgspec.structs import replace

from isthmus import names
from isthmus.bridge import withdrawal
from isthmus.bridge.cache.feasible import Excluded, FeasibleNodes
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler import asking
from isthmus.bridge.scheduler.asking import Gang
from isthmus.bridge.scheduler.binding import Binder
from isthmus.bridge.scheduler.holding import GiveBack, Hold
from isthmus.bridge.scheduler.submitting import Submitting
from isthmus.bridge.scheduler.telling import PATIENCE, Teller, why
from isthmus.bridge.withdrawal import Withdrawals
from isthmus.domain.bridge import components, jobstates, placement, reasons
from isthmus.domain.bridge.components import Part
from isthmus.domain.bridge.grouping import GroupKey, group_of
from isthmus.domain.bridge.jobask import Ask
from isthmus.domain.bridge.placement import Allocation, Bind, Cancel, Gather, Submit
from isthmus.domain.languages import hostlist
from isthmus.errors import Retry, Terminal, Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job, JobRequest
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.submission import duplicates

log = structlog.get_logger()

_WORKERS: Final = 32
_SETTLE: Final = 0.2
"""Seconds without a new member after which a gang that may grow counts as complete."""

_AVOIDED: Final = 60.0
"""Seconds for which a node is left out that Kubernetes could not use. By then it may."""

_CANCELLED: Final = 30.0
_CANCELLED_REMEDY: Final = "the pod is deleted as soon as the bridge's controllers run"

_REFUSED: Final = 60.0
"""Seconds after which something that was refused is tried again, since an administrator may have allowed it."""


class Scheduler:
    """The scheduler of one process; `workers` are for its manager."""

    def __init__(
        self,
        world: World,
        submitting: Submitting,
        *,
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._world = world
        self._metrics = metrics.scheduling()
        self._metrics.waiting.set_function(lambda: len(self._waiting))
        self._now = now
        self._submitting = submitting
        self._clock = clock
        self._owners = Owners(world.kube)
        self._ledger = Ledger(world.pods, world.nodes)
        self._feasible = FeasibleNodes(world.nodes, world.map, world.slurm_nodes, world.capacity)
        self._binder = Binder(world, self._ledger, self._feasible, clock=clock, now=now)
        self._recorder = recorder
        self._teller = Teller(world.kube, recorder, clock=clock)
        self._withdrawals = Withdrawals(world)
        self._here_before: set[str] = set()
        """Pods that were there when we began to work: somebody before us may have submitted jobs for them."""
        self._waiting: dict[GroupKey, float] = {}
        """Since when a group waits, whatever for."""
        self._sizes: dict[GroupKey, tuple[int, float]] = {}
        """How many pods a gang has that is about to be submitted, and since when it is so many."""
        self._avoided: dict[GroupKey, dict[str, float]] = {}
        """Slurm nodes that Kubernetes could not use for a group, and until when they are left out."""
        self.controller: Controller[GroupKey] = Controller(
            "scheduler", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.pods.on_change(self._pod_changed)
        world.jobs.on_change(self._job_changed)
        world.poller.on_restart(self._slurm_restarted)
        self._feasible.on_change(self._nodes_changed)
        world.claims.on_change(self._things_changed)
        world.policies.on_change(self._things_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self,)

    async def run(self) -> None:
        """Place pods until drained or cancelled."""
        self._here_before = {pod.metadata.uid for pod in self._world.pods.values() if self._world.ours(pod)}
        await self.controller.run()

    def drain(self) -> None:
        """Begin nothing new."""
        self.controller.drain()

    # What wakes a group

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is None or not self._world.ours(pod):
            return
        group = group_of(pod)
        if after is None or after.finished or after.leaving:
            if group.single and (before is None or not before.bound):
                self._forget(group)
            # What it leaves behind, a free slot or a gang that is no longer complete, matters to its gang alone.
            if not group.single:
                self.controller.queue.add(group)
        elif not after.bound and (before is None or _matters(before, after)):
            self.controller.queue.add(group)
        elif after.bound and group.single:
            self._forget(group)

    def _job_changed(self, _job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        # They may be of two groups: a slurmctld that lost a job gives its id to another.
        for ours in (before, after):
            if ours is not None:
                self.controller.queue.add(ours.marker.group)

    def _wake(self, group: GroupKey, after: float) -> None:
        self.controller.queue.add(group, after=after, priority=-1)

    def _slurm_restarted(self) -> None:
        for group in self._world.inflight.awaited_groups():
            self._wake(group, 0.0)

    def _nodes_changed(self) -> None:
        for group in self._waiting:
            self.controller.queue.add(group, priority=-1)

    def _things_changed(self, *_: object) -> None:
        for group in self._waiting:
            if not self._world.jobs.of_group(group):
                self.controller.queue.add(group, priority=-1)

    def _forget(self, group: GroupKey) -> None:
        for known in (self._waiting, self._sizes, self._avoided):
            known.pop(group, None)
        self._submitting.forget(group)

    # One pass

    async def reconcile(self, group: GroupKey) -> None:
        """Do what is to be done for a group now."""
        pods = self._world.members(group)
        loose = [pod for pod in pods if not (pod.bound or pod.finished or pod.leaving)]
        if not loose and (group.single or not pods):
            self._forget(group)
            return
        try:
            settled = self._is_settled(group, pods)
            # The job of a gang carries the uid of its object, and one of that name may have been made anew.
            gang = await asking.gang_of(group, pods, self._owners, fresh=settled)
            await self._advance(group, gang, pods, settled=settled)
        except GiveBack as error:
            await self._give_back(group, pods, error)
        except Terminal as error:
            await self._tell(group, loose, "SlurmRefused", why(error), warning=True)
            raise Wait(error.what, after=_REFUSED) from error
        except Hold as error:
            await self._tell(group, loose, error.reason, why(error))
            raise
        except Retry as error:
            if not self._world.poller.contact.in_touch:
                await self._tell(group, loose, "SlurmUnreachable", why(error), warning=True)
            raise

    async def _advance(self, group: GroupKey, gang: Gang, pods: Sequence[Pod], *, settled: bool) -> None:
        jobs = await self._allocations(group, gang, pods)
        steps = placement.decide(pods, jobs, gang.demand, avoided=self._unusable(group, pods))
        if not any(isinstance(step, Submit) for step in steps):
            self._sizes.pop(group, None)
        for step in steps:
            self._metrics.decisions(type(step).__name__.lower()).inc()
            match step:
                case Bind():
                    with self._metrics.steps("bind").time():
                        await self._binder.bind(step, wake=partial(self.controller.queue.add, group))
                    self._waiting.pop(group, None)
                    self._note_placement(step)
                case Submit():
                    self._require_its_jobs_known(gang, pods)
                    await self._respect_cancellation(group, gang, step)
                    if not settled:
                        self._let_settle(group, pods)
                    with self._metrics.steps("submit").time():
                        await self._submit(group, gang, step)
                case Cancel(job_id=job_id, why=reason):
                    await self._take_back(group, job_id, reason)
                case Gather():
                    gated = f"; {step.gated} are held by scheduling gates" if step.gated else ""
                    message = f"{step.there} of {step.minimum} pods of {group} are there{gated}"
                    await self._tell(group, pods, "WaitingForGang", message)
                case placement.Queue():
                    await self._tell_of_queue(group, step.job_id, step.pods)

    def _note_placement(self, step: Bind) -> None:
        for seat in step.seats:
            created = seat.pod.metadata.creation_timestamp
            if created:
                # Kubernetes writes whole seconds; the other end is as coarse as that.
                self._metrics.placement.observe(max(0.0, self._now().timestamp() - created.timestamp()))

    async def _allocations(self, group: GroupKey, gang: Gang, pods: Sequence[Pod]) -> list[Allocation]:
        """Gather the group's living jobs, the oldest first: those that the caches have, then those to come."""
        family = [it for it in self._world.jobs.of_group(group) if it.marker.uid == gang.uid]
        living = [it for it in family if jobstates.living(it.job.job_state)]
        surplus = {job.job_id for job in duplicates(it.job for it in living)} if len(living) > 1 else ()
        # Of jobs with one key, the pod controller ends all but one.
        usable = [it for it in living if it.job_id not in surplus and not await self._withdrawals.covers(it)]
        found: list[Allocation] = [_allocation(ours) for ours in usable]
        found += await self._unseen(group, gang, seen={it.job_id for it in family})
        deserted = await self._deserted(group, found, pods)
        return [job for job in found if job.whole not in deserted]

    async def _unseen(self, group: GroupKey, gang: Gang, *, seen: Collection[int]) -> list[Allocation]:
        """Gather the jobs that were submitted and that no cache shows yet, without those that Slurm has lost."""
        inflight, found = self._world.inflight, list[Allocation]()
        for flight in inflight.awaited(group, gang.uid, seen=seen):
            if not inflight.check_in(flight):
                if not await self._world.job_reader.has(flight):
                    log.warning("a submitted job is gone", group=str(group), job=flight.job_id)
                    inflight.release(flight)
                    continue
                inflight.checked(flight)
            self._wake(group, inflight.check_in(flight))
            found.append(flight.allocation)
        return found

    async def _deserted(self, group: GroupKey, jobs: Sequence[Allocation], pods: Sequence[Pod]) -> set[int]:
        """Take jobs back that have no pods any more, and name them.

        Only where somebody would take their slots: whoever looks after jobs ends them as their pods ended.
        """
        placeless = any(not (pod.bound or pod.finished or pod.leaving) for pod in pods)
        if group.single or not placeless or any(map(self._ledger.assumes, pods)):
            return set()
        used = {job.whole for job in jobs if not placement.is_deserted(job, pods)}
        deserted = {job.whole for job in jobs} - used
        for job_id in deserted:
            await self._take_back(group, job_id, "its pods are gone")
        return deserted

    async def _take_back(self, group: GroupKey, job_id: int, why_: str) -> None:
        log.info("taking a job back", group=str(group), job=job_id, why=why_)
        await self._withdrawals.take_back(job_id, why_)
        if flight := self._world.inflight.get(job_id):
            self._world.inflight.release(flight)

    # Acting

    def _is_settled(self, group: GroupKey, pods: Sequence[Pod]) -> bool:
        """Whether a group that is to be submitted has not grown for a moment. A pod alone does not grow."""
        if group.single:
            return True
        size, since = self._sizes.get(group, (0, 0.0))
        return size == len(pods) and self._clock() - since >= _SETTLE

    def _let_settle(self, group: GroupKey, pods: Sequence[Pod]) -> NoReturn:
        """Let a gang grow for a moment: its pods come one by one, and one job is to hold them all."""
        if self._sizes.get(group, (0, 0.0))[0] != len(pods):
            self._sizes[group] = len(pods), self._clock()
        raise Hold(f"{group} may still grow", reason="WaitingForGang", after=_SETTLE)

    def _require_its_jobs_known(self, gang: Gang, pods: Sequence[Pod]) -> None:
        """Raise `Hold` as long as a group may have a job that has not been read: those of a start may be many."""
        if self._here_before.isdisjoint(pod.metadata.uid for pod in pods):
            return
        made = [it.metadata.creation_timestamp for it in (*pods, *filter(None, [gang.object]))]
        if not self._world.poller.knows_jobs_since(min(it.timestamp() if it else 0.0 for it in made)):
            raise Hold("the jobs in Slurm are still being read", reason="ReadingSlurm")

    async def _respect_cancellation(self, group: GroupKey, gang: Gang, step: Submit) -> None:
        """Submit nothing for pods whose job somebody has cancelled: the pod controller makes them go."""
        family = [it for it in self._world.jobs.of_group(group) if it.marker.uid == gang.uid]
        uids = (pod.metadata.uid for pod in step.pods)
        job_id = await withdrawal.withdrawn_for(self._world, family, uids) if family else None
        if job_id is not None:
            raise Hold(
                f"Slurm job {job_id} was cancelled",
                reason="SlurmJobCancelled",
                after=_CANCELLED,
                remedy=_CANCELLED_REMEDY,
            )

    async def _submit(self, group: GroupKey, gang: Gang, step: Submit) -> None:
        world = self._world
        self._binder.require_volumes(step.pods)
        ask, deadline = await asking.ask_of(group, gang, step.pods, world, self._owners)
        parts = components.parts_of(step.pods, self._binder.constraints)
        excluded = [self._feasible.excluded_by_any(part.constraints) for part in parts]
        if unfit := next((it for it in excluded if not it.feasible), None):
            await self._tell(group, step.pods, "Unschedulable", unfit.why, warning=True)
            self._waiting.setdefault(group, self._clock())
            return
        asks = [ask]
        if len(parts) > 1:
            parts = await self._planned(group, ask, step, parts, excluded)
            if len(parts) > 1:
                found = [await asking.ask_of(group, gang, part.pods, world, self._owners) for part in parts]
                asks = [ask for ask, _ in found]
        parts = tuple(self._with_exclusions(group, part) for part in parts)
        flight = await self._submitting.submit(group, gang.uid, step, parts, asks=asks, deadline=deadline)
        self._sizes.pop(group, None)
        self._waiting.setdefault(group, self._clock())
        self.controller.queue.add(group, after=PATIENCE, priority=-1)
        if flight.at_once and await world.job_reader.started(flight) and flight.awaited:
            self.controller.queue.add(group)

    def _avoided_nodes(self, group: GroupKey) -> frozenset[str]:
        return frozenset(node for node, until in self._avoided.get(group, {}).items() if until > self._clock())

    async def _planned(
        self, group: GroupKey, ask: Ask, step: Submit, parts: Sequence[Part], excluded: Sequence[Excluded]
    ) -> tuple[Part, ...]:
        """Choose between a plain and a heterogeneous job for pods that differ."""
        terms = await self._submitting.terms(ask)
        everything = dict.fromkeys(constraints for part in parts for constraints in part.constraints)
        chosen = components.plan(
            [replace(part, fit=it.feasible) for part, it in zip(parts, excluded, strict=True)],
            shared=self._feasible.excluded_by_any(everything).feasible,
            slots=step.slots,
            exclusive=terms.exclusive,
            components=terms.components,
            release=terms.release,
        )
        log.info("submitting a gang of pods that differ", group=str(group), components=len(chosen))
        return chosen

    def _with_exclusions(self, group: GroupKey, part: Part) -> Part:
        unfit = self._feasible.excluded_by_any(part.constraints).hostlist
        return replace(part, excluded=self._with_avoided(group, unfit))

    def _with_avoided(self, group: GroupKey, unfit: str) -> str:
        """Add to the nodes that do not fit those that could not be used, for a while."""
        return _joined(unfit, self._avoided_nodes(group))

    async def _keep_exclusions(self, group: GroupKey, job: Job, pods: Sequence[Pod]) -> None:
        """Tell Slurm which nodes a waiting job may not have, if that changed since it was told."""
        excluded = self._excluded(pods)
        wanted = self._with_avoided(group, excluded.hostlist)
        for until in self._avoided.get(group, {}).values():
            if (left := until - self._clock()) > 0:
                self._wake(group, left)
        enough = self._with_avoided(group, excluded.lasting)
        told = job.excluded_nodes or ""
        if excluded.feasible and not _same_hosts(told, wanted) and not _same_hosts(told, enough):
            await self._world.slurm.update_job(job.job_id, JobRequest(excluded_nodes=(wanted,)))

    def _excluded(self, pods: Sequence[Pod]) -> Excluded:
        """Tell which nodes a job for all of these pods must not get."""
        return self._feasible.excluded_by_any(dict.fromkeys(self._binder.constraints(pod) for pod in pods))

    def _unusable(self, group: GroupKey, pods: Sequence[Pod]) -> frozenset[str]:
        """Name the Slurm nodes that a gang does without while some of its pods run."""
        loose = [pod for pod in pods if not (pod.bound or pod.finished or pod.leaving)]
        if group.single or not loose or not any(pod.bound and not pod.finished for pod in pods):
            return frozenset()
        return frozenset(self._unfit(loose)) | self._avoided_nodes(group)

    def _unfit(self, pods: Sequence[Pod]) -> Collection[str]:
        """Name the Slurm nodes that none of these pods can use."""
        kinds = dict.fromkeys(self._binder.constraints(pod) for pod in pods)
        found = [self._feasible.misfits(each) for each in kinds]
        return frozenset(found[0]).intersection(*found[1:]) if len(found) > 1 else next(iter(found), ())

    async def _give_back(self, group: GroupKey, pods: Sequence[Pod], error: GiveBack) -> None:
        """Do without a node that Kubernetes cannot use, and ask Slurm again without it.

        A job that nobody uses yet is given back as a whole. One by which other pods run goes on with that slot
        left free, and the pod that found no place gets a further job.
        """
        loose = [pod for pod in pods if not (pod.bound or pod.finished or pod.leaving)]
        if error.slurm_node not in self._unfit(loose):
            self._avoided.setdefault(group, {})[error.slurm_node] = self._clock() + _AVOIDED
            self._wake(group, _AVOIDED)
        self._metrics.returned.inc()
        self._recorder.event(PODS, error.pod, names.RETURNED_REASON, error.what, warning=True, action="Scheduling")
        log.warning("a node cannot be used", group=str(group), job=error.job_id, why=error.what)
        if self._is_used(error.job_id, pods):
            self._wake(group, _SETTLE)
        else:
            await self._take_back(group, error.job_id, error.what)
        await self._tell(group, loose, names.RETURNED_REASON, error.what, warning=True)

    def _is_used(self, job_id: int, pods: Sequence[Pod]) -> bool:
        """Whether a pod runs by this job, or is being bound to a node of the group's, which may be its."""
        ours = self._world.jobs.get(job_id)
        family = self._world.jobs.of_group(ours.marker.group) if ours else ()
        # Components are one job.
        ids = {job_id, *(it.job_id for it in family if ours and it.job.queue_id == ours.job.queue_id)}
        return any(
            self._ledger.assumes(pod) or (placement.placed_by(pod) in ids and not pod.finished) for pod in pods
        )

    # Telling

    async def _tell_of_queue(self, group: GroupKey, job_id: int, pods: Sequence[Pod]) -> None:
        ours = self._world.jobs.get(job_id)
        if ours is None:
            return
        await self._keep_exclusions(group, ours.job, pods)
        if not ours.job.state_reason:
            # It is known from its submission alone. When its reason has been read, we come back.
            self._world.poller.reread(ours.job.queue_id)
            return
        found = reasons.sentence(ours.job.state_reason, job_id=job_id)
        held = found.outlook is reasons.Outlook.HELD
        message = f"Slurm job {job_id} waits because {found.text} ({ours.job.state_reason or 'None'})"
        if start := reasons.expected_start(ours.job, now=self._now().timestamp()):
            message += f", and is expected to start at {start:%Y-%m-%d %H:%M} UTC"
        if found.remedy and found.outlook is not reasons.Outlook.PASSES:
            message += f". {found.remedy[:1].upper()}{found.remedy[1:]}"
        await self._tell(group, pods, "SlurmHeld" if held else "SlurmPending", message, warning=held)

    async def _tell(
        self, group: GroupKey, pods: Iterable[Pod], reason: str, message: str, *, warning: bool = False
    ) -> None:
        now = self._clock()
        since = self._waiting.setdefault(group, now)
        patience = PATIENCE - (now - since)
        if patience > 0:
            self.controller.queue.add(group, after=patience, priority=-1)
            return
        loose = [pod for pod in pods if not pod.bound]
        if pause := await self._teller.tell(loose, reason, message, warning=warning):
            self.controller.queue.add(group, after=pause, priority=-1)


@lru_cache(maxsize=1024)
def _joined(excluded: str, avoided: frozenset[str]) -> str:
    return hostlist.fold([*hostlist.expand(excluded), *sorted(avoided)]) if avoided else excluded


@lru_cache(maxsize=1024)
def _same_hosts(one: str, other: str) -> bool:
    # Thousands of waiting jobs have few lists between them.
    return hostlist.same_hosts(one, other)


def _allocation(ours: OurJob) -> Allocation:
    job, marker = ours.job, ours.marker
    slots = marker.slots
    nodes = placement.slot_nodes(job, slots, packed=marker.packed) if jobstates.running(job.job_state) else ()
    uids = frozenset(marker.uids)
    if not marker.role:
        return Allocation(job.job_id, slots, nodes, uids)
    whole = int(job.het_job_id.value or 0)
    return Allocation(job.job_id, slots, nodes, uids, whole, marker.role, frozenset(marker.pods))


def _matters(before: Pod, after: Pod) -> bool:
    """Whether a change of a pod without a node is more than an echo of what we told it."""
    return _placement_of(before) != _placement_of(after)


def _placement_of(pod: Pod) -> Hashable:
    return (
        pod.metadata.uid,
        pod.spec.node_name,
        len(pod.spec.scheduling_gates),
        tuple(sorted(pod.metadata.annotations.items())),
        pod.leaving,
    )
