"""The hands of the NodeSet controller in Slurm: drains, takes back, forgets, and deletes no pod that has a job.

Before a pod goes, Slurm is asked once more, for all pods together: since it was decided, somebody may have taken a
node back into service, and it may have begun a job.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog

from isthmus import names
from isthmus.domain.hostlist import fold
from isthmus.domain.nodeset.actions import (
    Action,
    CancelJobs,
    DeletePod,
    DeleteRecord,
    DeleteReservation,
    Drain,
    Protect,
    RequeueJobs,
    ReviseRecord,
    SaveReservation,
    SetDeadline,
    Undrain,
    Unprotect,
)
from isthmus.domain.nodeset.drains import is_free
from isthmus.domain.nodeset.view import View
from isthmus.errors import Terminal
from isthmus.kube.recorder import Recorder
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slurm import NodeChange
from isthmus.operator.nodesets.acting import Hands
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.slurms import Slurm
from isthmus.slurm.client import Client
from isthmus.slurm.errors import NotFound
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

_PER_REQUEST: Final = 500
"""Nodes in one request: slurmctld answers nobody else while it changes them."""


class SlurmSide:
    """Does to Slurm, and to pods by Slurm's leave, what was decided."""

    def __init__(self, recorder: Recorder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._clock = clock

    async def act(
        self, view: View, slurm: Slurm | None, actions: Sequence[Action], *, hands: Hands, memory: Memory
    ) -> None:
        """Do it all, in order; what lies side by side and is of one kind goes together."""
        for kind, alike in _runs(actions):
            if kind is DeletePod:
                going = await self._still_free(view, slurm, [it for it in alike if isinstance(it, DeletePod)])
                await hands.delete(view.nodeset, going, memory)
            elif kind in {Protect, Unprotect, SetDeadline}:
                await hands.label(view.nodeset, [_metadata(it) for it in alike])
            elif slurm is not None and view.slurm_in_touch:
                await self._tell_slurm(view.nodeset, slurm, alike)
                memory.wrote_slurm_at = self._clock()
                slurm.hurry()

    async def _still_free(self, view: View, slurm: Slurm | None, going: list[DeletePod]) -> list[DeletePod]:
        """Ask Slurm once more, and keep only those pods with which no job goes."""
        pods = {pod.uid: pod for pod in view.pods}
        sure = [it for it in going if view.abandoned or not pods[it.uid].node_name or pods[it.uid].finished]
        others = [it for it in going if it not in sure]
        if not others or slurm is None:
            return sure
        listing = await slurm.client.nodes()
        records = {node.name: node for node in listing.nodes} if listing else {}
        for it in others:
            record = records.get(pods[it.uid].slurm_name)
            if record is None or is_free(record):
                sure.append(it)
            else:
                log.info("a pod stays, for its node has changed in Slurm", pod=it.name, state=record.state)
        return sure

    async def _tell_slurm(self, nodeset: NodeSet, slurm: Slurm, actions: Sequence[Action]) -> None:
        for action in _together(actions):
            try:
                reason, note = await _do(slurm.client, action)
            except Terminal as error:
                # Slurm will not have it as it is, and the others must not wait for that.
                log.warning("refused by Slurm", nodeset=str(nodeset.metadata.key), error=error.what)
                self._recorder.event(NODESETS, nodeset, "RefusedBySlurm", error.what, warning=True)
                continue
            log.info("nodeset in Slurm", nodeset=str(nodeset.metadata.key), did=reason, note=note)
            if reason:
                self._recorder.event(NODESETS, nodeset, reason, note)


async def _do(client: Client, action: Action) -> tuple[str, str]:  # noqa: PLR0911 - one for each action
    """Do one thing; return the reason and the note of its Event, if it deserves one."""
    match action:
        case Drain(nodes, reason):
            await _update(client, nodes, NodeChange(state=("DRAIN",), reason=reason))
            return "NodeDrain", f"drained {_listed(nodes)}: {reason}"
        case Undrain(nodes, reason):
            await _update(client, nodes, NodeChange(state=("UNDRAIN",), reason=reason))
            return "NodeUndrain", f"took {_listed(nodes)} back into service"
        case ReviseRecord(nodes, features, topology):
            given = None if features is None else features or ("",)
            change = NodeChange(features=given, features_act=given, topology_str=topology)
            await _update(client, nodes, change)
        case DeleteRecord(nodes, why):
            with suppress(NotFound):
                await client.delete_node(nodes)
            return "SlurmNodeForgotten", f"{nodes} was deleted in Slurm: {why}"
        case RequeueJobs():
            await _requeue(client, action)
            return "JobsRequeued", f"requeued {len(action.jobs)} jobs: {action.why}"
        case CancelJobs(jobs, why):
            for job in jobs:
                with suppress(NotFound):
                    await client.cancel_job(job)
            return "JobsCancelled", f"cancelled {len(jobs)} jobs: {why}"
        case SaveReservation(request):
            await client.save_reservation(request)
            return "ReservationSaved", f"saved reservation {request.name} in Slurm"
        case DeleteReservation(name):
            with suppress(NotFound):
                await client.delete_reservation(name)
            return "ReservationDeleted", f"deleted reservation {name} in Slurm"
    return "", ""


async def _update(client: Client, nodes: Sequence[str], change: NodeChange) -> None:
    for start in range(0, len(nodes), _PER_REQUEST):
        await client.update_nodes(nodes[start : start + _PER_REQUEST], change)


async def _requeue(client: Client, action: RequeueJobs) -> None:
    """Put jobs back into the queue; where Slurm knows no way to, by setting down nodes that have no others."""
    if (await client.server()).has(Feature.REQUEUE):
        for job in action.jobs:
            with suppress(NotFound):
                await client.requeue_job(job)
        return
    if action.cleared:
        reason = f"{names.DRAIN_REASON_PREFIX}Pods are pending termination for requeue"
        await _update(client, action.cleared, NodeChange(state=("DOWN",), reason=reason))


def _metadata(action: Action) -> tuple[str, str, dict[str, Any]]:
    match action:
        case Protect(name, uid):
            return name, uid, {"labels": {names.POD_PROTECT_LABEL: "true"}}
        case Unprotect(name, uid):
            return name, uid, {"labels": {names.POD_PROTECT_LABEL: None}}
        case SetDeadline(name, uid, deadline):
            written = msgspec.to_builtins(deadline)
            return name, uid, {"annotations": {names.POD_DEADLINE_ANNOTATION: written}}
    raise AssertionError(action)


def _together(actions: Sequence[Action]) -> list[Action]:
    """Make one action of many records that go for one cause: Slurm takes a host list where it takes a name."""
    causes: dict[str, list[str]] = {}
    others: list[Action] = []
    for action in actions:
        if isinstance(action, DeleteRecord):
            causes.setdefault(action.why, []).append(action.slurm_name)
        else:
            others.append(action)
    return [*others, *(DeleteRecord(fold(nodes), why) for why, nodes in causes.items())]


def _runs(actions: Iterable[Action]) -> list[tuple[type, list[Action]]]:
    """Put neighbours of one kind together."""
    runs: list[tuple[type, list[Action]]] = []
    for action in actions:
        if not runs or runs[-1][0] is not type(action):
            runs.append((type(action), []))
        runs[-1][1].append(action)
    return runs


def _listed(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes, {nodes[0]} first"
