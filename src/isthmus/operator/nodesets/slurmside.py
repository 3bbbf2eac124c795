"""The hands of the NodeSet controller in Slurm: drains, takes back, forgets, and deletes no pod that has a job.

Before a pod goes or may be evicted, Slurm is asked once more, for all pods together: since it was decided, somebody
may have taken a node back into service, and it may have begun a job. A job that is suspended does not even show in
the state of its node, so these are looked for by themselves. Before a node is shut, Slurm is asked likewise: an
administrator may have shut it already, for reasons of his own.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import structlog

from isthmus import names
from isthmus.domain.languages.hostlist import expand, fold
from isthmus.domain.operator.nodeset.actions import (
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
from isthmus.domain.operator.nodeset.drains import is_free, is_ours, is_shut
from isthmus.domain.operator.nodeset.protection import MARKS
from isthmus.domain.operator.nodeset.view import View
from isthmus.errors import Terminal
from isthmus.kube.recorder import Recorder
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slurm import NodeChange
from isthmus.operator.nodesets.acting import Hands
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.slurms import Slurm
from isthmus.slurm.client import Client
from isthmus.slurm.errors import AlreadyDone, NotFound, NotNow
from isthmus.slurm.submission import base_id
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

Parting = TypeVar("Parting", DeletePod, Unprotect)

_PER_REQUEST: Final = 500
"""Nodes in one request: slurmctld answers nobody else while it changes them."""

_SUSPENDED: Final = "SUSPENDED"


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
                going = await _still_free(view, slurm, [it for it in alike if isinstance(it, DeletePod)])
                await hands.delete(view.nodeset, going, memory)
            elif kind is Unprotect and view.nodeset.spec.workload_disruption_protection:
                bare = await _still_free(view, slurm, [it for it in alike if isinstance(it, Unprotect)])
                await hands.label(view.nodeset, [_metadata(it) for it in bare])
            elif kind in {Protect, Unprotect, SetDeadline}:
                await hands.label(view.nodeset, [_metadata(it) for it in alike])
            elif slurm is not None and view.slurm_in_touch:
                await self._tell_slurm(view.nodeset, slurm, alike)
                memory.wrote_slurm_at = self._clock()
                slurm.hurry()

    async def _tell_slurm(self, nodeset: NodeSet, slurm: Slurm, actions: Sequence[Action]) -> None:
        for action in _together(await _not_for_others(slurm.client, actions)):
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


async def _not_for_others(client: Client, actions: Sequence[Action]) -> list[Action]:
    """Ask Slurm once more, and leave alone what somebody else has shut since it was decided: his reason stays."""
    if not any(isinstance(it, Drain | Undrain) for it in actions):
        return list(actions)
    listing = await client.nodes()
    theirs = {it.name for it in listing.nodes if is_shut(it) and not is_ours(it.reason)} if listing else set()
    kept: list[Action] = []
    for action in actions:
        if not isinstance(action, Drain | Undrain):
            kept.append(action)
        elif nodes := tuple(name for name in action.slurm_names if name not in theirs):
            kept.append(msgspec.structs.replace(action, slurm_names=nodes))
    return kept


async def _still_free(view: View, slurm: Slurm | None, going: Sequence[Parting]) -> list[Parting]:
    """Ask Slurm once more, and keep only those pods with which no job goes."""
    pods = {pod.uid: pod for pod in view.pods}
    sure = [it for it in going if not pods[it.uid].node_name or pods[it.uid].finished]
    others = [it for it in going if it not in sure]
    if not others or slurm is None:
        return sure
    free = await free_nodes(slurm.client, [pods[it.uid].slurm_name for it in others])
    for it in others:
        if pods[it.uid].slurm_name in free:
            sure.append(it)
        else:
            log.info("a pod stays, for its node is in use in Slurm", pod=it.name, node=pods[it.uid].slurm_name)
    return sure


async def looked_at_again(view: View, slurm: Slurm) -> View:
    """Put in what Slurm says of nodes at this moment, in the place of what it said up to two seconds ago."""
    listing = await slurm.client.nodes()
    records = {node.name: node for node in listing.nodes} if listing else {}
    pods = tuple(msgspec.structs.replace(pod, slurm=records.get(pod.slurm_name)) for pod in view.pods)
    return msgspec.structs.replace(view, pods=pods, slurm_nodes=records)


async def free_nodes(client: Client, wanted: Sequence[str]) -> frozenset[str]:
    """Ask Slurm which of these nodes have no job and get none, or are unknown to it."""
    listing = await client.nodes()
    records = {node.name: node for node in listing.nodes} if listing else {}
    free = {name for name in wanted if name not in records or is_free(records[name])}
    held = await _held_by_suspended_jobs(client) if free else frozenset()
    return frozenset(free - held)


async def _held_by_suspended_jobs(client: Client) -> frozenset[str]:
    """Name the nodes of suspended jobs: Slurm calls such a node idle, though the job's processes are there."""
    ids = {base_id(it.job_id) for it in await client.job_states() if _SUSPENDED in it.state}
    jobs = await client.details(ids) if ids else ()
    return frozenset(
        name for job in jobs if job.nodes and _SUSPENDED in job.job_state for name in expand(job.nodes)
    )


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
            return await _forget(client, nodes, why)
        case RequeueJobs():
            return await _requeue(client, action)
        case CancelJobs(jobs, why):
            for job in jobs:
                with suppress(NotFound, AlreadyDone):
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
        # Those that exist are changed even if another is gone, of which the next reading tells.
        with suppress(NotFound):
            await client.update_nodes(nodes[start : start + _PER_REQUEST], change)


async def _forget(client: Client, nodes: str, why: str) -> tuple[str, str]:
    """Delete records, given as a host list; those that Slurm still needs stay, and are tried again later."""
    try:
        await client.delete_nodes(expand(nodes))
    except NotFound:
        return "", ""  # all others of the list are deleted all the same
    except NotNow as error:
        log.info("a record stays", nodes=nodes, error=error.what)
        return "", ""
    return "SlurmNodeForgotten", f"{nodes} was deleted in Slurm: {why}"


async def _requeue(client: Client, action: RequeueJobs) -> tuple[str, str]:
    """Put jobs back into the queue; where Slurm knows no way to, by setting down nodes that have no others."""
    done = len(action.jobs)
    if (await client.server()).has(Feature.REQUEUE):
        for job in action.jobs:
            try:
                await client.requeue_job(job)
            except (NotFound, NotNow, AlreadyDone):
                done -= 1  # it is over, or waits already
    elif action.cleared:
        reason = f"{names.DRAIN_REASON_PREFIX}Pods are pending termination for requeue"
        await _update(client, action.cleared, NodeChange(state=("DOWN",), reason=reason))
    else:
        return "", ""
    return "JobsRequeued", f"requeued {done} jobs: {action.why}"


def _metadata(action: Action) -> tuple[str, str, dict[str, Any]]:
    match action:
        case Protect(name, uid):
            return name, uid, {field: dict(marks) for field, marks in MARKS.items()}
        case Unprotect(name, uid):
            return name, uid, {field: dict.fromkeys(marks) for field, marks in MARKS.items()}
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
