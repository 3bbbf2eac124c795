"""Makes objects as they should be, and sends nothing when they are.

An object is applied when what we want has changed, or when somebody changed what is there. Both are known without a
request: the first by a hash, the second by the version in the cache. After a restart everything is applied once,
which the API server answers without writing anything.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from isthmus import names
from isthmus.domain.manifests.common import hash_of
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key

T = TypeVar("T", bound=HasMeta)

_LAG: Final = 10.0
"""Seconds for which a cache may show an object as it was before our last write."""


class _Applied(NamedTuple):
    """What was sent, what was there before and after, and when."""

    digest: str
    before: str
    after: str
    at: float


def owner_reference(kind: Kind[Any], owner: HasMeta, *, controller: bool = True) -> dict[str, Any]:
    """Make the reference by which an object goes when its owner goes."""
    meta = owner.metadata
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": controller,
        "blockOwnerDeletion": True,
    }


class Applier:
    """Applies manifests by server-side apply, each only when there is a reason."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._applied: dict[tuple[Kind[Any], Key], _Applied] = {}

    async def apply(
        self,
        kind: Kind[T],
        manifest: Mapping[str, Any],
        *,
        there: Store[T],
        owners: tuple[Mapping[str, Any], ...] = (),
    ) -> bool:
        """Make an object so; tell whether anything was sent. `there` is the cache in which it appears."""
        metadata = {**manifest["metadata"]}
        if owners:
            metadata["ownerReferences"] = list(owners)
        wanted = {**manifest, "metadata": metadata}
        key = Key(metadata.get("namespace", ""), metadata["name"])
        digest, before = hash_of(wanted), _version(there.get(key))
        known = self._applied.get((kind, key))
        if known and known.digest == digest and self._unchanged(known, before):
            if before == known.after:
                # The cache is past what was there before: if that is there again, somebody has put it back.
                self._applied[kind, key] = known._replace(before=known.after)
            return False
        applied = await self._client.apply(kind, wanted, manager=names.FIELD_MANAGER, force=True)
        self._applied[kind, key] = _Applied(digest, before, _version(applied), self._clock())
        return True

    def _unchanged(self, known: _Applied, version: str) -> bool:
        if version == known.after:
            return True
        return version == known.before and self._clock() - known.at < _LAG

    async def make_once(
        self,
        kind: Kind[T],
        manifest: Mapping[str, Any],
        *,
        there: Store[T],
        owners: tuple[Mapping[str, Any], ...] = (),
    ) -> bool:
        """Create an object unless it exists; one that does is left as it is. Tell whether it was created."""
        metadata = {**manifest["metadata"]}
        if owners:
            metadata["ownerReferences"] = list(owners)
        if there.get(Key(metadata.get("namespace", ""), metadata["name"])) is not None:
            return False
        try:
            await self._client.create(kind, {**manifest, "metadata": metadata})
        except AlreadyExists:
            return False
        return True

    async def remove(self, kind: Kind[T], key: Key, *, there: Store[T]) -> bool:
        """Delete an object if it exists; tell whether there was one."""
        found = there.get(key)
        if found is None or found.metadata.deletion_timestamp is not None:
            return False
        self._applied.pop((kind, key), None)
        with suppress(NotFound):
            await self._client.delete(kind, key, uid=found.metadata.uid, propagation="Background")
        return True


def _version(found: HasMeta | None) -> str:
    """Tell by what a change is noticed that somebody made; a status does not count where it can be told apart."""
    if found is None:
        return ""
    meta = found.metadata
    return f"{meta.uid}/{meta.generation or meta.resource_version}"
