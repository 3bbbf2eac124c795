"""The volume claims of worker pods: made before the pod, and kept or removed as the retention policy says.

    whenDeleted: Delete   the claim belongs to the NodeSet, and goes with it
    whenScaled: Delete    the claim of a pod that is to go for good belongs to that pod, and goes with it
    Retain                it belongs to nobody

Owners do the removing, so nothing is lost or left if the operator ends halfway. A claim with an owner of somebody
else's making is left alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.nodeset.actions import SetOwners
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.model.meta import Key, OwnerReference
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.storage import Claim


class Found(Protocol):
    """Where claims are looked up."""

    def get(self, key: Key) -> Claim | None: ...


def claim_name(template: str, nodeset: str, suffix: str) -> str:
    return f"{template}-{nodeset}-{suffix}"


def templates(nodeset: NodeSet) -> tuple[str, ...]:
    return tuple(str(it.get("metadata", {}).get("name", "")) for it in nodeset.spec.volume_claim_templates)


def volumes(nodeset: NodeSet, identity: Identity) -> list[dict[str, Any]]:
    """Make the volumes by which a pod uses its claims."""
    return [
        {
            "name": name,
            "persistentVolumeClaim": {"claimName": claim_name(name, nodeset.metadata.name, identity.claim_suffix)},
        }
        for name in templates(nodeset)
    ]


def manifests(nodeset: NodeSet, identity: Identity, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    owners = _lasting(nodeset)
    made = []
    for template, name in zip(nodeset.spec.volume_claim_templates, templates(nodeset), strict=True):
        given = template.get("metadata", {})
        metadata = common.metadata(
            claim_name(name, nodeset.metadata.name, identity.claim_suffix),
            nodeset.metadata.namespace,
            labels,
            own=given.get("labels"),
            annotations=given.get("annotations"),
        )
        if owners:
            metadata["ownerReferences"] = msgspec.to_builtins(owners)
        made.append({"metadata": metadata, "spec": template.get("spec", {})})
    return made


def blocked(nodeset: NodeSet, identity: Identity, claims: Found, *, alive: Iterable[str]) -> str:
    """A claim that is about to vanish under a pod that would be made now; empty if there is none.

    `alive` are the uids of pods that are there.
    """
    living = set(alive)
    for name in templates(nodeset):
        key = Key(nodeset.metadata.namespace, claim_name(name, nodeset.metadata.name, identity.claim_suffix))
        found = claims.get(key)
        if found is None:
            continue
        doomed = any(it.kind == "Pod" and it.uid not in living for it in found.metadata.owner_references)
        if doomed or found.metadata.deletion_timestamp is not None:
            return key.name
    return ""


def retention(
    nodeset: NodeSet, claims: Found, pods: Iterable[PodView], *, going: frozenset[str]
) -> tuple[SetOwners, ...]:
    """Update the owners of claims; `going` are pods that are not replaced, by name.

    What was said of a pod before it was deleted holds while it ends: it is gone by then, and nobody decides on it.
    """
    if not nodeset.spec.volume_claim_templates:
        return ()
    policy = nodeset.spec.persistent_volume_claim_retention_policy
    lasting = _lasting(nodeset)
    steps = []
    for pod in pods:
        if pod.leaving:
            continue
        scaled = policy.when_scaled == "Delete" and pod.name in going
        wanted = (_pod_owner(pod),) if scaled else lasting
        for key in _keys(nodeset, pod):
            found = claims.get(key)
            if found is None or found.metadata.deletion_timestamp is not None:
                continue
            owners = found.metadata.owner_references
            if _ours(owners, nodeset) and not _same(owners, wanted):
                steps.append(SetOwners(key, found.metadata.resource_version, wanted))
    return tuple(steps)


def _keys(nodeset: NodeSet, pod: PodView) -> Iterable[Key]:
    names = set(templates(nodeset))
    for volume in pod.pod.spec.volumes:
        if volume.name in names and volume.persistent_volume_claim:
            yield Key(nodeset.metadata.namespace, volume.persistent_volume_claim.claim_name)


def _lasting(nodeset: NodeSet) -> tuple[OwnerReference, ...]:
    if nodeset.spec.persistent_volume_claim_retention_policy.when_deleted != "Delete":
        return ()
    meta = nodeset.metadata
    return (OwnerReference(NODESETS.api_version, NODESETS.name, meta.name, meta.uid),)


def _pod_owner(pod: PodView) -> OwnerReference:
    return OwnerReference("v1", "Pod", pod.name, pod.uid)


def _ours(owners: Iterable[OwnerReference], nodeset: NodeSet) -> bool:
    prefix = f"{nodeset.metadata.name}-"
    return all(it.uid == nodeset.metadata.uid or (it.kind == "Pod" and it.name.startswith(prefix)) for it in owners)


def _same(owners: Iterable[OwnerReference], wanted: Iterable[OwnerReference]) -> bool:
    return {it.uid for it in owners} == {it.uid for it in wanted}
