"""Gathers what is known of a NodeSet: from caches, and from Slurm itself where a decision needs to be sure.

The template of its pods is rendered once for each specification and kept: a thousand pods are one rendering.
"""

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from isthmus.clock import utc_now
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.domain.operator.nodeset.decision import Need
from isthmus.domain.operator.nodeset.identity import mode_of, ordinal_of, slurm_name
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import Active, Plan, plan
from isthmus.domain.operator.nodeset.repair import registration
from isthmus.domain.operator.nodeset.view import PodView, Registration, View
from isthmus.errors import Wait
from isthmus.model.meta import Key, condition
from isthmus.model.node import Node
from isthmus.model.objects import Secret
from isthmus.model.pod import Pod
from isthmus.model.slinky import Controller, NodeSet
from isthmus.model.slurm import Job, Reservation
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.storage import Claim
from isthmus.names import REVISION_LABEL
from isthmus.operator import parts
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.slurms import Slurm
from isthmus.operator.world import World

_SECRET_RETRY_S: Final = 5.0
_NODES_TIMEOUT_S: Final = 20.0
_JOBS_TIMEOUT_S: Final = 60.0
"""A list of all jobs takes seconds."""

_JOBS_PAUSE_MIN_S: Final = 1.0
_JOBS_PAUSE_FACTOR: Final = 20.0
"""So many times as long as a list of all jobs took, none is asked for: it is expensive where there are many."""


class SlurmReading(msgspec.Struct, frozen=True):
    """What was read from Slurm for one decision; None where it was not needed so far."""

    nodes: Mapping[str, SlurmNode] | None = None
    jobs: tuple[Job, ...] | None = None
    reservations: tuple[Reservation, ...] | None = None


class _Rendered(msgspec.Struct, frozen=True):
    """A template, and what it was made from."""

    source: tuple[object, ...]
    template: worker.Template


@dataclass(eq=False)
class Gatherer:
    """Reads the caches and Slurm for one NodeSet after the other."""

    world: World
    _: KW_ONLY
    now: Callable[[], datetime] = utc_now
    _rendered: dict[str, _Rendered] = field(default_factory=dict, init=False)

    def look(
        self,
        nodeset: NodeSet,
        controller: Controller,
        *,
        template: worker.Template | None,
        slurm: Slurm | None,
        memory: Memory,
        reading: SlurmReading,
        wrong: tuple[str, ...] = (),
        active: Active | None = None,
    ) -> tuple[View, Plan]:
        """Read the caches, and compare the pods that are there with those that should be.

        `reading` goes before what the last poll of Slurm said; `wrong` is what was found wrong before this, and
        `active` are the nodes of an elastic NodeSet that are on.
        """
        now, tick, meta = self.now(), time.monotonic(), nodeset.metadata
        nodes = self._nodes()
        slurm_nodes = (slurm.nodes if slurm else {}) if reading.nodes is None else reading.nodes
        owned = self._owned(nodeset)
        unseen = memory.unseen(owned, now=tick)
        pods = self._pods(nodeset, owned, memory, slurm_nodes=slurm_nodes, now=now)
        demand = template.demand if template else demand_of({})
        planned = plan(nodeset, pods, nodes=nodes, demand=demand, now=now, made=unseen, active=active)
        answers = slurm is not None and slurm.in_touch
        as_of = (slurm.as_of if slurm else None) or 0.0
        in_touch = answers and (reading.nodes is not None or as_of > memory.wrote_slurm_at)
        unknown = in_touch and any(pod.ready and pod.slurm is None for pod in pods)
        has_keys = self._auth(controller) is not None
        view = View(
            nodeset=nodeset,
            pods=pods,
            now=now,
            hash=template.revision if template else nodeset.status.node_set_hash,
            desired=planned.desired,
            kube_nodes=nodes,
            slurm_answers=answers,
            slurm_in_touch=in_touch,
            slurm_trouble=self.world.slurms.trouble(controller.metadata.key),
            slurm_nodes=slurm_nodes,
            slurm_nodes_read=reading.nodes is not None,
            elsewhere=self._elsewhere(nodeset, slurm=slurm, now=now) if unknown else Registration(),
            jobs=reading.jobs,
            jobs_in=max(0.0, memory.jobs_due_at - tick),
            reservations=reading.reservations,
            coming=frozenset({*unseen.values(), *(slot.hostname for slot in planned.create)}),
            unwanted=planned.unwanted,
            claims=self._claims(nodeset),
            has_template=template is not None,
            has_keys=has_keys,
            create_after=memory.pause(generation=meta.generation, now=tick),
            refusal=memory.refusal,
            deletion_tried=memory.deletions_tried(now=tick),
            revision_tried=memory.revisions_tried(now=tick),
            wrong=wrong if has_keys else (*wrong, *self._keyless(controller)),
        )
        return view, planned

    async def read(self, slurm: Slurm, need: Need, memory: Memory, reading: SlurmReading) -> SlurmReading:
        """Read from Slurm what a decision needs, beside what was read for it before."""
        client = slurm.client
        async with asyncio.timeout(_JOBS_TIMEOUT_S if need == "jobs" else _NODES_TIMEOUT_S):
            match need:
                case "nodes":
                    listing = await client.nodes()
                    found = {node.name: node for node in listing.nodes} if listing else {}
                    return msgspec.structs.replace(reading, nodes=found)
                case "jobs":
                    began = time.monotonic()
                    jobs = await client.jobs()
                    pause = max(_JOBS_PAUSE_MIN_S, _JOBS_PAUSE_FACTOR * (time.monotonic() - began))
                    memory.jobs_due_at = time.monotonic() + pause
                    return msgspec.structs.replace(reading, jobs=jobs)
                case "reservations":
                    return msgspec.structs.replace(reading, reservations=await client.reservations())

    def keep(self, present: Container[str]) -> None:
        """Drop the templates of NodeSets that are not among these uids."""
        self._rendered = {uid: it for uid, it in self._rendered.items() if uid in present}

    def template(self, nodeset: NodeSet, controller: Controller) -> worker.Template:
        """Make the template of its pods; raises `Terminal` if it cannot be made, `Wait` if something is missing."""
        contents = self._contents(controller)
        meta, other = nodeset.metadata, controller.metadata
        source = (meta.generation, meta.annotations, other.uid, other.generation, other.annotations, contents)
        known = self._rendered.get(meta.uid)
        if known is None or known.source != source:
            made = worker.template(nodeset, controller, settings=self.world.settings, contents=contents)
            known = self._rendered[meta.uid] = _Rendered(source, made)
        return known.template

    def _contents(self, controller: Controller) -> dict[str, str]:
        """Make hashes of what a daemon in the pod reads only when it starts."""
        if controller.spec.auth_type != "munge":
            return {}  # slurmd reads its key set anew whenever it is reconfigured
        secret = self._auth(controller)
        if secret is None:
            raise Wait(f"Secret {partnames.auth(controller.metadata.name)} is not there yet", after=_SECRET_RETRY_S)
        return {authkeys.MUNGE_FILE: hash_of(secret.data.get(authkeys.MUNGE_FILE, b""))}

    def _keyless(self, controller: Controller) -> tuple[str, ...]:
        """Why there will be no keys for pods without intervention.

        Without the Secret no pod is created: kubelet looks for a missing one less often every time.
        """
        found = parts.no_keys(controller).wrong
        return (found,) if found else ()

    def _auth(self, controller: Controller) -> Secret | None:
        meta = controller.metadata
        return self.world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))

    def _claims(self, nodeset: NodeSet) -> dict[Key, Claim]:
        if not nodeset.spec.volume_claim_templates:
            return {}
        namespace = nodeset.metadata.namespace
        return {it.metadata.key: it for it in self.world.claims.values() if it.metadata.namespace == namespace}

    def _owned(self, nodeset: NodeSet) -> tuple[Pod, ...]:
        return self.world.pods.by("owner", nodeset.metadata.uid)

    def _elsewhere(self, nodeset: NodeSet, *, slurm: Slurm | None, now: datetime) -> Registration:
        """Count the nodes of the cluster's other NodeSets, and those of them that Slurm does not know."""
        controller = self.world.controller_key(nodeset)
        if controller is None or slurm is None:
            return Registration()
        others = (it for it in self.world.nodesets_of(controller) if it.metadata.uid != nodeset.metadata.uid)
        pods = (pod for other in others for pod in self._owned(other))
        return registration(pods, known=slurm.nodes, now=now)

    def _nodes(self) -> Mapping[str, Node]:
        return {key.name: node for key in self.world.kube_nodes if (node := self.world.kube_nodes.get(key))}

    def _pods(
        self,
        nodeset: NodeSet,
        owned: Iterable[Pod],
        memory: Memory,
        *,
        slurm_nodes: Mapping[str, SlurmNode],
        now: datetime,
    ) -> tuple[PodView, ...]:
        """The pods of a NodeSet, each with its nodes on both sides; sorted by mode, ordinal and name."""
        name, min_ready = nodeset.metadata.name, nodeset.spec.min_ready_seconds
        kube_nodes = self.world.kube_nodes
        views = []
        for pod in owned:
            mode, hostname = mode_of(pod), slurm_name(pod)
            ready = is_ready(pod)
            views.append(
                PodView(
                    pod=pod,
                    mode=mode,
                    slurm_name=hostname,
                    ordinal=ordinal_of(name, pod) if mode == "StatefulSet" else None,
                    hash=pod.metadata.labels.get(REVISION_LABEL, ""),
                    ready=ready,
                    available=memory.available(pod, ready=ready, min_ready=min_ready, now=now),
                    let_go=memory.is_deleted(pod.metadata.uid),
                    kube_node=kube_nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None,
                    slurm=slurm_nodes.get(hostname),
                )
            )
        if min_ready:
            memory.keep_readiness(view.uid for view in views if view.ready)
        views.sort(key=lambda view: (view.mode, -1 if view.ordinal is None else view.ordinal, view.name))
        return tuple(views)


def is_ready(pod: Pod) -> bool:
    """Whether a pod is ready, and not on its way out."""
    found = condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True" and not pod.leaving
