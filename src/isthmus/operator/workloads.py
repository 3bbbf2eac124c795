"""Makes StatefulSets and Deployments, whose pods are made anew when users want something else, and only then.

A new version of the operator may make pods otherwise than the last one did: another script, another probe. That is
no reason to end anybody's session or daemon. So a workload carries a hash of what was wished for and a hash of what
was made of it. As long as the wishes are the same, the pod template that is there stays; everything else, such as
the number of pods, is as it should be. With the next wish the pods are made in the new way.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.kube.client import path
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.objects import Workload
from isthmus.operator.applying import Applier
from isthmus.operator.world import World


class _Whole(msgspec.Struct, frozen=True):
    spec: dict[str, Any]


class Workloads:
    """Applies the workloads of one kind of custom resource."""

    def __init__(self, world: World, applier: Applier) -> None:
        self._client = world.kube
        self._applier = applier
        self._stores = {"StatefulSet": world.statefulsets, "Deployment": world.deployments}
        self._kept: dict[tuple[str, str], dict[str, Any]] = {}

    async def apply(
        self,
        kind: Kind[Workload],
        manifest: Mapping[str, Any],
        *,
        wishes: object,
        owners: tuple[Mapping[str, Any], ...],
    ) -> None:
        """Make a workload so; `wishes` is all that its pods follow from, but for our own ways."""
        there = self._stores[kind.name]
        meta, spec = manifest["metadata"], manifest["spec"]
        key = Key(meta["namespace"], meta["name"])
        marks = {names.WISHES_ANNOTATION: hash_of(wishes), names.MADE_ANNOTATION: hash_of(spec["template"])}
        found = there.get(key)
        if found is not None and _made_otherwise(found, marks):
            marks[names.MADE_ANNOTATION] = found.metadata.annotations[names.MADE_ANNOTATION]
            spec = {**spec, "template": await self._template(kind, key, found)}
        annotations = {**meta.get("annotations", {}), **marks}
        whole = {**manifest, "metadata": {**meta, "annotations": annotations}, "spec": spec}
        await self._applier.apply(kind, whole, there=there, owners=owners)

    async def _template(self, kind: Kind[Workload], key: Key, found: Workload) -> dict[str, Any]:
        known = (found.metadata.uid, found.metadata.annotations[names.MADE_ANNOTATION])
        if known not in self._kept:
            whole = msgspec.json.decode(await self._client.send("GET", path(kind, key)), type=_Whole)
            self._kept[known] = whole.spec["template"]
        return self._kept[known]


def _made_otherwise(found: Workload, marks: Mapping[str, str]) -> bool:
    """Whether a workload has what was wished for, made by another version of us."""
    held = found.metadata.annotations
    return (
        held.get(names.WISHES_ANNOTATION) == marks[names.WISHES_ANNOTATION]
        and names.MADE_ANNOTATION in held
        and held[names.MADE_ANNOTATION] != marks[names.MADE_ANNOTATION]
    )
