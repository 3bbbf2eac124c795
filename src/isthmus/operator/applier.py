"""Applies objects, and sends nothing when they are as they should be.

An object is applied when what we want has changed, or when others changed the object. Both are known without a
request: the first by a hash, the second by the version in the cache, once that has heard of our last write. After a
restart everything is applied once, which the API server answers without writing anything.

An object of others under a name that we need is left alone: see `ownership`.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

from isthmus import names
from isthmus.domain.kube.emptymaps import pruned
from isthmus.domain.operator import ownership
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.domain.operator.ownership import Seen
from isthmus.errors import Retry, Terminal
from isthmus.kube.client import Client, path
from isthmus.kube.errors import UNREADABLE, AlreadyExists, FieldConflict, Garbled, NotFound
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key

T = TypeVar("T", bound=HasMeta)
Manifest = Mapping[str, Any]

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class ReferenceMissing(Retry):
    """The API server does not know an object that this one refers to, such as the Role of a RoleBinding."""


class Foreign(Terminal):
    """An object of the name that we need belongs to others."""


class _Applied(NamedTuple):
    """What was sent, what was there after, and from which version on caches know of it."""

    digest: str
    after: str
    version: int


def owner_reference(kind: Kind[Any], owner: HasMeta, *, controller: bool = True) -> dict[str, Any]:
    """Make the reference by which an object is deleted with its owner."""
    meta = owner.metadata
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def _owned(manifest: Manifest, owners: tuple[Manifest, ...]) -> dict[str, Any]:
    return {**manifest["metadata"], **({"ownerReferences": list(owners)} if owners else {})}


class Applier:
    """Applies manifests by server-side apply, each only when there is a reason."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[tuple[Kind[Any], Key], _Applied] = {}

    async def apply(
        self, kind: Kind[T], manifest: Manifest, *, there: Store[T], owners: tuple[Manifest, ...] = ()
    ) -> bool:
        """Apply an object; return whether anything was sent. `there` is the cache in which it appears."""
        metadata = _owned(manifest, owners)
        wanted = pruned(kind.type, {**manifest, "metadata": metadata})
        key = Key(metadata.get("namespace", ""), metadata["name"])
        digest, known = hash_of(wanted), self._applied.get((kind, key))
        # What a cache shows from before our write says nothing of what became of it.
        if (known and known.digest == digest) and (
            there.version < known.version or _version(there.get(key)) == known.after
        ):
            return False
        exists = known is not None and there.version < known.version  # our own, of which the cache has yet to hear
        if not exists:
            seen = there.get(key) or await self._look(kind, key)
            if seen is not None and (owner := ownership.other_owner(seen.metadata, wanted["metadata"])):
                raise Foreign(
                    f"{kind.name} {key.name} already exists and does not belong to Isthmus: {owner}",
                    remedy="delete or rename it; it is checked again every few seconds",
                )
            exists = seen is not None
        try:
            # What is not there has no other manager: one that has was just created by others.
            applied = await self._client.apply(kind, wanted, manager=names.FIELD_MANAGER, force=exists)
        except FieldConflict as error:
            raise Retry(f"{kind.name} {key} was just created by something else") from error
        except NotFound as error:
            # An apply makes what is not there: something else is missing, such as the Role of a RoleBinding, which
            # the API server may not know yet though it was made before.
            said = error.status.message or error.what
            raise ReferenceMissing(
                f"{kind.name} {key.name} refers to something that does not exist: {said}"
            ) from error
        self._applied[kind, key] = _Applied(digest, _version(applied), int(applied.metadata.resource_version))
        return True

    async def _look(self, kind: Kind[Any], key: Key) -> Seen | None:
        """See whose an object is that is not in our cache. Its content, such as a Secret's, is not read."""
        try:
            answer = await self._client.send("GET", path(kind, key), accept=_METADATA_ONLY)
            return msgspec.json.decode(answer, type=Seen)
        except NotFound:
            return None
        except UNREADABLE as error:
            raise Garbled(f"the API server sent an invalid {kind.name}: {error}") from error

    def is_shown(self, kind: Kind[T], key: Key, *, there: Store[T]) -> bool:
        """Whether a cache has heard of what we last applied."""
        known = self._applied.get((kind, key))
        return known is None or there.version >= known.version

    async def make_once(
        self, kind: Kind[T], manifest: Manifest, *, there: Store[T], owners: tuple[Manifest, ...] = ()
    ) -> bool:
        """Create an object unless it exists; one that does is left as it is. Return whether it was created."""
        metadata = _owned(manifest, owners)
        if there.get(Key(metadata.get("namespace", ""), metadata["name"])) is not None:
            return False
        try:
            await self._client.create(kind, {**manifest, "metadata": metadata})
        except AlreadyExists:
            return False
        return True

    async def remove(self, kind: Kind[T], key: Key, *, there: Store[T], owner: HasMeta) -> bool:
        """Delete an object if it exists and belongs to `owner`; return whether there was one."""
        found = there.get(key)
        if found is None or found.metadata.deletion_timestamp is not None:
            return False
        if all(it.uid != owner.metadata.uid for it in found.metadata.owner_references):
            return False
        self._applied.pop((kind, key), None)
        with suppress(NotFound):
            await self._client.delete(kind, key, uid=found.metadata.uid, propagation="Background")
        return True


def _version(found: HasMeta | None) -> str:
    """What shows that others changed an object; a status does not count if it can be distinguished."""
    if found is None:
        return ""
    meta = found.metadata
    return f"{meta.uid}/{meta.generation or meta.resource_version}"
