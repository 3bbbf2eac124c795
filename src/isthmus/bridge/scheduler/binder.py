"""Binds pods to the nodes that Slurm gave, once Kubernetes can take them there, too.

Slurm decides, but Kubernetes may know better about the moment: a pod that is leaving still has its node's memory,
a volume has to be made first, a label was taken away since the job was submitted. What passes is waited for. What
does not is given back to Slurm.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.claims import ClaimAllocator, Plan
from isthmus.bridge.scheduler.conditions import NodeRejected, NotYet
from isthmus.clock import utc_now
from isthmus.domain.bridge.placement import Bind, Seat
from isthmus.domain.kube import feasibility
from isthmus.domain.kube.volumes import Volumes
from isthmus.errors import Terminal
from isthmus.kube.errors import Conflict, NotFound
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.model.storage import CLAIMS

_ROOM_WITHIN: Final = 30.0
"""So long Kubernetes may take to make room; where pods are leaving, so long after the end of their grace time."""


@dataclass(eq=False)
class Binder:
    """Carries out bindings, and calls `on_bound` for each."""

    world: World
    ledger: Ledger
    feasible: FeasibleNodes
    claims: ClaimAllocator
    _: KW_ONLY
    on_bound: Callable[[Seat], None]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = utc_now
    _no_room: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    """Since when there is no room for a pod, by its uid, on a node."""

    def __post_init__(self) -> None:
        self.world.pods.on_change(self._pod_changed)

    async def bind(self, step: Bind, *, wake: Callable[[], None]) -> None:
        """Bind what can be bound; raises `NotYet` or `NodeRejected` where something cannot (yet)."""
        # A binding that the cache does not show yet would only be refused.
        seats = [seat for seat in step.seats if not self.ledger.assumes(seat.pod)]
        if not step.together:
            trouble: Exception | None = None
            for seat in seats:
                try:
                    node = await self._prepare(seat, wake)
                    if plan := await self.claims.plan(seat, node, wake=wake):
                        await self.claims.write(plan)
                    await self._bind(seat, node)
                except (NotYet, NodeRejected) as error:
                    trouble = trouble or error
            if trouble:
                raise trouble
            return
        nodes: list[str] = []
        for seat in seats:
            nodes.append(await self._prepare(seat, wake, others=zip(seats, nodes, strict=False)))
        await self._give_devices(seats, nodes, wake)
        for seat, node in zip(seats, nodes, strict=True):
            self.ledger.assume(seat.pod, node)
        async with asyncio.TaskGroup() as tasks:
            for seat, node in zip(seats, nodes, strict=True):
                tasks.create_task(self._bind(seat, node))

    async def _give_devices(self, seats: Sequence[Seat], nodes: Sequence[str], wake: Callable[[], None]) -> None:
        """Give the claims of pods that are bound together their devices: all or, as far as is known, none."""
        plans: list[Plan] = []
        try:
            for seat, node in zip(seats, nodes, strict=True):
                if plan := await self.claims.plan(seat, node, wake=wake):
                    plans.append(plan)
            for plan in plans:
                await self.claims.write(plan)
        finally:
            for plan in plans:
                self.claims.drop(plan)

    async def _prepare(
        self, seat: Seat, wake: Callable[[], None], *, others: Iterable[tuple[Seat, str]] = ()
    ) -> str:
        """Make sure that the pod can run where Slurm wants it; return the Kubernetes node.

        `others` are to be bound together with it, each to its node: they share the room that there is.
        """
        pod, slurm_node = seat.pod, seat.slurm_node
        node = self.world.map.kube_name(slurm_node)
        if node is None or self.world.nodes.get(Key("", node)) is None:
            raise NodeRejected(
                f"Slurm gave node {slurm_node}, which is not a node of this Kubernetes cluster",
                pod=pod,
                job_id=seat.job_id,
                slurm_node=slurm_node,
            )
        wanted = self.world.wanted_volumes(pod)
        if wanted.waiting:
            raise NotYet(wanted.waiting, reason="WaitingForVolume")
        misfit = self.feasible.misfit(self.world.constraints(pod), node)
        misfit = misfit or feasibility.repelled(
            pod, self.world.pods.by("node", node), namespace_labels=self._labels_of
        )
        if misfit:
            raise NodeRejected(
                f"Slurm gave node {slurm_node}, but {node} {misfit}",
                pod=pod,
                job_id=seat.job_id,
                slurm_node=slurm_node,
            )
        beside = [other.pod for other, place in others if place == node]
        self._require_room(seat, node, wake, beside=beside)
        if wanted.unbound:
            await self._place_volumes(wanted, node)
        return node

    def _require_room(self, seat: Seat, node: str, wake: Callable[[], None], *, beside: Sequence[Pod]) -> None:
        uid = seat.pod.metadata.uid
        lack = self.ledger.lack(node, seat.pod, beside=beside)
        if lack is None:
            self._no_room.pop(uid, None)
            return
        since = self._no_room.setdefault(uid, {}).setdefault(node, self.clock())
        told = f"Slurm gave node {node}, but Kubernetes has no room there yet: {lack}"
        if self.clock() - since < _ROOM_WITHIN or self._will_be_room(node):
            self.ledger.on_room(node, wake)
            raise NotYet(told, reason="WaitingForRoom")
        del self._no_room[uid]
        raise NodeRejected(told, pod=seat.pod, job_id=seat.job_id, slurm_node=seat.slurm_node)

    def _will_be_room(self, node: str) -> bool:
        """Whether a pod is about to leave a node. One that should be gone by now may stay forever."""
        gone = self.ledger.leaving_until(node)
        return gone is not None and (self.now() - gone).total_seconds() < _ROOM_WITHIN

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (after is None or after.bound or after.metadata.uid != before.metadata.uid):
            self._no_room.pop(before.metadata.uid, None)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self.world.namespaces.get(Key("", namespace))
        return found.metadata.labels if found else {}

    async def _place_volumes(self, wanted: Volumes, node: str) -> None:
        """Have volumes made on the node that the pod will run on, and wait for them."""
        patch = {"metadata": {"annotations": {names.SELECTED_NODE_ANNOTATION: node}}}
        for claim in wanted.unbound:
            known = self.world.claims.get(claim)
            if known and known.metadata.annotations.get(names.SELECTED_NODE_ANNOTATION) != node:
                await self.world.kube.merge_patch(CLAIMS, claim, patch)
        told = ", ".join(str(claim) for claim in wanted.unbound)
        raise NotYet(f"volumes are being provisioned on {node} for {told}", reason="WaitingForVolume")

    async def _bind(self, seat: Seat, node: str) -> None:
        meta = seat.pod.metadata
        self.ledger.assume(seat.pod, node)
        job_id = str(seat.job_id)
        try:
            await self.world.kube.bind(
                meta.key,
                node,
                uid=meta.uid,
                labels={names.JOB_ID_LABEL: job_id},
                annotations={
                    names.POD_NODE_ANNOTATION: node,
                    names.POD_JOB_ANNOTATION: job_id,
                    names.POD_SLURM_NODE_ANNOTATION: seat.slurm_node,
                },
            )
        except (NotFound, Conflict):
            # The pod is gone, or has a node already: the cache will show it soon.
            self.ledger.forget(meta.key)
        except Terminal:
            self.ledger.forget(meta.key)
            await self.claims.take_back(seat.pod)
            raise
        except BaseException:
            self.ledger.forget(meta.key)
            raise
        else:
            self.on_bound(seat)
