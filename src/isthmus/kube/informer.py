"""Lists and watches a kind forever, so that a store holds what the API server holds.

      ┌──────────────► list ──► watch ──► ended ──┐
      │                 ▲         ▲               │  resume from the last version
      │        too old  │         └───────────────┤
      └─ pause ◄────────┴──────── out of touch ◄──┘

A list that follows another tells the store what vanished in between. Losing touch never empties the store: readers
keep the last known state, and `contact` says since when it is no longer confirmed.
"""

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Generic, NoReturn, TypeVar, Unpack

import msgspec

from isthmus.errors import IsthmusError, Wait
from isthmus.hooks import Faults
from isthmus.kube.client import Client, Selection
from isthmus.kube.errors import UNREADABLE, Expired, Garbled, NotFound
from isthmus.kube.store import Index, Store
from isthmus.kube.watch import DURATION, SILENCE, Batch, watch
from isthmus.model.base import RAW_LISTING, Kind, Listing
from isthmus.model.meta import HasMeta, Key, Partial

T = TypeVar("T", bound=HasMeta)

_log = logging.getLogger(__name__)
_decode_partial = msgspec.json.Decoder(Partial).decode

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
_NOT_STARTED = "not started"


class Contact(msgspec.Struct, frozen=True):
    """Whether the store is being kept up to date, since when (by the monotonic clock), and if not, why not."""

    in_touch: bool
    since: float
    trouble: str = ""


class Informer(Generic[T]):
    """Keeps `store` up to date while `run` runs.

    A kind that is `optional` need not be served: as long as it is not, there are no objects, and nothing is wrong.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        indexes: Mapping[str, Index[T]] | None = None,
        optional: bool = False,
        silence: float = SILENCE,
        **selected: Unpack[Selection],
    ) -> None:
        self.kind = kind
        self.store: Store[T] = Store(indexes, failed=Faults(kind.plural))
        self.synced = asyncio.Event()
        self._client = client
        self._selected = selected
        self._silence = silence
        self._optional = optional
        self.is_served = not optional
        """Whether the API server knows the kind, as of the last answer; an `optional` one it may not."""
        self._version = ""
        self._pause = FIRST_PAUSE
        self.contact = Contact(in_touch=False, since=time.monotonic(), trouble=_NOT_STARTED)

    def __repr__(self) -> str:
        state = "in touch" if self.contact.in_touch else f"out of touch: {self.contact.trouble}"
        return f"Informer({self.kind.plural}, {len(self.store)} objects, {state})"

    async def run(self) -> NoReturn:
        """List, watch, and start again, until cancelled."""
        while True:
            heard = False
            try:
                if not self._version:
                    await self._list()
                heard = await self._follow()
            except Expired:
                _log.info("%s: resource version %s is too old, listing again", self.kind.plural, self._version)
                self._version = ""
            except IsthmusError as error:
                if self._optional and isinstance(error, NotFound):
                    await self._do_without()
                else:
                    self._lost(error)
                    await self._back_off(at_least=error.after if isinstance(error, Wait) else 0)
                continue
            if not heard:
                # Ended or expired with nothing in between: a server that does so at once must not be hammered.
                await self._back_off()

    async def _list(self) -> None:
        """Fill the store page by page."""
        listed: dict[Key, T] = {}
        unreadable: dict[Key, str] = {}
        version = ""

        def take(page: bytes) -> None:
            nonlocal version
            try:
                listing = self.kind.list_decoder.decode(page)
            except UNREADABLE:
                listing = self._salvage(page, unreadable)
            version = listing.version
            for found in listing.items:
                listed[found.metadata.key] = found

        await self._client.pages(self.kind, take, **self._selected)
        self._replace(listed, unreadable, version)

    async def _follow(self) -> bool:
        """Watch until the server ends it; say whether anything came."""
        heard = False
        opened = watch(
            self._client,
            self.kind,
            version=self._version,
            **self._selected,
            duration=DURATION * random.uniform(1, 1.5),  # noqa: S311 - spreads load, guards nothing
            silence=self._silence,
        )
        async with aclosing(opened) as batches:
            async for batch in batches:
                heard = heard or batch.version != self._version
                self._apply(batch)
        return heard

    def _replace(self, listed: dict[Key, T], unreadable: dict[Key, str], version: str) -> None:
        self._complain(unreadable)
        self.is_served = True
        self.store.replace(listed, keep=unreadable)
        self._version = version
        self.store.version = int(version)
        self._touch()
        self.synced.set()

    def _apply(self, batch: Batch[T]) -> None:
        self._complain(dict(batch.unreadable))
        put, remove = self.store.put, self.store.remove
        for change in batch.changes:
            if isinstance(change, Key):
                remove(change)
            else:
                put(change)
        if batch.version != self._version:
            # Only news prove that all is well: a connection that opens, and a list, may be followed by nothing.
            self._version = batch.version
            self.store.version = int(batch.version)
            self._pause = FIRST_PAUSE
        self._touch()

    def _salvage(self, page: bytes, unreadable: dict[Key, str]) -> Listing[T]:
        """Read a page of which some object does not fit its struct, one object at a time."""
        items: list[T] = []
        try:
            listing = RAW_LISTING.decode(page)
            for raw in listing.items:
                try:
                    items.append(self.kind.decoder.decode(raw))
                except UNREADABLE as error:
                    unreadable[_decode_partial(raw).metadata.key] = str(error)
        except UNREADABLE as error:
            raise Garbled(f"list of {self.kind.plural}: {error}") from error
        return Listing(tuple(items), listing.metadata)

    def _complain(self, unreadable: Mapping[Key, str]) -> None:
        for key, why in unreadable.items():
            _log.warning("%s %s cannot be read and keeps its last known state: %s", self.kind.name, key, why)

    async def _do_without(self) -> None:
        """Hold nothing of a kind that is not served, and look again later. After a watch, only a list shows it."""
        if self._version:
            self._version = ""
            return
        self.is_served = False
        self.store.replace({})
        self._touch()
        self.synced.set()
        await asyncio.sleep(LONGEST_PAUSE * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing

    def _touch(self) -> None:
        if not self.contact.in_touch:
            self.contact = Contact(in_touch=True, since=time.monotonic())

    def _lost(self, error: IsthmusError) -> None:
        if error.what != self.contact.trouble:  # logged once, however often it is retried
            _log.warning("%s: out of touch: %s", self.kind.plural, error)
        since = time.monotonic() if self.contact.in_touch else self.contact.since
        self.contact = Contact(in_touch=False, since=since, trouble=error.what)

    async def _back_off(self, *, at_least: float = 0) -> None:
        pause = max(at_least, self._pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        await asyncio.sleep(pause)
