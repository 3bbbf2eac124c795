"""Carries out what was decided about a node on both sides, and reports it by Events, metrics and the log."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import structlog

from isthmus import names
from isthmus.bridge.nodes.registrar import Registrar
from isthmus.clock import utc_now
from isthmus.domain.bridge.noderules import (
    Action,
    Complaint,
    Cordon,
    Delete,
    Drain,
    Mark,
    Register,
    Report,
    Retaint,
    Uncordon,
    Undrain,
    Update,
    slurm_facts,
)
from isthmus.errors import Terminal, Wait
from isthmus.kube import errors as kube_errors
from isthmus.kube.client import Client as KubeClient
from isthmus.kube.recorder import Recorder
from isthmus.model.node import NODES, Node
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import NodeChange
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.errors import AlreadyExists, NotFound

log = structlog.get_logger()

_AT_ONCE: Final = 8
"""Requests to Slurm that are under way at a time."""

_CATCH_UP: Final = 1.0
"""In so many seconds our picture of Slurm is up to date again."""

_IN_USE: Final = frozenset({"IDLE", "MIXED", "ALLOCATED"})
"""How much of a node jobs use."""

_KINDS: Final = (Register, Update, Drain, Undrain, Delete, Cordon, Uncordon, Mark, Retaint, Report)
_MANAGER: Final = "isthmus-nodes"


class NodeActions:
    """The hands of the node controller."""

    def __init__(self, kube: KubeClient, slurm: SlurmClient, *, recorder: Recorder, metrics: Metrics) -> None:
        self._kube = kube
        self._slurm = slurm
        self._recorder = recorder
        self._registrar = Registrar(slurm)
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._counts = {kind: metrics.node_action(kind.__name__.lower()) for kind in _KINDS}

    async def act(self, node: Node | None, slurm: SlurmNode | None, actions: Sequence[Action]) -> Complaint | None:
        """Do it all, in order; return what Slurm says if it refuses something, and leave the rest undone.

        `node` and `slurm` are what the decision was about. Nothing is done to what has changed since.
        """
        # Kubernetes comes first: a refusal of Slurm does not prevent it.
        if node is not None:
            try:
                await self._act_in_kubernetes(node, actions)
            except kube_errors.NotFound:
                return None  # It was deleted just now, and we will hear of that.
        in_slurm = [it for it in actions if not isinstance(it, Cordon | Uncordon | Mark | Retaint | Report)]
        if slurm is not None and in_slurm:
            await self._check(slurm, idle_or_not=any(isinstance(it, Delete) for it in in_slurm))
        for action in in_slurm:
            try:
                await self._do(action)
            except (AlreadyExists, NotFound) as error:
                raise Wait(f"Slurm has changed since it was read: {error.what}", after=_CATCH_UP) from error
            except Terminal as error:
                remedy = f" ({error.remedy})" if error.remedy else ""
                return Complaint("RefusedBySlurm", f"{error.what}{remedy}")
            self._tell(node, action)
        return None

    def complain(self, node: Node | None, complaints: Iterable[Complaint]) -> None:
        """Report what only people can fix."""
        for complaint in complaints:
            log.warning("node needs attention", reason=complaint.reason, note=complaint.note)
            if node is not None:
                self._recorder.event(NODES, node, complaint.reason, complaint.note, warning=True)

    async def _check(self, seen: SlurmNode, *, idle_or_not: bool) -> None:
        """Make sure that Slurm's node is what we think it is: a drain that is a second old must not be undone.

        Where jobs come and go, hardly any two readings agree on how much of a node they use; and when a single node
        is read, that is as of the last list. It must not hold up a drain; only who is deleted has to be idle, or
        not, as we think.
        """
        async with self._gate:
            try:
                found = _facts(await self._slurm.node(seen.name), idle_or_not=idle_or_not)
            except NotFound:
                found = ()
        if found != _facts(seen, idle_or_not=idle_or_not):
            raise Wait(f"Slurm's node {seen.name} has changed since it was read", after=_CATCH_UP)

    async def _do(self, action: Action) -> None:
        if isinstance(action, Register):
            await self._registrar.register(action.wanted)
            return
        async with self._gate:
            match action:
                case Update():
                    await self._slurm.update_node(action.name, _change(action))
                case Drain(name, reason):
                    await self._slurm.update_node(name, NodeChange(state=("DRAIN",), reason=reason))
                case Undrain(name):
                    await self._slurm.update_node(name, NodeChange(state=("UNDRAIN",)))
                case Delete(name):
                    await self._slurm.delete_node(name)
                    self._registrar.forget(name)

    async def _act_in_kubernetes(self, node: Node, actions: Sequence[Action]) -> None:
        if patch := _patch(node, actions):
            await self._kube.merge_patch(NODES, node.metadata.name, patch)
            for action in actions:
                if isinstance(action, Cordon | Uncordon | Mark | Retaint):
                    self._tell(node, action)
        for action in actions:
            if isinstance(action, Report):
                await self._report(node, action)

    async def _report(self, node: Node, report: Report) -> None:
        told = {
            "type": names.NODE_GRES_CONDITION,
            "status": str(report.compatible),
            "reason": _told(report)[0],
            "message": report.message,
            "lastTransitionTime": utc_now(),
        }
        body = {"metadata": {"name": node.metadata.name}, "status": {"conditions": [told]}}
        await self._kube.apply(NODES, body, manager=_MANAGER, force=True, subresource="status")
        self._tell(node, report)

    def _tell(self, node: Node | None, action: Action) -> None:
        self._counts[type(action)].inc()
        reason, note = _told(action)
        log.info("node", did=reason, note=note)
        if node is not None:
            self._recorder.event(NODES, node, reason, note, warning=_is_warning(action))


def _is_warning(action: Action) -> bool:
    return isinstance(action, Cordon) or (isinstance(action, Report) and not action.compatible)


def _facts(node: SlurmNode, *, idle_or_not: bool) -> tuple[object, ...]:
    state = node.state if idle_or_not else tuple(it for it in node.state if it not in _IN_USE)
    return slurm_facts(msgspec.structs.replace(node, state=state))


def _change(update: Update) -> NodeChange:
    features = None if update.features is None else update.features or ("",)
    return NodeChange(
        extra=update.record.write(),
        features=features,
        features_act=features,
        topology_str=update.topology,
        address=(update.address,) if update.address else None,
        hostname=(update.hostname,) if update.hostname else None,
        reason="" if update.clear_reason else None,
    )


def _patch(node: Node, actions: Iterable[Action]) -> dict[str, Any]:
    """Write all changes of the Kubernetes node as one, on the condition that it has not changed since."""
    annotations: dict[str, str | None] = {}
    spec: dict[str, Any] = {}
    for action in actions:
        match action:
            case Cordon(mark):
                spec["unschedulable"] = True
                annotations[names.NODE_CORDON_ANNOTATION] = mark
            case Uncordon():
                spec["unschedulable"] = None
                annotations[names.NODE_CORDON_ANNOTATION] = None
            case Mark(mark):
                annotations[names.NODE_CORDON_ANNOTATION] = mark
            case Retaint(taints):
                spec["taints"] = msgspec.to_builtins(taints) or None
    if not annotations and not spec:
        return {}
    metadata: dict[str, Any] = {"resourceVersion": node.metadata.resource_version}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _told(action: Action) -> tuple[str, str]:  # noqa: C901, PLR0911 - one for each action
    """Make an Event of an action: its reason, and a sentence."""
    match action:
        case Register(wanted):
            size = wanted.record
            gres = f", {size.gres}" if size.gres else ""
            told = f"registered in Slurm as {wanted.name}: {size.cpus} CPUs, {size.memory} MiB{gres}"
            return "SlurmNodeRegistered", told
        case Update(name):
            return "SlurmNodeUpdated", f"updated {name} in Slurm"
        case Drain(name, reason):
            return "SlurmNodeDrained", f"drained {name} in Slurm: {reason}"
        case Undrain(name):
            return "SlurmNodeResumed", f"resumed {name} in Slurm"
        case Delete(name):
            return "SlurmNodeDeleted", f"deleted {name} in Slurm"
        case Cordon(mark):
            return "CordonedForSlurm", f"cordoned, because it is {mark}"
        case Uncordon():
            return "UncordonedForSlurm", "uncordoned, because its Slurm node was resumed"
        case Mark(mark):
            return "CordonReleased", mark or "no longer drained in Slurm"
        case Retaint(taints):
            ours = [it.effect for it in taints if it.key == names.MANAGED_TAINT]
            return "TaintChanged", f"taint {names.MANAGED_TAINT}: {', '.join(ours) or 'removed'}"
        case Report(compatible, message):
            return ("SlurmCountsDevices" if compatible else "SlurmCountsOtherDevices"), message
