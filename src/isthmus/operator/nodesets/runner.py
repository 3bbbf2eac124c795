"""Carries out what was decided for a NodeSet: one list of actions, in its order.

    in Kubernetes   `pod_actions`
    in Slurm        `slurm_actions`

No pod is deleted that has a job. Before one goes or may be evicted, Slurm is asked once more, for all pods
together: since the decision, an administrator may have resumed a node, and it may have begun a job. A
suspended job does not even show in the state of its node, so these are looked for by themselves. If Slurm does not
answer, the pod stays.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

import msgspec
import structlog

from isthmus import names
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.nodeset.actions import (
    Action,
    CreatePods,
    DeletePod,
    DeleteRecord,
    Protect,
    ReviseRecord,
    SaveVictims,
    SetDeadline,
    SetFinalizers,
    SetOwners,
    Unprotect,
)
from isthmus.domain.operator.nodeset.decision import Decision
from isthmus.domain.operator.nodeset.protection import MARKS
from isthmus.domain.operator.nodeset.view import View
from isthmus.operator.nodesets import slurm_actions
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.nodesets.pod_actions import PodActions
from isthmus.operator.nodesets.report import Report
from isthmus.operator.slurms import Slurm

log = structlog.get_logger()

T = TypeVar("T")
Parting = TypeVar("Parting", DeletePod, Unprotect)

_SLURM_TIMEOUT_S: Final = 20.0
"""For actions of one kind: a Slurm that hangs must not hold up what needs Kubernetes alone."""


class ActionRunner:
    """Carries out actions; neighbours of one kind are one request."""

    def __init__(self, pod_actions: PodActions, report: Report) -> None:
        self._pod_actions = pod_actions
        self._report = report

    async def run(
        self,
        view: View,
        decided: Decision,
        *,
        template: worker.Template | None,
        slurm: Slurm | None,
        memory: Memory,
    ) -> bool:
        """Return whether every pod was created that should be."""
        pods, nodeset, complete = self._pod_actions, view.nodeset, True
        memory.keep_slurm_refusals(map(type, decided.actions))
        for alike in (list(neighbours) for _, neighbours in groupby(decided.actions, type)):
            match alike[0]:
                case SetFinalizers(finalizers):
                    await pods.set_finalizers(nodeset, finalizers)
                case CreatePods(slots):
                    complete = template is not None and await pods.create(template, slots, memory)
                case SaveVictims():
                    await self._report.write(view, decided, memory, at_once=True)
                case SetOwners():
                    await pods.set_owners(_of(SetOwners, alike))
                case DeletePod():
                    unused, others = _sorted_out(view, _of(DeletePod, alike))
                    await pods.delete(nodeset, unused, memory)
                    await pods.delete(nodeset, await _still_free(view, slurm, others), memory)
                case Unprotect() if nodeset.spec.workload_disruption_protection:
                    free = await self._free_to_evict(view, slurm, _of(Unprotect, alike))
                    await pods.label(nodeset, [_metadata(it) for it in free])
                case Protect() | Unprotect() | SetDeadline():
                    await pods.label(nodeset, [_metadata(it) for it in alike])
                case _ if slurm is not None and view.slurm_in_touch:
                    await self._run_in_slurm(view, slurm, alike, memory)
        return complete

    @staticmethod
    async def _free_to_evict(view: View, slurm: Slurm | None, going: Sequence[Unprotect]) -> list[Unprotect]:
        unused, others = _sorted_out(view, going)
        return [*unused, *await _still_free(view, slurm, others)]

    async def _run_in_slurm(self, view: View, slurm: Slurm, actions: Sequence[Action], memory: Memory) -> None:
        now = time.monotonic()
        memory.forgotten((it.slurm_name for it in _of(DeleteRecord, actions)), now=now)
        memory.revised(_of(ReviseRecord, actions), now=now)
        async with asyncio.timeout(_SLURM_TIMEOUT_S):
            refusal = await slurm_actions.run(slurm.client, view.nodeset, actions, self._report)
        # Records are tried once a minute, and an older Slurm knows no topology: nobody has to see to that.
        if not isinstance(actions[0], DeleteRecord | ReviseRecord):
            memory.slurm_refused(type(actions[0]), refusal)
        memory.wrote_slurm_at = time.monotonic()
        slurm.hurry()


def _sorted_out(view: View, going: Sequence[Parting]) -> tuple[list[Parting], list[Parting]]:
    """Split into pods in which nothing can run, and those of which Slurm has to be asked."""
    unused = {pod.uid for pod in view.pods if not pod.node_name or pod.finished}
    return [it for it in going if it.uid in unused], [it for it in going if it.uid not in unused]


async def _still_free(view: View, slurm: Slurm | None, going: Sequence[Parting]) -> list[Parting]:
    """Ask Slurm once more, and keep only pods without jobs."""
    if not going or slurm is None:
        return []
    nodes = {pod.uid: pod.slurm_name for pod in view.pods}
    behind = [nodes[it.uid] for it in going if isinstance(it, DeletePod) and it.left_behind]
    async with asyncio.timeout(_SLURM_TIMEOUT_S):
        free = await slurm_actions.free_nodes(slurm.client, [nodes[it.uid] for it in going], left_behind=behind)
    for it in going:
        if nodes[it.uid] not in free:
            log.info("pod stays: its node is in use in Slurm", pod=it.name, node=nodes[it.uid])
    return [it for it in going if nodes[it.uid] in free]


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


def _of(kind: type[T], actions: Iterable[Action]) -> list[T]:
    return [it for it in actions if isinstance(it, kind)]
