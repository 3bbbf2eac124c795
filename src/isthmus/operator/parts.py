"""What the controllers of a cluster's smaller parts share: what wakes them, and the state of their pods."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.kube.conditions import DEGRADED, READY, holds
from isthmus.domain.kube.podtrouble import UNCREATED, Trouble, is_new, of_pods, uncreated
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.kube.store import Hook
from isthmus.model.base import Kind
from isthmus.model.event import EVENTS
from isthmus.model.meta import Condition, HasMeta, Key, Reported, condition
from isthmus.model.objects import STATEFULSETS, Workload
from isthmus.model.pod import Pod
from isthmus.model.slinky import Controller

_AGAIN_S: Final = 10.0
"""Seconds between two attempts to have refused pods created."""

Wake = Callable[[Key], object]


def wakes_owner(kind: Kind[Any], wake: Wake) -> Hook[Any]:
    """Make a hook that wakes the custom resource of this kind to which a changed object belongs."""

    def changed(key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        found = new or old
        owners = found.metadata.owner_references if found else ()
        for owner in owners:
            if owner.kind == kind.name and owner.api_version == kind.api_version:
                wake(Key(key.namespace, owner.name))

    return changed


def wakes_instance(components: Iterable[str], wake: Wake) -> Hook[Any]:
    """Make a hook that wakes the custom resource whose name a changed pod carries."""
    ours = frozenset(components)

    def changed(key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        found = new or old
        labels = found.metadata.labels if found else {}
        if labels.get(names.COMPONENT_LABEL) in ours and names.INSTANCE_LABEL in labels:
            wake(Key(key.namespace, labels[names.INSTANCE_LABEL]))

    return changed


def trouble(
    what: str,
    workload: Workload | None,
    pods: Iterable[Pod],
    *,
    now: datetime | None = None,
    refusal: str = "",
) -> Trouble:
    """What keeps a workload from being as it should be; nothing if it is.

    `refusal` is why its pods are not created, where it does not say so itself, as a Deployment does.
    """
    if workload is None:
        return Trouble(missing=f"{what} is being created")
    if workload.settled:
        return Trouble()
    found = of_pods(pods, now=now or utc_now())
    told = workload.status
    failure = condition(told.conditions, "ReplicaFailure")
    if failure is not None and failure.status == "True":
        refusal = failure.message
    if found.wrong:
        return Trouble(wrong=f"{what}: {found.wrong}")
    still = found.missing or f"{told.ready_replicas} of {workload.spec.replicas} pods are ready"
    return Trouble(wrong=f"{what}: {UNCREATED}: {refusal}" if refusal else "", missing=f"{what}: {still}")


async def trouble_of_set(
    kube: Client, what: str, workload: Workload | None, pods: Iterable[Pod], *, now: datetime
) -> Trouble:
    """The same for a StatefulSet, which reports only in Events why its pods are not created."""
    there = tuple(pods)
    refusal = ""
    if workload is not None and sum(not it.leaving for it in there) < workload.spec.replicas:
        meta = workload.metadata
        # If they cannot be read, the report is the same as without them.
        with suppress(IsthmusError):
            said = await kube.list(EVENTS, namespace=meta.namespace, fields=f"involvedObject.uid={meta.uid}")
            refusal = uncreated(said.items)
    found = trouble(what, workload, there, now=now, refusal=refusal)
    await try_again(kube, STATEFULSETS, workload, found, now=now)
    return found


async def try_again(
    kube: Client, kind: Kind[Workload], workload: Workload | None, found: Trouble, *, now: datetime
) -> None:
    """Make Kubernetes create pods that it refused: by itself it waits ever longer, up to a quarter of an hour.

    It looks at a workload when that changes.
    """
    if workload is None or UNCREATED not in found.wrong:
        return
    last = workload.metadata.annotations.get(names.TRIED_AT_ANNOTATION)
    if last and (now - datetime.fromisoformat(last)).total_seconds() < _AGAIN_S:
        return
    annotations = {names.TRIED_AT_ANNOTATION: now.isoformat(timespec="milliseconds")}
    with suppress(NotFound):
        await kube.merge_patch(kind, workload.metadata.key, {"metadata": {"annotations": annotations}})


def no_controller(name: str, part: HasMeta, *, now: datetime) -> Trouble:
    """Report that the Controller of a part does not exist; its creation wakes the part."""
    namespace = part.metadata.namespace
    what = f"there is no Controller {name} in namespace {namespace}"
    if not name:
        what = f"controllerRef.name is empty, and namespace {namespace} does not have exactly one Controller"
    return Trouble(missing=what) if is_new(part, now) else Trouble(wrong=what)


def no_keys(controller: Controller) -> Trouble:
    """Report that the keys that pods mount do not exist, and whether a user has to act."""
    name = controller.metadata.name
    if controller.spec.external and controller.spec.slurm_key_ref is None:
        return Trouble(
            wrong=f"Controller {name} is external and has no slurmKeyRef:"
            " put the key of its slurmctld into a Secret, and name it there"
        )
    return Trouble(missing=f"the keys of Controller {name} do not exist yet")


def tell(recorder: Recorder, kind: Kind[Any], about: Reported, held: Iterable[Condition]) -> None:
    """Write Events about changes: that something needs attention, or that all is well now."""
    before = about.status.conditions
    now = {it.type: it for it in held}
    degraded, ready = now[DEGRADED], now[READY]
    known = condition(before, DEGRADED)
    if degraded.status == "True" and (known is None or known.message != degraded.message):
        recorder.event(kind, about, "NeedsAttention", degraded.message, warning=True, action="Reconcile")
    if ready.status == "True" and not holds(before, READY):
        recorder.event(kind, about, "Ready", ready.message, action="Reconcile")
