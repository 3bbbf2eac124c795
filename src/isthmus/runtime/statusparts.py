"""One process's part of a status that several write: its own fields and conditions, by server-side apply.

Conditions are told apart by their types, so no writer undoes another's. Sent when it says something new.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from isthmus.clock import utc_now
from isthmus.domain.kube import conditions
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import Condition, Key, Reported

T = TypeVar("T", bound=Reported)


class StatusPart(Generic[T]):
    """Keeps the part of one field manager up to date in objects of one kind."""

    def __init__(
        self, client: Client, kind: Kind[T], *, manager: str, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._client = client
        self._kind = kind
        self._manager = manager
        self._now = now
        self._made: dict[Key, T] = {}

    async def tell(self, about: T, fields: Mapping[str, object], held: Iterable[Condition]) -> T:
        """Write fields and conditions; empty fields are left out. Return the object as it is then."""
        meta, before = about.metadata, about.status
        told = list(held)
        types = {it.type for it in told}
        known = [it for it in before.conditions if it.type in types]
        fresh = conditions.merged(known, told, generation=meta.generation, now=self._now())
        given = {name: value for name, value in fields.items() if value}
        there = {name: value for name, value in msgspec.to_builtins(before).items() if name in fields}
        unchanged = msgspec.json.encode(given, order="sorted") == msgspec.json.encode(there, order="sorted")
        if unchanged and list(fresh) == sorted(known, key=lambda it: it.type):
            return about
        status = {**given, "conditions": [{"reason": "", "message": "", **msgspec.to_builtins(it)} for it in fresh]}
        manifest = {
            "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            "status": status,
        }
        try:
            made = await self._client.apply(
                self._kind, manifest, manager=self._manager, force=True, subresource="status"
            )
        except NotFound:
            return about
        self._made[meta.key] = made
        return made

    def newest(self, found: T) -> T:
        """Give an object as we left it, while the cache still shows it as it was before."""
        key, uid = found.metadata.key, found.metadata.uid
        made = self._made.get(key)
        if made is None:
            return found
        if made.metadata.uid == uid and int(found.metadata.resource_version) < int(made.metadata.resource_version):
            return made
        del self._made[key]
        return found
