"""Who owns an object: we do, if it belongs to the custom resource that we make it for, or carries its labels.

To apply with force would take over whatever has the name, and make it go with our cluster.
"""

from collections.abc import Mapping
from typing import Any, Final

from isthmus import names
from isthmus.model.base import Data
from isthmus.model.meta import ObjectMeta, OwnerReference

_MARKS: Final = (names.MANAGED_BY_LABEL, names.INSTANCE_LABEL, names.COMPONENT_LABEL)
"""Labels that name the part of an object, where an owner reference cannot: one that was restored from
a backup has another uid, and what outlives its owner names none."""


class _Manager(Data, frozen=True):
    manager: str = ""


class SeenMeta(ObjectMeta, frozen=True):
    """Metadata with who wrote it."""

    managed_fields: tuple[_Manager, ...] = ()


class Seen(Data, frozen=True):
    """An object that was looked at because something of its name is to be made."""

    metadata: SeenMeta = SeenMeta()


def other_owner(found: ObjectMeta, wanted: Mapping[str, Any]) -> str:
    """Whose an object is, if it is not ours; `wanted` is the metadata that we would give it."""
    owners = wanted.get("ownerReferences", ())
    if {it["uid"] for it in owners} & {it.uid for it in found.owner_references}:
        return ""
    other = found.controller
    if other and (other.api_version, other.kind, other.name) not in {
        (it["apiVersion"], it["kind"], it["name"]) for it in owners
    }:
        return f"it belongs to {other.kind} {other.name}"
    ours = wanted.get("labels", {})
    if all(found.labels.get(it) == ours.get(it) for it in _MARKS):
        return ""
    return _described(found)


def _described(found: ObjectMeta) -> str:
    manager, instance = (found.labels.get(it, "") for it in (names.MANAGED_BY_LABEL, names.INSTANCE_LABEL))
    if manager:
        return f"it is managed by {manager}{f' as part of {instance}' if instance else ''}"
    owner: OwnerReference | None = next(iter(found.owner_references), None)
    if owner:
        return f"it belongs to {owner.kind} {owner.name}"
    writers = found.managed_fields if isinstance(found, SeenMeta) else ()
    return f"it was written by {writers[0].manager}" if writers else "it names no owner"
