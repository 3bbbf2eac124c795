"""The NodeSet controller: as many worker pods as there should be, each of them a Slurm node.

    power    which nodes of an elastic NodeSet are on                             (power)
    gather   the NodeSet, its pods, their nodes in Kubernetes and in Slurm        (gatherer)
    decide   one list of actions, in order                                        (domain.operator.nodeset.decision)
    act      carry the list out, in Kubernetes and in Slurm                       (runner)
    report   status, conditions and Events                                        (report)

A decision that needs more than the caches hold says so; then that is read from Slurm, and it is decided again. What
needs Kubernetes alone is done before. All is decided from what the caches show and from what this process has just
done itself (memory): nothing is expected, so no wait is without success.
"""

import time
from functools import partial
from typing import Final, Unpack

from isthmus import names
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import worker, workerssh
from isthmus.domain.operator.nodeset.decision import decide, until_settled
from isthmus.errors import Terminal
from isthmus.kube import errors
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.objects import BUDGETS, CONFIGMAPS, SERVICES
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import refusals
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.nodesets.gatherer import Gatherer, SlurmReading
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.nodesets.node_state import NodeStateConditions
from isthmus.operator.nodesets.pod_actions import PodActions
from isthmus.operator.nodesets.power import PowerSync
from isthmus.operator.nodesets.report import Report
from isthmus.operator.nodesets.runner import ActionRunner
from isthmus.operator.nodesets.waker import Waker
from isthmus.operator.sshds import Sshds
from isthmus.operator.world import World
from isthmus.runtime.manager import Worker

_WORKERS: Final = 8
_OURS: Final = frozenset({names.DRAIN_FINALIZER, names.RESERVATION_FINALIZER})
_NAMESPACES: Final[Kind[Partial]] = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)


class NodeSetSync(KindSync[NodeSet]):
    """The NodeSet controller of one process; `workers` are for its manager."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, NODESETS, world.nodesets, workers=_WORKERS, **tools)
        reporter, metrics = tools["reporter"], tools["metrics"]
        self._sshds = Sshds(world, self._applier)
        self._gatherer = Gatherer(world, now=self._now)
        self._report = Report(
            world.nodesets, reporter=reporter, recorder=self._recorder, metrics=metrics.nodesets()
        )
        self._power = PowerSync(
            world.kube,
            states=world.power_states,
            pods=world.pods,
            machines=world.kube_nodes,
            report=self._report,
            reporter=reporter,
            now=self._now,
        )
        self._pod_actions = PodActions(world.kube, self._report)
        self._runner = ActionRunner(self._pod_actions, self._report)
        self._memories: dict[str, Memory] = {}
        self.node_state = NodeStateConditions(world, metrics=metrics)
        Waker(world, self.controller.queue.add)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller, self.node_state.controller)

    async def reconcile(self, key: Key) -> None:
        nodeset = self._world.nodesets.get(key)
        if nodeset is None:
            self._forget_absent()
            self._power.forget(key)
            return
        controller = self._world.controller_of(nodeset)
        deleting = nodeset.metadata.deletion_timestamp is not None
        if deleting and (controller is None or await self._namespace_terminates(key.namespace)):
            await self._release(nodeset)
            return
        if controller is None:
            wrong = f"there is no Controller {nodeset.spec.controller_ref.name!r}"
            await self._report.write_failure(nodeset, wrong)
            return
        try:
            template = self._template(nodeset, controller)
            await self._share(controller)
            complaints = await self._make_sshd(nodeset, controller, template)
            await self._pass(nodeset, controller, template, complaints)
        except Terminal as error:
            await self._report.write_failure(nodeset, error.line)
            if failure := refusals.again(error):
                raise failure from error

    async def _pass(
        self,
        nodeset: NodeSet,
        controller: ControllerPart,
        template: worker.Template | None,
        wrong: tuple[str, ...],
    ) -> None:
        """Gather, decide, act; again with what had to be read for it; then report."""
        slurm = self._world.slurms.of(controller.metadata.key)
        memory = self._memories.setdefault(nodeset.metadata.uid, Memory())
        power = None
        if nodeset.elastic and nodeset.metadata.deletion_timestamp is None:
            power = await self._power.settle(nodeset, slurm, memory)
        look = partial(
            self._gatherer.look,
            nodeset,
            controller,
            template=template,
            slurm=slurm,
            memory=memory,
            wrong=(*wrong, *power.wrong) if power else wrong,
            active=power.active if power else None,
        )
        reading, complete = SlurmReading(), True
        while True:
            view, planned = look(reading=reading)
            decided = decide(view, planned, propagated=self._world.settings.propagated_node_conditions)
            complete &= await self._runner.run(view, decided, template=template, slurm=slurm, memory=memory)
            if decided.final:
                return
            if decided.needs is None or slurm is None:  # without Slurm, nothing can be needed from it
                break
            reading = await self._gatherer.read(slurm, decided.needs, memory, reading)
        self._report.notes(nodeset, decided.notes)
        if decided.actions:
            view, _ = look(reading=SlurmReading())
        unwritten = await self._report.write(view, decided, memory)
        uncreated = None if complete else view.create_after
        unseen = memory.unseen_until(now=time.monotonic())
        powered = power.look_again if power else None
        for pause in (unwritten, uncreated, unseen, powered, decided.look_again, until_settled(view)):
            if pause is not None:
                self.controller.queue.add(nodeset.metadata.key, after=pause)

    def _template(self, nodeset: NodeSet, controller: ControllerPart) -> worker.Template | None:
        """Render the template of pods; one that cannot be rendered must not keep a NodeSet from going."""
        try:
            return self._gatherer.template(nodeset, controller)
        except Terminal:
            if nodeset.metadata.deletion_timestamp is None:
                raise
            return None

    # What pods share

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

    async def _make_sshd(
        self, nodeset: NodeSet, controller: ControllerPart, template: worker.Template | None
    ) -> tuple[str, ...]:
        """Apply what sshd on workers needs, before pods mount it; return what is wrong with it."""
        if nodeset.metadata.deletion_timestamp is not None:
            return ()
        if not nodeset.spec.ssh.enabled:
            await self._remove_sshd(nodeset, template)
            return ()
        marks = worker.labels(nodeset, controller.metadata.name)
        await self._sshds.make_host_keys(nodeset.metadata, marks)
        write = partial(workerssh.config, nodeset, marks, known=self._sshds.known_hosts(controller.metadata.key))
        owners = (owner_reference(NODESETS, nodeset),)
        wrong = await self._sshds.make_config(nodeset.metadata, write, owners=owners)
        return (wrong,) if wrong else ()

    async def _remove_sshd(self, nodeset: NodeSet, template: worker.Template | None) -> None:
        """Remove the settings of sshd when no pod mounts them any more. Host keys stay: clients remember them."""
        meta, there = nodeset.metadata, self._world.configmaps
        pods = self._world.pods.by("owner", meta.uid)
        if template and all(it.metadata.labels.get(names.REVISION_LABEL) == template.revision for it in pods):
            key = Key(meta.namespace, partnames.ssh_config(meta.name))
            await self._applier.remove(CONFIGMAPS, key, there=there, owner=nodeset)

    # The end of a NodeSet

    async def _namespace_terminates(self, namespace: str) -> bool:
        """Whether the namespace is being deleted, and every pod in it with it, whatever we do."""
        try:
            found = await self._world.kube.get(_NAMESPACES, namespace)
        except errors.Forbidden:
            return False  # we may work in one namespace only, and not see it from outside
        except errors.NotFound:
            return True
        return found.metadata.deletion_timestamp is not None

    async def _release(self, nodeset: NodeSet) -> None:
        """Release a NodeSet that can no longer be drained."""
        kept = tuple(it for it in nodeset.metadata.finalizers if it not in _OURS)
        if kept != nodeset.metadata.finalizers:
            await self._pod_actions.set_finalizers(nodeset, kept)

    def _forget_absent(self) -> None:
        present = {it.metadata.uid for it in self._world.nodesets.values()}
        self._memories = {uid: memory for uid, memory in self._memories.items() if uid in present}
        self._gatherer.keep(present)
