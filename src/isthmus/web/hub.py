"""Sends what changes to everybody who looks: written once for each audience, the same bytes for all of its viewers.

A viewer reads a snapshot with a version, and then the changes since that version as server-sent events. One who
reads too slowly is not waited for: what it misses is dropped, and it is told to read a new snapshot (`resync`).
"""

import asyncio
import gzip
import time
from collections.abc import Callable
from typing import Final, Protocol
from uuid import uuid4

import msgspec

from isthmus.domain.web import tables
from isthmus.domain.web.audience import Audience
from isthmus.domain.web.frames import Ring, frame
from isthmus.domain.web.tables import Change, Tables

_FLUSH_FEW: Final = 0.1
_FLUSH_MANY: Final = 0.25
_MANY: Final = 500
"""Seconds for which changes are collected before they are sent: to few viewers, and to so many of them."""

BEAT: Final = 3.0
"""Seconds between two signs of life, which say how fresh everything is."""

_SAMPLE: Final = 10.0
_MAX_UNSENT: Final = 512 << 10
_SNAPSHOT_AGE: Final = 2.0
_IDLE_FEED: Final = 60.0


def chunk(data: bytes) -> bytes:
    """Frame bytes as a chunk of HTTP/1.1: once for all who get them."""
    return b"%x\r\n%s\r\n" % (len(data), data)


RESYNC: Final = chunk(frame("resync", b"{}"))


class Pipe(Protocol):
    """Where a viewer's bytes go: the transport of its connection."""

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def is_closing(self) -> bool: ...


class Viewer:
    """One open page."""

    def __init__(self, pipe: Pipe, *, max_unsent: int = _MAX_UNSENT) -> None:
        self._pipe = pipe
        self._max_unsent = max_unsent
        self.is_behind = False
        self.gone = asyncio.Event()

    def send(self, chunk: bytes) -> None:
        """Send bytes, or remember that the viewer missed some."""
        if self._pipe.is_closing():
            self.gone.set()
        elif self.is_behind or self._pipe.get_write_buffer_size() > self._max_unsent:
            self.is_behind = True
        else:
            self._pipe.write(chunk)

    def catch_up(self) -> None:
        """Tell a viewer that missed something to begin anew, once all that was sent to it has left."""
        if self._pipe.is_closing():
            self.gone.set()
        elif self.is_behind and not self._pipe.get_write_buffer_size():
            self.is_behind = False
            self._pipe.write(RESYNC)


class Feed:
    """What one audience sees: its versions, its latest changes, and its viewers."""

    def __init__(self, audience: Audience, rows: Tables, *, epoch: str) -> None:
        self.audience = audience
        self.viewers: set[Viewer] = set()
        self.used_at = time.monotonic()
        self._tables = rows
        self._epoch = epoch
        self._version = 1
        self._ring = Ring()
        self._packed: tuple[float, bytes] | None = None
        self._packing = asyncio.Lock()

    def publish(self, changes: list[Change]) -> None:
        text = tables.delta(changes, self.audience, head=b'"v":%d' % (self._version + 1))
        if text is None:
            return
        self._version += 1
        sent = chunk(frame("delta", text))
        self._ring.add(self._version, sent)
        self.send(sent)

    def send(self, sent: bytes) -> None:
        for viewer in self.viewers:
            viewer.send(sent)

    def missed(self, epoch: str, version: int) -> list[bytes]:
        """What a viewer who has this version has to be sent: the changes since, or that it has to begin anew."""
        found = self._ring.since(version, latest=self._version) if epoch == self._epoch else None
        return [RESYNC] if found is None else found

    async def snapshot(self, about: Callable[[], bytes]) -> bytes:
        """Everything, compressed; within two seconds the same for all, who get the changes since by the stream."""
        self.used_at = time.monotonic()
        async with self._packing:
            if self._packed and self._packed[0] > self.used_at - _SNAPSHOT_AGE:
                return self._packed[1]
            head = b'"v":%d,"epoch":"%s","about":%s' % (self._version, self._epoch.encode(), about())
            text = tables.snapshot(self._tables, self.audience, head=head)
            packed = await asyncio.to_thread(gzip.compress, text, 1)
            self._packed = (self.used_at, packed)
            return packed


class Hub:
    """All feeds of a process. `about` says how fresh things are, for the signs of life."""

    def __init__(
        self,
        rows: Tables,
        *,
        settle: Callable[[], None],
        sample: Callable[[], None],
        about: Callable[[], dict[str, object]],
    ) -> None:
        self.epoch = uuid4().hex
        self._tables = rows
        self._settle, self._sample = settle, sample
        self._about = about
        self._feeds: dict[Audience, Feed] = {}
        self._drained = asyncio.Event()

    @property
    def viewers(self) -> int:
        return sum(len(feed.viewers) for feed in self._feeds.values())

    def feed(self, audience: Audience) -> Feed:
        found = self._feeds.get(audience)
        if found is None:
            self.flush()  # a new audience begins with what is there, and must not be sent that as a change
            found = self._feeds[audience] = Feed(audience, self._tables, epoch=self.epoch)
        found.used_at = time.monotonic()
        return found

    def about(self) -> bytes:
        return msgspec.json.encode(self._about())

    async def run(self) -> None:
        """Send until drained."""
        beat_due, sample_due, known = 0.0, 0.0, b""
        while not self._drained.is_set():
            began = time.monotonic()
            self.flush()
            contact = msgspec.json.encode(_contact(self._about()))
            if began >= beat_due or contact != known:
                beat_due, known = began + BEAT, contact
                self._beat(began)
            if began >= sample_due:
                sample_due = began + _SAMPLE
                self._sample()
            try:
                async with asyncio.timeout(max(0.02, self._pause - (time.monotonic() - began))):
                    await self._drained.wait()
            except TimeoutError:
                continue
        for feed in self._feeds.values():
            for viewer in feed.viewers:
                viewer.gone.set()

    def drain(self) -> None:
        self._drained.set()

    @property
    def _pause(self) -> float:
        return _FLUSH_FEW + (_FLUSH_MANY - _FLUSH_FEW) * min(1.0, self.viewers / _MANY)

    def flush(self) -> None:
        """Send what changed since the last time."""
        self._settle()
        changes = self._tables.take()
        for feed in self._feeds.values():
            if changes:
                feed.publish(changes)
            for viewer in feed.viewers:
                if viewer.is_behind:
                    viewer.catch_up()

    def _beat(self, now: float) -> None:
        sent = chunk(frame("beat", self.about()))
        for audience, feed in list(self._feeds.items()):
            feed.send(sent)
            if not feed.viewers and feed.used_at < now - _IDLE_FEED:
                del self._feeds[audience]


def _contact(about: dict[str, object]) -> list[object]:
    """What is sent at once when it changes: whether Slurm and Kubernetes answer, not since when."""
    sides = (about[side] for side in ("slurm", "kubernetes"))
    return [(it["ok"], it["read"]) for it in sides if isinstance(it, dict)]
