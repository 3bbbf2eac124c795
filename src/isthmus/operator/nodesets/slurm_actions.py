"""Actions in Slurm: drains nodes and takes them back, deletes records, ends jobs, keeps reservations.

Before a node is shut or opened, Slurm is asked once more: an administrator may have shut it by now, and
that reason stays.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from isthmus import names
from isthmus.domain.elastic.decision import phase_of
from isthmus.domain.languages.hostlist import expand, fold
from isthmus.domain.operator.nodeset.actions import (
    Action,
    CancelJobs,
    DeleteRecord,
    DeleteReservation,
    Drain,
    RequeueJobs,
    ReviseRecord,
    SaveReservation,
    Undrain,
)
from isthmus.domain.operator.nodeset.drains import is_free, is_ours, is_shut
from isthmus.errors import Terminal
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import NodeChange
from isthmus.operator.nodesets.report import Report
from isthmus.slurm.client import Client
from isthmus.slurm.errors import AlreadyDone, NotFound, NotNow
from isthmus.slurm.submission import base_id
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

_MAX_NODES_PER_REQUEST: Final = 500
"""slurmctld answers no other request while it changes them."""

_SUSPENDED: Final = "SUSPENDED"


async def run(client: Client, nodeset: NodeSet, actions: Sequence[Action], report: Report) -> str:
    """Carry out actions of one kind; return why Slurm refuses one of them, if it does."""
    refusal = ""
    for action in _together(await _not_for_others(client, actions)):
        try:
            reason, note = await _do(client, action)
        except Terminal as error:
            # Slurm does not take it as it is, and the others must not wait for that.
            report.event(nodeset, "RefusedBySlurm", error.line, warning=True)
            refusal = error.line
            continue
        if isinstance(action, Drain):
            report.count_drains(nodeset, action)
        if reason:
            report.event(nodeset, reason, note)
    return refusal


async def _not_for_others(client: Client, actions: Sequence[Action]) -> list[Action]:
    """Ask Slurm once more, and leave nodes alone that others have shut since the decision."""
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


async def free_nodes(client: Client, wanted: Sequence[str], *, left_behind: Collection[str] = ()) -> frozenset[str]:
    """Ask Slurm which of these nodes have no job and get none, or are unknown to it.

    One that is started anew and whose pod was `left_behind` may have a job, which has not begun.
    """
    listing = await client.nodes()
    records = {node.name: node for node in listing.nodes} if listing else {}
    anew = {name for name in left_behind if name in records and phase_of(records[name]) == "starting"}
    free = anew | {name for name in wanted if name not in records or is_free(records[name])}
    held = await _held_by_suspended_jobs(client) if free else frozenset()
    return frozenset(free - held)


async def _held_by_suspended_jobs(client: Client) -> frozenset[str]:
    """The nodes of suspended jobs: Slurm calls such a node idle, though the job's processes are there."""
    ids = {base_id(it.job_id) for it in await client.job_states() if _SUSPENDED in it.state}
    jobs = await client.details(ids) if ids else ()
    return frozenset(
        name for job in jobs if job.nodes and _SUSPENDED in job.job_state for name in expand(job.nodes)
    )


async def _do(client: Client, action: Action) -> tuple[str, str]:  # noqa: PLR0911 - one for each action
    """Carry out one action; return the reason and the note of its Event, if any."""
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
    for start in range(0, len(nodes), _MAX_NODES_PER_REQUEST):
        # Those that exist are changed even if another is gone; the next reading shows that.
        with suppress(NotFound):
            await client.update_nodes(nodes[start : start + _MAX_NODES_PER_REQUEST], change)


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


def _listed(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes, {nodes[0]} first"
