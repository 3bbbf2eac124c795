"""Gives claims the devices that Slurm chose, and takes them back.

    finalizer  ──►  devices and pod, in one write of the status  ──►  (drivers make them ready)  ──►  binding

Between any two of these the process may end. The next one finds a claim that has devices though its pod has no
node: if they are those that the pod's job has, it continues there, else it takes them back. A device that another
claim still has is waited for: its pod is about to go, or belongs to somebody else.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, NoReturn
from uuid import uuid4

import msgspec
import structlog

from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.conditions import NodeRejected, NotYet
from isthmus.bridge.scheduler.granted import granted
from isthmus.clock import utc_now
from isthmus.domain.bridge import claimstatus
from isthmus.domain.bridge.allocation import Picked, allocate, load_of
from isthmus.domain.bridge.devices import DeviceId, NodeDevices
from isthmus.domain.bridge.placement import Seat
from isthmus.domain.bridge.podclaims import PodClaims, devices_of, results_of
from isthmus.domain.kube.deviceclaims import Extended
from isthmus.errors import Terminal
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.model.dra import EXTENDED_ANNOTATION, FINALIZER, RESOURCE_CLAIMS, Allocation, ResourceClaim, Result
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod

log = structlog.get_logger()

_WITHIN: Final = 30.0
"""So many seconds a device may take to be released."""
_WAITING: Final = "WaitingForDevices"
_REQUEUE_S: Final = 0.2
_MAX_CHARS: Final = 253
"""Of the name of an object."""


@dataclass(frozen=True)
class Plan:
    """Devices for the claims of one pod: what each gets, and which have what they need."""

    pod: Pod
    node: str
    claims: PodClaims
    open: tuple[tuple[ResourceClaim | None, Allocation], ...] = ()
    """Claims that get devices; None for the one that is yet to be made for extended resources."""

    def results_from(self, at: int) -> tuple[Result, ...]:
        """What its claims get, from this one on."""
        return tuple(it for _, allocation in self.open[at:] for it in allocation.devices.results)


@dataclass(eq=False)
class ClaimAllocator:
    """Writes claims for the binder and the submitter of one process."""

    world: World
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict, init=False)
    """Since when a pod waits for devices that others have, by its uid."""
    _planned: dict[str, tuple[str, tuple[Result, ...]]] = field(default_factory=dict, init=False)
    """The node of a pod, and what its claims are about to have there, by its uid."""

    def __post_init__(self) -> None:
        self.world.pods.on_change(self._pod_changed)

    async def prepare(self, pods: Sequence[Pod]) -> None:
        """Make pods ready to be submitted: their claims exist, and devices of an earlier attempt are returned."""
        used: dict[Key, Pod] = {}
        for pod in pods:
            await self.take_back(pod)
            claims = self.world.devices.of_pod(pod)
            if claims.waiting:
                raise NotYet(claims.waiting, reason="WaitingForClaim")
            for claim in claims.open:
                other = used.setdefault(claim.metadata.key, pod)
                if other is not pod:
                    raise Terminal(
                        f"pods {other.metadata.name} and {pod.metadata.name} of one job share ResourceClaim"
                        f" {claim.metadata.key}, which is not supported",
                        remedy="give each pod a claim of its own, by a ResourceClaimTemplate",
                    )

    async def plan(self, seat: Seat, node: str, *, wake: Callable[[], None]) -> Plan | None:
        """Choose devices for a pod where Slurm placed it, of those that its job has; None if it has no claims.

        They are nobody else's until the plan is written, or dropped. Raises `NotYet` or `NodeRejected`.
        """
        pod, devices = seat.pod, self.world.devices
        claims = devices.of_pod(pod)
        if claims.waiting:
            raise NotYet(claims.waiting, reason="WaitingForClaim")
        if not (claims.needs or claims.settled):
            return None
        here = devices.on(node)
        found = await granted(self.world, seat, node, here) if claims.needs else set[int]()
        if isinstance(found, str):
            raise self._rejected(seat, node, found)
        open_ = [*claims.open, claims.extended_claim] if claims.extended else list(claims.open)
        kept = [it for it in open_ if it and it.status.allocation and _serves(it, here, found, node)]
        if stale := [it for it in open_ if it and it.status.allocation and it not in kept]:
            await self._take_back(pod, stale)
            raise NotYet("devices of an earlier attempt are being released", reason=_WAITING, after=_REQUEUE_S)
        wanted = [(it, need) for it, need in zip(open_, claims.needs, strict=True) if it not in kept]
        own = {it.metadata.key for it in kept}
        planned = [it for where, results in self._planned.values() if where == node for it in results]
        others = [*devices.held(node, but=own), *planned]
        ours = [it for claim in kept for it in results_of(claim)]
        blocked = {at for at in here.places(others) if not here.is_group(at)}
        blocked |= {at for at in here.places(ours) if not here.devices[at].shared}
        picked = allocate(
            [need for _, need in wanted],
            here,
            devices.selectors,
            may=lambda at: at in found and at not in blocked,
            load=load_of(here, [*others, *ours]),
        )
        if picked is None:
            # What shares counters with a device may be in its way.
            in_question = [it.id for at, it in enumerate(here.devices) if at in found or it.takes]
            await self._refuse(seat, node, in_question, own, wake)
        self._since.pop(pod.metadata.uid, None)
        self._require_ready(seat, [*kept, *claims.settled])
        allocated = (
            (claim, self._allocation(claim, [it for it in picked if it.claim == at], here, node))
            for at, (claim, _) in enumerate(wanted)
        )
        plan = Plan(pod, node, claims, tuple(allocated))
        self._planned[pod.metadata.uid] = node, plan.results_from(0)
        return plan

    async def write(self, plan: Plan) -> None:
        """Give the claims their devices. Raises `NotYet` where somebody was faster or a driver needs time."""
        try:
            for at, (claim, allocated) in enumerate(plan.open):
                await self._write(plan, claim or await self._make(plan), allocated)
                self._planned[plan.pod.metadata.uid] = plan.node, plan.results_from(at + 1)
            for claim in plan.claims.settled:
                if all(it.uid != plan.pod.metadata.uid for it in claim.status.reserved_for):
                    await self._patch_status(claim, claimstatus.status(claim, plan.pod, None))
            await self._map_extended(plan)
        except (Conflict, NotFound) as error:
            for claim, _ in plan.open:
                if claim:
                    await self._confirm(claim.metadata.key)
            told = f"a ResourceClaim of the pod has changed: {error.what}"
            raise NotYet(told, reason=_WAITING, after=_REQUEUE_S) from error
        finally:
            self.drop(plan)
        if any(it.binding_conditions for it in plan.results_from(0)):
            raise NotYet("drivers are preparing the devices of the pod", reason=_WAITING)

    async def take_back(self, pod: Pod) -> None:
        """Release what a pod got that was not bound after all."""
        await self._take_back(pod, self.world.devices.left_with(pod))

    def drop(self, plan: Plan) -> None:
        """Forget a plan that is written, or not to be."""
        self._planned.pop(plan.pod.metadata.uid, None)

    async def _refuse(
        self, seat: Seat, node: str, in_question: Iterable[DeviceId], but: Collection[Key], wake: Callable[[], None]
    ) -> NoReturn:
        """Wait for devices that are about to be released; give the node back where that takes too long."""
        uid, devices = seat.pod.metadata.uid, self.world.devices
        held = ((id_, claim.metadata.key) for id_ in in_question for claim in devices.holders(id_))
        device, holder = next(((id_, key) for id_, key in held if key not in but), (None, None))
        if holder is None:
            raise self._rejected(seat, node, "the devices that the job has there do not match the resource claims")
        told = f"device {device} still belongs to ResourceClaim {holder}"
        since = self._since.setdefault(uid, self.clock())
        if self.clock() - since < _WITHIN:
            devices.on_release(node, wake)
            raise NotYet(f"Slurm gave node {node}, but {told}", reason=_WAITING)
        del self._since[uid]
        await self._confirm(holder)
        raise self._rejected(seat, node, told)

    async def _confirm(self, key: Key) -> None:
        """Forget a claim that we wrote if it was deleted while the watch did not look."""
        if self.world.devices.is_confirmed(key):
            return
        try:
            self.world.devices.note(await self.world.kube.get(RESOURCE_CLAIMS, key))
        except NotFound:
            self.world.devices.forget(key)

    def _rejected(self, seat: Seat, node: str, why: str) -> NodeRejected:
        return NodeRejected(
            f"Slurm gave node {seat.slurm_node}, but {node} cannot serve the resource claims: {why}",
            pod=seat.pod,
            job_id=seat.job_id,
            slurm_node=seat.slurm_node,
        )

    def _require_ready(self, seat: Seat, claims: Sequence[ResourceClaim]) -> None:
        match claimstatus.binding(claims, now=utc_now()):
            case "waiting":
                raise NotYet("drivers are preparing the devices of the pod", reason=_WAITING)
            case "failed":
                raise self._rejected(seat, seat.slurm_node, "a driver could not prepare the devices of the pod")

    # What is written

    async def _make(self, plan: Plan) -> ResourceClaim:
        """Make the claim for a pod's extended resources: one, even if an answer is lost."""
        meta, extended = plan.pod.metadata, plan.claims.extended
        assert extended is not None  # noqa: S101 - who plans without a claim has them
        end = f"-extended-resources-{meta.uid[:8]}"
        key = Key(meta.namespace, f"{meta.name[: _MAX_CHARS - len(end)]}{end}")
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
        }
        body = {
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "annotations": {EXTENDED_ANNOTATION: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": _requests(extended)}},
        }
        try:
            made = await self.world.kube.create(RESOURCE_CLAIMS, body)
        except AlreadyExists:
            made = await self.world.kube.get(RESOURCE_CLAIMS, key)
        self.world.devices.note(made)
        return made

    def _allocation(
        self, claim: ResourceClaim | None, picked: Sequence[Picked], here: NodeDevices, node: str
    ) -> Allocation:
        classes = self.world.devices.classes
        return claimstatus.allocation(
            picked,
            here,
            node=node,
            config=claim.spec.devices.config if claim else (),
            classes=lambda name: classes.get(Key("", name)),
            now=utc_now(),
            new_id=lambda: str(uuid4()),
        )

    async def _write(self, plan: Plan, claim: ResourceClaim, allocated: Allocation) -> None:
        if FINALIZER not in claim.metadata.finalizers:
            finalizers = [*claim.metadata.finalizers, FINALIZER]
            patch = {"metadata": {**_as_read(claim), "finalizers": finalizers}}
            claim = await self.world.kube.merge_patch(RESOURCE_CLAIMS, claim.metadata.key, patch)
            self.world.devices.note(claim)
        await self._patch_status(claim, claimstatus.status(claim, plan.pod, allocated))

    async def _patch_status(self, claim: ResourceClaim, status: dict[str, Any]) -> None:
        """Write on the condition that nobody has written since."""
        patch = {"metadata": _as_read(claim), "status": status}
        written = await self.world.kube.merge_patch(
            RESOURCE_CLAIMS, claim.metadata.key, patch, subresource="status"
        )
        self.world.devices.note(written)

    async def _map_extended(self, plan: Plan) -> None:
        """Write for the kubelet which request of the claim is for which container."""
        pod, extended = plan.pod, plan.claims.extended
        if extended is None:
            return
        claim = self.world.devices.of_pod(pod).extended_claim
        told = pod.status.extended_resource_claim_status
        if claim is None or (told and told.resource_claim_name == claim.metadata.name):
            return
        status = {
            "resourceClaimName": claim.metadata.name,
            "requestMappings": msgspec.to_builtins(extended.mappings),
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}}
        await self.world.kube.merge_patch(PODS, pod.metadata.key, patch, subresource="status")

    async def _take_back(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Release claims of a pod that has no node. That is read once more: it may just have got one."""
        if not claims:
            return
        try:
            current = await self.world.kube.get(PODS, pod.metadata.key)
        except NotFound:
            return  # Kubernetes itself releases the claims of a pod that is gone.
        if current.bound or current.metadata.uid != pod.metadata.uid:
            return
        for claim in claims:
            log.info("releasing devices", claim=str(claim.metadata.key), pod=str(pod.metadata.key))
            try:
                await self._patch_status(claim, claimstatus.released(claim, pod))
            except NotFound:
                self.world.devices.forget(claim.metadata.key)
            except Conflict as error:
                raise NotYet(
                    f"a ResourceClaim has changed: {error.what}", reason=_WAITING, after=_REQUEUE_S
                ) from error

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (after is None or after.bound):
            self._since.pop(before.metadata.uid, None)


def _serves(claim: ResourceClaim, here: NodeDevices, found: Collection[int], node: str) -> bool:
    """Whether the devices that a claim has are of those that the job has on this node."""
    return claimstatus.is_on(claim, node) and all(here.positions.get(it) in found for it in devices_of(claim))


def _as_read(claim: ResourceClaim) -> dict[str, str]:
    return {"resourceVersion": claim.metadata.resource_version, "uid": claim.metadata.uid}


def _requests(extended: Extended) -> list[dict[str, Any]]:
    return [
        {"name": name, "exactly": {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count}}
        for name, class_, count in extended.requests
    ]
