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


class Hashes(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload was made from: the user's specification, and the pod template that the operator made."""

    spec: str
    template: str

    def annotations(self) -> dict[str, str]:
        return {names.SPEC_HASH_ANNOTATION: self.spec, names.TEMPLATE_HASH_ANNOTATION: self.template}


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
        hashes = Hashes(spec=hash_of(wishes), template=hash_of(spec["template"]))
        found = there.get(key)
        held = hashes_on(found.metadata.annotations) if found is not None else None
        if found is not None and held is not None and made_otherwise(held, hashes):
            hashes = held
            spec = {**spec, "template": await self._template(kind, key, found.metadata.uid, held)}
        annotations = {**meta.get("annotations", {}), **hashes.annotations()}
        whole = {**manifest, "metadata": {**meta, "annotations": annotations}, "spec": spec}
        await self._applier.apply(kind, whole, there=there, owners=owners)

    async def _template(self, kind: Kind[Workload], key: Key, uid: str, held: Hashes) -> dict[str, Any]:
        known = (uid, held.template)
        if known not in self._kept:
            whole = msgspec.json.decode(await self._client.send("GET", path(kind, key)), type=_Whole)
            self._kept[known] = whole.spec["template"]
        return self._kept[known]


def hashes_on(annotations: Mapping[str, str]) -> Hashes | None:
    """The hashes that a workload carries, under today's names or those before 0.2.0."""
    spec = annotations.get(names.SPEC_HASH_ANNOTATION) or annotations.get(names.SPEC_HASH_ANNOTATION_OLD)
    template = annotations.get(names.TEMPLATE_HASH_ANNOTATION) or annotations.get(
        names.TEMPLATE_HASH_ANNOTATION_OLD
    )
    return Hashes(spec=spec, template=template) if spec and template else None


def made_otherwise(held: Hashes, wanted: Hashes) -> bool:
    """Whether a workload is of the same specification, and another version of the operator made its template."""
    return held.spec == wanted.spec and held.template != wanted.template
