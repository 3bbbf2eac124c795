"""Puts together what is known of a NodeSet: reads caches, awaits nothing.

The template of its pods is rendered once for each specification and kept: a thousand pods are one rendering.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.domain.operator.nodeset.identity import mode_of, ordinal_of, slurm_name
from isthmus.domain.operator.nodeset.repair import registration
from isthmus.domain.operator.nodeset.view import PodView, Registration
from isthmus.errors import Wait
from isthmus.model.meta import Key, condition
from isthmus.model.node import Node
from isthmus.model.objects import Secret
from isthmus.model.pod import Pod
from isthmus.model.slinky import Controller, NodeSet
from isthmus.names import REVISION_LABEL
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.slurms import Slurm
from isthmus.operator.world import World

_SOON: Final = 5.0


class _Rendered(msgspec.Struct, frozen=True):
    """A template, and what it was made from."""

    source: tuple[object, ...]
    template: worker.Template


class Gatherer:
    """Reads the world for one NodeSet after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rendered: dict[str, _Rendered] = {}

    def forget(self, uid: str) -> None:
        """Drop what is kept of a NodeSet that is gone."""
        self._rendered.pop(uid, None)

    def template(self, nodeset: NodeSet, controller: Controller) -> worker.Template:
        """Make the template of its pods; raises `Terminal` if it cannot be made, `Wait` if something is missing."""
        contents = self._contents(controller)
        meta, other = nodeset.metadata, controller.metadata
        source = (meta.generation, meta.annotations, other.uid, other.generation, other.annotations, contents)
        known = self._rendered.get(meta.uid)
        if known is None or known.source != source:
            made = worker.template(nodeset, controller, settings=self._world.settings, contents=contents)
            known = self._rendered[meta.uid] = _Rendered(source, made)
        return known.template

    def _contents(self, controller: Controller) -> dict[str, str]:
        """Make hashes of what a daemon in the pod reads only when it starts."""
        if controller.spec.auth_type != "munge":
            return {}  # slurmd reads its key set anew whenever it is reconfigured
        secret = self._auth(controller)
        if secret is None:
            raise Wait(f"Secret {partnames.auth(controller.metadata.name)} is not there yet", after=_SOON)
        return {authkeys.MUNGE_FILE: hash_of(secret.data.get(authkeys.MUNGE_FILE, b""))}

    def has_keys(self, controller: Controller) -> bool:
        """Whether the Secret is there that pods mount: kubelet looks for a missing one less often every time."""
        return self._auth(controller) is not None

    def _auth(self, controller: Controller) -> Secret | None:
        meta = controller.metadata
        return self._world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))

    def owned(self, nodeset: NodeSet) -> tuple[Pod, ...]:
        """Find the pods of a NodeSet."""
        return self._world.pods.by("owner", nodeset.metadata.uid)

    def elsewhere(self, nodeset: NodeSet, *, slurm: Slurm | None, now: datetime) -> Registration:
        """Count the nodes of the cluster's other NodeSets, and those of them that Slurm does not know."""
        controller = self._world.controller_key(nodeset)
        if controller is None or slurm is None:
            return Registration()
        others = (it for it in self._world.nodesets_of(controller) if it.metadata.uid != nodeset.metadata.uid)
        pods = (pod for other in others for pod in self.owned(other))
        return registration(pods, known=slurm.nodes, now=now)

    def nodes(self) -> Mapping[str, Node]:
        """Look at all nodes of Kubernetes by their names."""
        return {key.name: node for key in self._world.kube_nodes if (node := self._world.kube_nodes.get(key))}

    def pods(
        self,
        nodeset: NodeSet,
        owned: Iterable[Pod],
        memory: Memory,
        *,
        slurm: Slurm | None,
        now: datetime,
    ) -> tuple[PodView, ...]:
        """Look at the pods of a NodeSet, each with its nodes on both sides; sorted by mode, ordinal and name."""
        name, min_ready = nodeset.metadata.name, nodeset.spec.min_ready_seconds
        kube_nodes = self._world.kube_nodes
        records = slurm.nodes if slurm else {}
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
                    slurm=records.get(hostname),
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
