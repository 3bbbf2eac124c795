"""Actions in Kubernetes: creates, labels and deletes pods, owns claims, sets finalizers; many at a time.

A few pods are created first, and the first refusal ends it: whatever is wrong with one is wrong with all, and a
quota should not be asked a thousand times.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from isthmus.domain.kube.podtrouble import UNCREATED
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.nodeset import claims
from isthmus.domain.operator.nodeset.actions import DeletePod, SetOwners
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.errors import IsthmusError, Terminal
from isthmus.kube import errors
from isthmus.kube.client import Client
from isthmus.model.meta import Key
from isthmus.model.pod import PODS
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.storage import CLAIMS
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.nodesets.report import Report

T = TypeVar("T")

_MAX_PARALLEL: Final = 48
"""Requests under way at a time: more would only wait in the API server."""

_FIRST_PODS: Final = 4
_MAX_PODS_PER_PASS: Final = 1_000
"""Pods that are created before the status is written again."""

_MAX_NAMED: Final = 3
_NAMESPACE_TERMINATES: Final = "because it is being terminated"
"""Needs no Event: the namespace is being deleted."""


class PodActions:
    """Carries out actions on the pods, the claims and the object of a NodeSet."""

    def __init__(self, kube: Client, report: Report) -> None:
        self._kube = kube
        self._report = report
        self._gate = asyncio.Semaphore(_MAX_PARALLEL)

    # Pods

    async def create(self, template: worker.Template, slots: Sequence[Identity], memory: Memory) -> bool:
        """Create pods, and their claims before them; return whether all were created.

        A refusal is left in the memory.
        """
        nodeset = template.nodeset
        made: list[str] = []
        refused: list[Terminal] = []

        async def one(slot: Identity) -> None:
            if refused:
                return
            try:
                await self._create_one(template, slot, memory)
            except Terminal as error:
                refused.append(error)
            else:
                made.append(slot.pod)

        try:
            for wave in (slots[:_FIRST_PODS], slots[_FIRST_PODS:_MAX_PODS_PER_PASS]):
                _raise_first(await self._all(wave, one))
        finally:
            if made:
                self._report.event(nodeset, "SuccessfulCreate", f"created {_listed(made)}")
        if refused:
            why = _why(refused[0])
            memory.refused(why, generation=nodeset.metadata.generation, now=time.monotonic())
            if _NAMESPACE_TERMINATES not in why:
                self._report.event(nodeset, "FailedCreate", f"{UNCREATED}: {why}", warning=True)
        else:
            memory.accepted()
        return len(made) == len(slots)

    async def _create_one(self, template: worker.Template, slot: Identity, memory: Memory) -> None:
        nodeset = template.nodeset
        marks = template.metadata["labels"]
        if nodeset.spec.volume_claim_templates:
            labels = {key: marks[key] for key in worker.labels(nodeset, "-")}
            for claim in claims.manifests(nodeset, slot, labels):
                with suppress(errors.AlreadyExists):
                    await self._kube.create(CLAIMS, claim)
        try:
            await self._kube.create(PODS, template.fill(slot))
        except errors.AlreadyExists:
            await self._adopt(Key(nodeset.metadata.namespace, slot.pod), template)
        memory.made(slot.pod, slot.hostname, now=time.monotonic())

    async def _adopt(self, key: Key, template: worker.Template) -> None:
        """Take over the pod that has our name, if it has no owner; fail if it belongs to another."""
        found = await self._kube.get(PODS, key)
        owner = found.metadata.controller
        nodeset = template.nodeset.metadata
        if owner is not None and owner.uid == nodeset.uid:
            return
        labels = template.metadata["labels"]
        identifying = worker.labels(template.nodeset, "-")
        if owner is None and all(found.metadata.labels.get(it) == labels[it] for it in identifying):
            patch = {
                "metadata": {
                    "resourceVersion": found.metadata.resource_version,
                    "ownerReferences": template.metadata["ownerReferences"],
                }
            }
            await self._kube.merge_patch(PODS, key, patch)
            return
        raise Terminal(
            f"pod {key} already exists and does not belong to this NodeSet",
            remedy="delete it, or give the NodeSet another name",
        )

    async def delete(self, nodeset: NodeSet, going: Iterable[DeletePod], memory: Memory) -> None:
        """Delete pods, each only if it still has its uid."""
        wanted = [it for it in going if not memory.is_deleted(it.uid)]
        failures = await self._all(wanted, lambda it: self._delete_one(nodeset, it, memory))
        reasons: dict[tuple[str, str], list[str]] = {}
        for action, failure in zip(wanted, failures, strict=True):
            if failure is None:
                reasons.setdefault((action.event, action.why), []).append(action.name)
        for (event, why), gone in reasons.items():
            self._report.event(nodeset, event, f"deleted {_listed(gone)}: {why}")
        _raise_first(failures)

    async def _delete_one(self, nodeset: NodeSet, action: DeletePod, memory: Memory) -> None:
        key = Key(nodeset.metadata.namespace, action.name)
        with suppress(errors.NotFound, errors.Conflict):  # it is gone, or another, or has changed: look again
            await self._kube.delete(PODS, key, uid=action.uid, version=action.version)
            memory.deleted(action.uid, now=time.monotonic())
            if action.cause:
                self._report.count_replacement(nodeset, action.cause)

    async def label(self, nodeset: NodeSet, changes: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        """Change the metadata of pods, given by name and uid."""

        async def patch(change: tuple[str, str, dict[str, Any]]) -> None:
            name, uid, metadata = change
            with suppress(errors.NotFound, errors.Conflict):
                key = Key(nodeset.metadata.namespace, name)
                await self._kube.merge_patch(PODS, key, {"metadata": {"uid": uid, **metadata}})

        _raise_first(await self._all(changes, patch))

    # Claims

    async def set_owners(self, steps: Sequence[SetOwners]) -> None:
        """Set the owners of claims, which take them along."""

        async def patch(step: SetOwners) -> None:
            metadata = {
                "resourceVersion": step.version,
                "ownerReferences": msgspec.to_builtins(step.owners) or None,
            }
            with suppress(errors.NotFound):
                await self._kube.merge_patch(CLAIMS, step.key, {"metadata": metadata})

        _raise_first(await self._all(steps, patch))

    # The NodeSet itself

    async def set_finalizers(self, nodeset: NodeSet, finalizers: Sequence[str]) -> None:
        """Set all finalizers, if the NodeSet is still at the version that was looked at."""
        meta = nodeset.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": list(finalizers) or None}}
        with suppress(errors.NotFound):
            await self._kube.merge_patch(NODESETS, meta.key, patch)

    async def _all(self, items: Sequence[T], do: Callable[[T], Awaitable[None]]) -> list[IsthmusError | None]:
        """Do something for all, some at a time; return what went wrong with each."""

        async def one(item: T) -> IsthmusError | None:
            async with self._gate:
                try:
                    await do(item)
                except IsthmusError as error:
                    return error
            return None

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
        return [task.result() for task in tasks]


def _raise_first(failures: Iterable[IsthmusError | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise failure


def _why(error: IsthmusError) -> str:
    return f"{error.what} ({error.remedy})" if error.remedy else error.what


def _listed(pods: Sequence[str]) -> str:
    """Name pods, or the first few of many."""
    if len(pods) == 1:
        return f"pod {pods[0]}"
    more = len(pods) - _MAX_NAMED
    return f"{len(pods)} pods: {', '.join(pods[:_MAX_NAMED])}{f' and {more} more' if more > 0 else ''}"
