"""Places pods on the nodes that Slurm allocates.

    pod appears ──► decide ──► submit ─┐
                      ▲                │ the poller sees the job start
                      │                ▼
                      └── bind ◄── the nodes that Slurm gave

The unit of work is a group of pods (`domain.bridge.groups`). Each pass gathers the group's pods and jobs from
caches, lets `domain.bridge.placement` decide, and acts. Between passes it remembers only what the caches cannot
show yet: jobs whose submission was answered but that the poller has not read, and jobs that it is cancelling. All
else is found again after a restart.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import structlog

from isthmus import names
from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.binder import Binder
from isthmus.bridge.scheduler.claims import ClaimAllocator
from isthmus.bridge.scheduler.conditions import PATIENCE, NodeRejected, NoNodeFits, NotYet, PodConditions, why
from isthmus.bridge.scheduler.exclusions import AVOIDED, Exclusions
from isthmus.bridge.scheduler.gang import Gang, gang_of
from isthmus.bridge.scheduler.jobs import GroupJobs
from isthmus.bridge.scheduler.submitter import JobSubmitter
from isthmus.clock import utc_now
from isthmus.domain.bridge import jobstates, placement, reasons
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.bridge.placement import Bind, Cancel, Gather, Seat, Submit
from isthmus.errors import Retry, Terminal, Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.dra import ResourceClaim
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job, JobRequest
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics

log = structlog.get_logger()

_WORKERS: Final = 32
_SETTLE: Final = 0.2
"""Seconds without a new member after which a gang that may grow counts as complete."""

_REFUSED: Final = 60.0
"""Seconds after which something that was refused is tried again, since an administrator may have allowed it."""


class Scheduler:
    """The scheduler of one process; `workers` are for its manager, `defaults` and `choose` for its submitter."""

    def __init__(
        self,
        world: World,
        defaults: Defaults,
        *,
        choose: bool = False,
        nodes_on_demand: bool = False,
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._nodes_on_demand = nodes_on_demand
        self._metrics = metrics.scheduling()
        self._clock = clock
        self._owners = Owners(world.kube)
        ledger = Ledger(world.pods, world.nodes, backs=world.devices.backs)
        feasible = FeasibleNodes(world.nodes, world.map, world.slurm_nodes, world.capacity, world.devices)
        self._claims = claims = ClaimAllocator(world, clock=clock)
        self._exclusions = Exclusions(world, feasible, exclusive=defaults.exclusive, clock=clock)
        self._submitter = JobSubmitter(
            world,
            self._owners,
            self._exclusions,
            claims,
            metrics=self._metrics,
            defaults=defaults,
            choose=choose,
            clock=clock,
        )
        self._binder = Binder(world, ledger, feasible, claims, on_bound=self._count_bound, clock=clock, now=utc_now)
        self._recorder = recorder
        self._conditions = PodConditions(world.kube, recorder, clock=clock)
        self._jobs = GroupJobs(world, ledger, wake=self._wake)
        self._waiting: dict[GroupKey, float] = {}
        """Since when a group waits, whatever for."""
        self._started: dict[int, float | None] = {}
        """When a job was first seen to run; None once its pods are bound."""
        self._sizes: dict[GroupKey, tuple[int, float]] = {}
        """How many pods a gang has that is about to be submitted, and since when it is so many."""
        self.controller: Controller[GroupKey] = Controller(
            "scheduler", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.pods.on_change(self._pod_changed)
        world.jobs.on_change(self._job_changed)
        world.poller.on_restart(self._slurm_restarted)
        feasible.on_change(self._nodes_changed)
        world.claims.on_change(self._claim_changed)
        world.policies.on_change(self._things_changed)
        world.devices.classes.on_change(self._things_changed)
        world.devices.claims.on_change(self._resource_claim_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self,)

    async def run(self) -> None:
        """Place pods until drained or cancelled."""
        self._jobs.begin()
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

    def _job_changed(self, job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        self._note_start(job_id, before, after)
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

    def _resource_claim_changed(self, key: Key, before: object, after: ResourceClaim | None) -> None:
        """Wake the pods of a claim that was made, or of whose devices a driver said something."""
        if after is not None and (before is None or after.status.devices):
            self._wake_users(self._world.pods.by("resource claim", key))

    def _claim_changed(self, key: Key, *_: object) -> None:
        self._wake_users(self._world.pods.by("claim", key))

    def _wake_users(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if not pod.bound and self._world.ours(pod):
                self.controller.queue.add(group_of(pod))

    def _forget(self, group: GroupKey) -> None:
        self._wait_no_more(group)
        self._sizes.pop(group, None)
        self._exclusions.forget(group)
        self._submitter.forget(group)

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
            gang = await gang_of(group, pods, self._owners, fresh=settled)
            await self._advance(group, gang, pods, settled=settled)
        except NodeRejected as error:
            await self._give_back(group, pods, error)
        except Terminal as error:
            await self._tell(group, loose, "SlurmRefused", why(error), warning=True)
            raise Wait(error.what, after=_REFUSED) from error
        except NotYet as error:
            await self._tell(group, loose, error.reason, why(error))
            raise
        except Retry as error:
            if not self._world.poller.contact.in_touch:
                await self._tell(group, loose, "SlurmUnreachable", why(error), warning=True)
            raise

    async def _advance(self, group: GroupKey, gang: Gang, pods: Sequence[Pod], *, settled: bool) -> None:
        jobs = await self._jobs.of(group, gang, pods)
        steps = placement.decide(pods, jobs, gang.demand, avoided=self._exclusions.unusable(group, pods))
        if not any(isinstance(step, Submit) for step in steps):
            self._sizes.pop(group, None)
        for step in steps:
            self._metrics.decisions(type(step).__name__.lower()).inc()
            match step:
                case Bind():
                    with self._metrics.steps("bind").time():
                        await self._binder.bind(step, wake=partial(self.controller.queue.add, group))
                    self._wait_no_more(group)
                    self._count_bind(step)
                case Submit():
                    self._jobs.require_known(gang, pods)
                    await self._return_devices(gang, step.pods)
                    await self._jobs.require_not_cancelled(group, gang, step)
                    if not settled:
                        self._let_settle(group, pods)
                    with self._metrics.steps("submit").time():
                        await self._submit(group, gang, step)
                case Cancel(job_id=job_id, why=reason):
                    await self._jobs.take_back(group, job_id, reason)
                case Gather():
                    await self._return_devices(gang, pods)
                    gated = f"; {step.gated} are held by scheduling gates" if step.gated else ""
                    message = f"{step.there} of {step.minimum} pods of {group} exist{gated}"
                    await self._tell(group, pods, "WaitingForGang", message)
                case placement.Queue():
                    await self._return_devices(gang, step.pods)
                    await self._tell_of_queue(group, step.job_id, step.pods)

    async def _return_devices(self, gang: Gang, pods: Iterable[Pod]) -> None:
        """Release what pods got by a job that is no more: while they wait for another, Slurm gives it to others."""
        devices = self._world.devices
        for pod in pods:
            if not (pod.bound or pod.finished) and devices.left_with(pod):
                self._jobs.require_known(gang, [pod])
                await self._claims.take_back(pod)

    # Counting

    def _count_bound(self, seat: Seat) -> None:
        created = seat.pod.metadata.creation_timestamp
        if created:
            # Kubernetes writes whole seconds; the other end is as coarse as that.
            waited = max(0.0, utc_now().timestamp() - created.timestamp())
            self._metrics.wait.of(*self._world.metric_labels(seat.pod, seat.job_id)).observe(waited)

    def _count_bind(self, step: Bind) -> None:
        """Count how long the jobs of a step had their nodes before all its pods were bound; once for each job."""
        for job_id in {seat.job_id for seat in step.seats}:
            if (since := self._started.get(job_id)) is not None:
                self._metrics.bind.observe(self._clock() - since)
                self._started[job_id] = None

    def _note_start(self, job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        """Note when a job is first seen to run. One that ran before this process began has its pods already."""
        if after is None or not jobstates.holds_nodes(after.job.job_state):
            self._started.pop(job_id, None)
            return
        # Booting is not ours to hurry, and a job that is resumed has its pods.
        was_running = before is not None and _runs_or_rests(before)
        mark = after.marker
        was_known = before is not None or self._world.inflight.submitted(job_id, mark.group, mark.uid)
        if jobstates.running(after.job.job_state) and was_known and not was_running:
            self._started.setdefault(job_id, self._clock())

    def _wait_from_now(self, group: GroupKey) -> float:
        """Count a group as waiting; return since when it is."""
        if group not in self._waiting:
            self._waiting[group] = self._clock()
            self._metrics.waiting.of(group.namespace).inc()
        return self._waiting[group]

    def _wait_no_more(self, group: GroupKey) -> None:
        if self._waiting.pop(group, None) is not None:
            self._metrics.waiting.of(group.namespace).dec()

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
        raise NotYet(f"more pods of {group} may be created", reason="WaitingForGang", after=_SETTLE)

    async def _submit(self, group: GroupKey, gang: Gang, step: Submit) -> None:
        try:
            flight = await self._submitter.submit(group, gang, step)
        except NoNodeFits as error:
            await self._tell(group, step.pods, "Unschedulable", error.what, warning=True)
            return
        self._sizes.pop(group, None)
        self._wait_from_now(group)
        self._wake(group, PATIENCE)
        if flight.at_once and await self._world.job_reader.started(flight) and flight.awaited:
            self._started.setdefault(flight.job_id, self._clock())
            self.controller.queue.add(group)

    async def _give_back(self, group: GroupKey, pods: Sequence[Pod], error: NodeRejected) -> None:
        """Do without a node that Kubernetes cannot use, and ask Slurm again without it.

        A job that no pod uses yet is cancelled as a whole. One that other pods use continues with that slot
        left free, and the pod that found no place gets a further job.
        """
        loose = [pod for pod in pods if not (pod.bound or pod.finished or pod.leaving)]
        if error.slurm_node not in self._exclusions.unfit(loose):
            self._exclusions.avoid(group, error.slurm_node)
            self._wake(group, AVOIDED)
        self._metrics.returned.of(*self._world.metric_labels(error.pod, error.job_id)).inc()
        self._recorder.event(PODS, error.pod, names.RETURNED_REASON, error.what, warning=True, action="Scheduling")
        log.warning("a node cannot be used", group=str(group), job=error.job_id, why=error.what)
        if self._jobs.is_used(error.job_id, pods):
            self._wake(group, _SETTLE)
        else:
            await self._jobs.take_back(group, error.job_id, error.what)
        await self._tell(group, loose, names.RETURNED_REASON, error.what, warning=True)

    # Telling

    async def _tell_of_queue(self, group: GroupKey, job_id: int, pods: Sequence[Pod]) -> None:
        ours = self._world.jobs.get(job_id)
        if ours is None:
            return
        for pause in self._exclusions.ends(group):
            self._wake(group, pause)
        if (excluded := self._exclusions.news(group, ours.job, pods)) is not None:
            await self._world.slurm.update_job(job_id, JobRequest(excluded_nodes=(excluded,)))
        if not ours.job.state_reason:
            # It is known from its submission alone. When its reason has been read, we come back.
            self._world.poller.reread(ours.job.queue_id)
            return
        message, held = reasons.waiting(ours.job, now=utc_now().timestamp())
        # What autoscalers of machines look for is this word.
        pending = "Unschedulable" if self._wants_nodes(ours.job) else "SlurmPending"
        await self._tell(group, pods, "SlurmHeld" if held else pending, message, warning=held)

    def _wants_nodes(self, job: Job) -> bool:
        """Whether autoscalers are to make machines for the pods of a job."""

        def nodes() -> int:
            partitions = set((job.partition or "").split(","))
            return sum(not partitions.isdisjoint(it.partitions) for it in self._world.slurm_nodes.values())

        return self._nodes_on_demand and reasons.waits_for_nodes(job, nodes=nodes)

    async def _tell(
        self, group: GroupKey, pods: Iterable[Pod], reason: str, message: str, *, warning: bool = False
    ) -> None:
        patience = PATIENCE - (self._clock() - self._wait_from_now(group))
        if patience > 0:
            self.controller.queue.add(group, after=patience, priority=-1)
            return
        loose = [pod for pod in pods if not pod.bound]
        if pause := await self._conditions.tell(loose, reason, message, warning=warning):
            self.controller.queue.add(group, after=pause, priority=-1)


def _runs_or_rests(ours: OurJob) -> bool:
    states = ours.job.job_state
    return jobstates.running(states) or jobstates.phase(states) is Phase.SUSPENDED


def _matters(before: Pod, after: Pod) -> bool:
    """Whether a change of a pod without a node is more than our own condition."""
    return _placement_of(before) != _placement_of(after)


def _placement_of(pod: Pod) -> Hashable:
    return (
        pod.metadata.uid,
        pod.spec.node_name,
        len(pod.spec.scheduling_gates),
        tuple(sorted(pod.metadata.annotations.items())),
        pod.leaving,
        pod.status.resource_claim_statuses,
    )
