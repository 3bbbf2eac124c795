"""Applies StatefulSets and Deployments, whose pods are recreated only when their specification changes.

A new version of the operator may render pods differently than the last one did: another script, another probe. That
is no reason to end a session or restart a daemon. So a workload carries a hash of the inputs of its pods and a hash
of the rendered template. While the inputs are the same, the current pod template stays; everything else, such as
the number of pods, is updated. With the next change of inputs the pods get the new template.
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
from isthmus.operator.applier import Applier
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
        inputs: object,
        owners: tuple[Mapping[str, Any], ...],
    ) -> None:
        """Apply a workload; `inputs` is all that its pods depend on except our own code."""
        there = self._stores[kind.name]
        meta, spec = manifest["metadata"], manifest["spec"]
        key = Key(meta["namespace"], meta["name"])
        hashes = Hashes(spec=hash_of(inputs), template=hash_of(spec["template"]))
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
    """Whether a workload has the same inputs, and another version of the operator rendered its template."""
    return held.spec == wanted.spec and held.template != wanted.template
