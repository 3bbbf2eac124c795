"""The NodeSet controller: worker pods as many as there should be, each of them a Slurm node.

    gather   the NodeSet, its pods, their nodes in Kubernetes and in Slurm                    (gathering)
    decide   what is missing and what has no place, without Slurm                             (domain.nodeset.plan)
             what goes, and what has to happen in Slurm before                                (…decision, records)
    act      in Kubernetes                                                                    (acting)
             in Slurm, and to pods by its leave                                               (slurmside)

What needs Kubernetes alone is done whether Slurm answers or not. All is decided anew each time from what the caches
show and from what this process has just done itself (memory): nothing is expected, so no wait is in vain.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from isthmus import names
from isthmus.domain.kube.podtrouble import PATIENCE, UNCREATED, turns
from isthmus.domain.operator.manifests import worker, workerssh
from isthmus.domain.operator.nodeset import claims, status
from isthmus.domain.operator.nodeset.actions import DeletePod
from isthmus.domain.operator.nodeset.decision import Decision, decide
from isthmus.domain.operator.nodeset.deletion import finalizers
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.domain.operator.nodeset.marks import revisions
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import Plan, plan
from isthmus.domain.operator.nodeset.records import records
from isthmus.domain.operator.nodeset.shape import shape_of
from isthmus.domain.operator.nodeset.victims import chosen_before
from isthmus.domain.operator.nodeset.view import Registration, View
from isthmus.errors import Terminal
from isthmus.kube import errors
from isthmus.kube.recorder import Recorder
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.objects import BUDGETS, SERVICES
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts, refusals
from isthmus.operator.applying import Applier, owner_reference
from isthmus.operator.nodesets.acting import Hands
from isthmus.operator.nodesets.gathering import Gatherer
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.nodesets.mirroring import PodMirror
from isthmus.operator.nodesets.slurmside import SlurmSide, looked_at_again
from isthmus.operator.nodesets.waking import Waker
from isthmus.operator.reporting import Reporter
from isthmus.operator.slurms import Slurm
from isthmus.operator.sshds import Sshds
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics

log = structlog.get_logger()

_WORKERS: Final = 8
_STATUS_EVERY: Final = 0.5
"""Seconds between two writes of a status while things are still moving."""

_SLURM_WITHIN: Final = 20.0
"""Seconds for what is done in Slurm at a time: one that hangs must not hold up what needs Kubernetes alone."""

_SOON: Final = 1.0
_JOBS_REST: Final = 20.0
"""So many times as long as a list of all jobs took, none is asked for: it is dear where there are many."""

_OURS: Final = frozenset({names.DRAIN_FINALIZER, names.RESERVATION_FINALIZER})
_NAMESPACES: Final[Kind[Partial]] = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class NodeSetSync:
    """The NodeSet controller of one process; `workers` are for its manager."""

    def __init__(
        self,
        world: World,
        *,
        applier: Applier,
        reporter: Reporter,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], datetime] = _utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._applier = applier
        self._reporter = reporter
        self._recorder = recorder
        self._now = now
        self._clock = clock
        self._gatherer = Gatherer(world)
        self._sshds = Sshds(world, applier)
        self._hands = Hands(world.kube, recorder, clock=clock)
        self._slurm_side = SlurmSide(recorder, clock=clock)
        self._memories: dict[str, Memory] = {}
        guarded = refusals.told(NODESETS, world.nodesets, self.reconcile, reporter=reporter, recorder=recorder)
        self.controller: Controller[Key] = Controller("nodesets", guarded, metrics=metrics, workers=_WORKERS)
        self.mirror = PodMirror(world, metrics=metrics)
        Waker(world, self.controller.queue.add)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self.controller, self.mirror.controller)

    async def reconcile(self, key: Key) -> None:
        """Bring one NodeSet nearer to what it should be."""
        nodeset = self._world.nodesets.get(key)
        if nodeset is None:
            present = {it.metadata.uid for it in self._world.nodesets.values()}
            self._memories = {uid: memory for uid, memory in self._memories.items() if uid in present}
            return
        controller = self._world.controller_of(nodeset)
        deleting = nodeset.metadata.deletion_timestamp is not None
        if deleting and (controller is None or await self._namespace_goes(key.namespace)):
            await self._let_go(nodeset)
            return
        if controller is None:
            await self._report_wrong(nodeset, f"there is no Controller {nodeset.spec.controller_ref.name!r}")
            return
        memory = self._memories.setdefault(nodeset.metadata.uid, Memory())
        try:
            template = self._template(nodeset, controller)
            await self._share(controller)
            await self._settle(nodeset, controller, template, memory)
        except Terminal as error:
            await self._report_wrong(nodeset, error.line)
            if failure := refusals.again(error):
                raise failure from error

    def _template(self, nodeset: NodeSet, controller: ControllerPart) -> worker.Template | None:
        """Make the template of pods; one that cannot be made must not keep a NodeSet from going."""
        try:
            return self._gatherer.template(nodeset, controller)
        except Terminal:
            if nodeset.metadata.deletion_timestamp is None:
                raise
            return None

    async def _settle(
        self, nodeset: NodeSet, controller: ControllerPart, template: worker.Template | None, memory: Memory
    ) -> None:
        """Do first what Kubernetes alone is needed for, and then what Slurm is asked for."""
        complaints = await self._make_sshd(nodeset, controller)
        slurm = self._world.slurms.of(controller.metadata.key)
        view, planned = self._look(nodeset, template, memory, slurm)
        if not view.deleting and (wanted := finalizers(view)) != nodeset.metadata.finalizers:
            # Before the first pod is there: with it, the NodeSet cannot go without draining it.
            await self._hands.set_finalizers(nodeset, wanted)
        stale = records(view, shape_of(nodeset) if template else None)
        if template is not None and self._gatherer.has_keys(controller):
            # A record that does not fit has to go before a pod registers under its name. It is tried once.
            held = memory.first_tried([it.slurm_name for it in stale], now=self._clock())
            await self._make(template, view, [it for it in planned.create if it.hostname not in held], memory)
        await self._hands.delete(nodeset, planned.delete, memory)
        async with asyncio.timeout(_SLURM_WITHIN):
            await self._slurm_side.act(view, slurm, stale, hands=self._hands, memory=memory)
            view = await self._with_reservations(view, slurm)
        if (view.deleting or view.reservations is not None) and await self._finalized(view):
            return
        view, decided = await self._decide(view, slurm, memory)
        complaints += (*planned.complaints, *(it.note for it in decided.notes if it.warning))
        wrong = (*complaints, *self._keyless(controller))
        trouble = status.Trouble(wrong, slurm=self._world.slurms.trouble(controller.metadata.key))
        if decided.victims != nodeset.status.victims:
            # Before anything is done to them: whoever takes over has to choose the same.
            await self._report(view, decided, trouble, memory, at_once=True)
        await self._keep_claims(view, decided)
        sure = [it for it in decided.actions if isinstance(it, DeletePod) and it.version]
        # Who has no node needs nobody's leave.
        await self._hands.delete(nodeset, sure, memory)
        others = (it for it in decided.actions if not (isinstance(it, DeletePod) and it.version))
        actions = (*others, *memory.news(revisions(view), now=self._clock()))
        async with asyncio.timeout(_SLURM_WITHIN):
            await self._slurm_side.act(view, slurm, actions, hands=self._hands, memory=memory)
        for note in decided.notes:
            self._recorder.event(NODESETS, nodeset, note.reason, note.note, warning=note.warning)
        if planned.create or planned.delete or sure or actions:
            view, _ = self._look(nodeset, template, memory, slurm)
        if memory.refusal:
            wrong = (*wrong, f"{UNCREATED}: {memory.refusal}")
        await self._report(view, decided, msgspec.structs.replace(trouble, wrong=wrong), memory)
        for pause in (decided.look_again, planned.look_again, self._until_settled(view, slurm)):
            if pause is not None:
                self.controller.queue.add(nodeset.metadata.key, after=pause)

    # Gathering and deciding

    def _look(
        self, nodeset: NodeSet, template: worker.Template | None, memory: Memory, slurm: Slurm | None
    ) -> tuple[View, Plan]:
        now, nodes = self._now(), self._gatherer.nodes()
        owned = self._gatherer.owned(nodeset)
        unseen = memory.unseen(owned, now=self._clock())
        pods = self._gatherer.pods(nodeset, owned, memory, slurm=slurm, now=now)
        demand = template.demand if template else demand_of({})
        planned = plan(nodeset, pods, nodes=nodes, demand=demand, now=now, made=unseen)
        fresh = slurm is not None and slurm.in_touch and (slurm.as_of or 0.0) > memory.wrote_slurm_at
        unknown = fresh and any(pod.ready and pod.slurm is None for pod in pods)
        view = View(
            nodeset=nodeset,
            pods=pods,
            now=now,
            hash=template.revision if template else nodeset.status.node_set_hash,
            desired=planned.desired,
            kube_nodes=nodes,
            slurm_in_touch=fresh,
            slurm_nodes=slurm.nodes if slurm else {},
            elsewhere=self._gatherer.elsewhere(nodeset, slurm=slurm, now=now) if unknown else Registration(),
            coming=frozenset({*unseen.values(), *(slot.hostname for slot in planned.create)}),
            unwanted=planned.unwanted,
        )
        return view, planned

    async def _with_reservations(self, view: View, slurm: Slurm | None) -> View:
        scheduled = view.nodeset.spec.update_strategy.type == "ScheduledUpdate"
        if not (scheduled or names.RESERVATION_FINALIZER in view.nodeset.metadata.finalizers):
            return view
        if slurm is None or not view.slurm_in_touch:
            return view
        return msgspec.structs.replace(view, reservations=await slurm.client.reservations())

    async def _decide(self, view: View, slurm: Slurm | None, memory: Memory) -> tuple[View, Decision]:
        propagated = self._world.settings.propagated_node_conditions
        view = msgspec.structs.replace(view, jobs_in=max(0.0, memory.jobs_due_at - self._clock()))
        decided = decide(view, propagated=propagated)
        if slurm is not None and view.slurm_in_touch and not set(decided.victims) <= chosen_before(view):
            # A choice is kept, so it is worth a look: a node that was idle a second ago may have a job by now.
            async with asyncio.timeout(_SLURM_WITHIN):
                view = await looked_at_again(view, slurm)
            decided = decide(view, propagated=propagated)
        if decided.wants_jobs and slurm is not None:
            began = self._clock()
            async with asyncio.timeout(3 * _SLURM_WITHIN):  # a list of all jobs takes seconds
                view = msgspec.structs.replace(view, jobs=await slurm.client.jobs())
            memory.jobs_due_at = self._clock() + max(_SOON, _JOBS_REST * (self._clock() - began))
            decided = decide(view, propagated=propagated)
        return view, decided

    def _keyless(self, controller: ControllerPart) -> tuple[str, ...]:
        """Say why there will be no keys for pods, unless somebody does something."""
        found = "" if self._gatherer.has_keys(controller) else parts.no_keys(controller).wrong
        return (found,) if found else ()

    def _until_settled(self, view: View, slurm: Slurm | None) -> float | None:
        """Tell when to look again for what nobody will tell us of."""
        waits = any(pod.ready and not pod.available for pod in view.pods)
        # It answers, but not since we wrote to it: an answer that shows nothing new wakes nobody.
        unread = slurm is not None and slurm.in_touch and not view.slurm_in_touch
        if waits or unread:
            return _SOON
        # Whether a pod that finds no node has been given time enough to find one.
        return PATIENCE if turns((pod.pod for pod in view.pods), now=view.now) else None

    async def _namespace_goes(self, namespace: str) -> bool:
        """Whether the namespace is being deleted, and every pod in it with it, whatever we do."""
        try:
            found = await self._world.kube.get(_NAMESPACES, namespace)
        except errors.Forbidden:
            return False  # we may work in one namespace only, and not see it from outside
        except errors.NotFound:
            return True
        return found.metadata.deletion_timestamp is not None

    # Acting

    async def _make(self, template: worker.Template, view: View, slots: Sequence[Identity], memory: Memory) -> None:
        nodeset = view.nodeset
        if nodeset.spec.volume_claim_templates:
            # A pod whose claim is on its way out would wait for it for ever.
            alive, found = [pod.uid for pod in view.pods], self._world.claims
            slots = [it for it in slots if not claims.blocked(nodeset, it, found, alive=alive)]
        if not slots:
            return
        pause = memory.pause(generation=nodeset.metadata.generation, now=self._clock())
        if pause or not await self._hands.create(template, slots, memory):
            pause = memory.pause(generation=nodeset.metadata.generation, now=self._clock())
            self.controller.queue.add(nodeset.metadata.key, after=pause)

    async def _keep_claims(self, view: View, decided: Decision) -> None:
        if not view.nodeset.spec.volume_claim_templates:
            return
        going = frozenset() if view.deleting else frozenset(decided.leaving_for_good)
        await self._hands.set_owners(claims.retention(view.nodeset, self._world.claims, view.pods, going=going))

    async def _share(self, controller: ControllerPart) -> None:
        """Make what all NodeSets of a cluster share; the last of them takes it along."""
        nodesets = sorted(
            (it for it in self._world.nodesets_of(controller.metadata.key) if not it.metadata.deletion_timestamp),
            key=lambda it: it.metadata.name,
        )
        owners = tuple(owner_reference(NODESETS, it, controller=False) for it in nodesets)
        if owners:
            service, budget = worker.service(controller), worker.budget(controller)
            await self._applier.apply(SERVICES, service, there=self._world.services, owners=owners)
            await self._applier.apply(BUDGETS, budget, there=self._world.budgets, owners=owners)

    async def _make_sshd(self, nodeset: NodeSet, controller: ControllerPart) -> tuple[str, ...]:
        """Make what sshd on workers needs, before there are pods that mount it; tell what is wrong with it."""
        if not nodeset.spec.ssh.enabled or nodeset.metadata.deletion_timestamp is not None:
            return ()
        marks = worker.labels(nodeset, controller.metadata.name)
        await self._sshds.make_host_keys(nodeset.metadata, marks)
        write = partial(workerssh.config, nodeset, marks, known=self._sshds.known_hosts(controller.metadata.key))
        owners = (owner_reference(NODESETS, nodeset),)
        wrong = await self._sshds.make_config(nodeset.metadata, write, owners=owners)
        return (wrong,) if wrong else ()

    async def _finalized(self, view: View) -> bool:
        """Take away the finalizers that have done their work; tell whether the NodeSet is gone with that."""
        nodeset, wanted = view.nodeset, finalizers(view)
        if not set(nodeset.metadata.finalizers) - set(wanted):
            return False
        await self._hands.set_finalizers(nodeset, wanted)
        if not view.deleting or not _OURS.isdisjoint(wanted):
            return False
        self._forget(nodeset)
        return True

    async def _let_go(self, nodeset: NodeSet) -> None:
        """Give up a NodeSet that nobody can drain any more."""
        kept = tuple(it for it in nodeset.metadata.finalizers if it not in _OURS)
        if kept != nodeset.metadata.finalizers:
            await self._hands.set_finalizers(nodeset, kept)
        self._forget(nodeset)

    def _forget(self, nodeset: NodeSet) -> None:
        self._memories.pop(nodeset.metadata.uid, None)
        self._gatherer.forget(nodeset.metadata.uid)

    # Telling

    async def _report(
        self, view: View, decided: Decision, trouble: status.Trouble, memory: Memory, *, at_once: bool = False
    ) -> None:
        """Write the status, unless the last one is too new and nobody waits for this one."""
        nodeset = self._world.nodesets.get(view.nodeset.metadata.key)
        if nodeset is None or nodeset.metadata.uid != view.nodeset.metadata.uid:
            return
        # What is told is of the specification that was looked at, though there may be another by now.
        meta = msgspec.structs.replace(nodeset.metadata, generation=view.nodeset.metadata.generation)
        nodeset = msgspec.structs.replace(nodeset, metadata=meta)
        wait = memory.told_at + _STATUS_EVERY - self._clock()
        if wait > 0 and not at_once:
            self.controller.queue.add(nodeset.metadata.key, after=wait)
            return
        there = {pod.name for pod in view.pods if not pod.leaving}
        victims = tuple(it for it in decided.victims if it in there)
        fields = status.fields(view, selector=worker.selector(nodeset), victims=victims)
        held = status.held(view, trouble, also=(decided.condition,))
        if await self._reporter.report(NODESETS, nodeset, fields, held):
            memory.told_at = self._clock()

    async def _report_wrong(self, nodeset: NodeSet, wrong: str) -> None:
        """Tell why nothing can be done at all; what was told of pods before stays."""
        before = msgspec.to_builtins(nodeset.status)
        fields = {key: value for key, value in before.items() if key not in {"conditions", "observedGeneration"}}
        fields.setdefault("selector", worker.selector(nodeset))
        fields.setdefault("nodeSetHash", "")
        await self._reporter.report(NODESETS, nodeset, fields, status.hopeless(wrong))
        self._recorder.event(NODESETS, nodeset, "SyncFailed", wrong, warning=True)
