"""Events on objects, for people who run `kubectl describe`: one per thing that happens, however often it happens.

Three limits against floods. The same note on the same object counts up one Event, which is written at most every
`REFRESH` seconds. When one reason takes more than `DISTINCT` different notes, the rest share one Event. And an
object that gets more than `BURST` Events all the same gets one more every `REFILL` seconds; the rest is dropped.

Recording never waits and never fails: an Event that cannot be written is a line in the log, not an error in the
work that it tells of.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NoReturn, TypeVar
from uuid import uuid4

from msgspec import Struct

from isthmus.clock import utc_now
from isthmus.errors import IsthmusError, Retry, Wait
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key, Object, micro_time

_log = logging.getLogger(__name__)

REFRESH: Final = 10.0
DISTINCT: Final = 5
BURST: Final = 25
REFILL: Final = 300.0
QUIET: Final = 600.0
"""After so many seconds without a repetition the next one is news again, and gets an Event of its own."""

MAX_SERIES: Final = 4096
MAX_NOTE: Final = 1024
"""The API server refuses longer notes."""

_ATTEMPTS = 3
_OTHERS = "(and others like it) "

_V = TypeVar("_V")


class Event(Object, frozen=True):
    """An Event, of which we only need to know that it was written."""


EVENTS: Final = Kind(Event, "events.k8s.io/v1", "events", "Event")


class _Series(Struct):
    """One Event: what it says, how often that happened, and how far the API server knows."""

    key: Key
    manifest: dict[str, Any]
    last: datetime
    heard_at: float
    count: int = 1
    written: int = 0
    due: float = 0.0
    failures: int = 0


class _Budget(Struct):
    """The state of one object: Events that it may still get, and the notes of each reason."""

    tokens: float
    refilled_at: float
    notes: dict[str, set[str]]

    def allows(self, tick: float) -> bool:
        self.tokens = min(BURST, self.tokens + (tick - self.refilled_at) / REFILL)
        self.refilled_at = tick
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def shared(self, reason: str, note: str) -> str:
        """Return the note of the Event for this one: its own, or the one that all beyond `DISTINCT` share."""
        notes = self.notes.setdefault(reason, set())
        if note in notes or len(notes) < DISTINCT:
            notes.add(note)
            return note
        return next((known for known in notes if known.startswith(_OTHERS)), None) or self._share(notes, note)

    @staticmethod
    def _share(notes: set[str], note: str) -> str:
        shared = (_OTHERS + note)[:MAX_NOTE]
        notes.add(shared)
        return shared


class Recorder:
    """Writes the Events of one controller while `run` runs."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._from = {"reportingController": controller, "reportingInstance": instance[:128]}
        self._clock = clock
        self._now = now
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._told: OrderedDict[tuple[str, ...], _Budget] = OrderedDict()
        self._pending: dict[tuple[str, ...], None] = {}
        self._wake = asyncio.Event()
        self.dropped = 0
        """Events that were never written, because their object had too many."""

    def event(
        self, kind: Kind[Any], about: HasMeta, reason: str, note: str, *, warning: bool = False, action: str = ""
    ) -> None:
        """Record an Event about an object. `reason` is one CamelCase word, `note` a sentence."""
        meta = about.metadata
        tick = self._clock()
        identity = (kind.api_version, kind.name, meta.namespace, meta.name, meta.uid)
        told = _recent(self._told, identity, lambda: _Budget(tokens=BURST, refilled_at=tick, notes={}))
        note = told.shared(reason, note[:MAX_NOTE])
        type_ = "Warning" if warning else "Normal"
        name = (*identity, type_, reason, note)
        series = self._series.get(name)
        if series is not None and tick - series.heard_at < QUIET:
            series.count += 1
            series.last, series.heard_at = self._now(), tick
            self._series.move_to_end(name)
        elif told.allows(tick):
            moment = self._now()
            regarding = {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            }
            key = Key(meta.namespace or "default", f"{meta.name[:200]}.{uuid4().hex[:16]}")
            manifest = {
                "metadata": {"namespace": key.namespace, "name": key.name},
                "eventTime": micro_time(moment),
                "regarding": {field: value for field, value in regarding.items() if value},
                "type": type_,
                "reason": reason,
                "action": action or reason,
                "note": note,
                **self._from,
            }
            self._series.pop(name, None)
            _recent(self._series, name, lambda: _Series(key, manifest, last=moment, heard_at=tick))
        else:
            self.dropped += 1
            return
        self._pending[name] = None
        self._wake.set()

    async def run(self) -> NoReturn:
        """Write recorded Events, until cancelled."""
        while True:
            soonest = min((s.due for n in self._pending if (s := self._series.get(n))), default=None)
            wait = None if soonest is None else max(0.0, soonest - self._clock())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self, *, everything: bool = False) -> None:
        """Write what is due; or, before the end, everything."""
        for name in list(self._pending):
            series = self._series.get(name)
            if series is None or series.written == series.count:
                del self._pending[name]
            elif everything or series.due <= self._clock():
                await self._write(name, series)

    async def _write(self, name: tuple[str, ...], series: _Series) -> None:
        count = series.count
        try:
            if series.written and not await self._continued(series, count):
                series.written = 0
            if not series.written:
                await self._client.create(EVENTS, series.manifest | _how_often(series, count))
        except IsthmusError as error:
            series.failures += 1
            if isinstance(error, Retry | Wait) and series.failures < _ATTEMPTS:
                series.due = self._clock() + REFRESH
                return
            _log.warning("failed to write an Event: %s", error)
        series.failures = 0
        series.written = count
        series.due = self._clock() + REFRESH
        if series.count == count:
            self._pending.pop(name, None)

    async def _continued(self, series: _Series, count: int) -> bool:
        """Raise the count of an Event; say whether it was still there."""
        try:
            await self._client.merge_patch(EVENTS, series.key, _how_often(series, count))
        except NotFound:
            return False  # the API server forgets Events after an hour
        return True


def _how_often(series: _Series, count: int) -> dict[str, Any]:
    if count == 1:
        return {}
    return {"series": {"count": count, "lastObservedTime": micro_time(series.last)}}


def _recent(known: OrderedDict[tuple[str, ...], _V], name: tuple[str, ...], make: Callable[[], _V]) -> _V:
    """Find or make an entry, and forget the one that was not asked for the longest."""
    found = known.get(name)
    if found is None:
        found = known[name] = make()
        if len(known) > MAX_SERIES:
            known.popitem(last=False)
    else:
        known.move_to_end(name)
    return found
