r"""One watch request, as a stream of batches.

A batch is what one read from the connection brought: reading a thousand events in one go costs a handful of awaits.
Lines end at the byte `\n` and nowhere else: text may hold U+0085 or U+2028, which other line readers take for line
ends, and the API server does not escape them.
"""

from collections.abc import AsyncGenerator
from typing import Final, Generic, TypeVar, Unpack

import msgspec

from isthmus.kube.client import Client, Selection, collection, selection, with_query
from isthmus.kube.errors import UNREADABLE, Garbled, Status, from_status
from isthmus.model.base import Data, Kind
from isthmus.model.meta import HasMeta, Key, Partial

T = TypeVar("T", bound=HasMeta)

DURATION: Final = 290.0
"""Seconds after which the server ends a watch. Callers add jitter, so that watches do not all end together."""

SILENCE: Final = 130.0
"""Seconds without a byte after which a connection counts as dead: the server sends a bookmark every minute."""

MAX_LINE: Final = 32 << 20
"""No object is larger: etcd takes 1.5 MB, and an answer with less than a line in 32 MB is not a watch."""


class Lines:
    """Cuts a stream of bytes into lines, whatever the pieces it comes in."""

    def __init__(self, *, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next piece; return the lines that it completes, without their ends."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._held = 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
            if self._held > self._limit:
                raise Garbled(f"a line of more than {self._limit} bytes is too long for an event")
        return lines


class Batch(Generic[T]):
    """Changes in order, and the version that stands after them."""

    __slots__ = ("changes", "unreadable", "version")

    def __init__(self, version: str) -> None:
        self.changes: list[T | Key] = []
        """Each object that was added or changed, and the key of each that was deleted."""
        self.version = version
        self.unreadable: list[tuple[Key, str]] = []
        """Objects that do not fit their struct, and why."""


class _Envelope(Data, frozen=True):
    type: str
    object: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_partial = msgspec.json.Decoder(Partial).decode
_decode_status = msgspec.json.Decoder(Status).decode

# How the server starts the lines that matter. Knowing it saves reading each object twice: once to find where it
# ends within its envelope, once for its content. A line that starts otherwise is read slowly.
_MODIFIED = b'{"type":"MODIFIED","object":'
_ADDED = b'{"type":"ADDED","object":'
_CHANGES = frozenset({"ADDED", "MODIFIED"})


class Frames(Generic[T]):
    """Turns lines into batches, and keeps the version to resume from."""

    def __init__(self, kind: Kind[T], *, version: str = "", request: str = "watch") -> None:
        self._decode = kind.decoder.decode
        self._request = request
        self._version = version

    def batch(self, lines: list[bytes]) -> Batch[T]:
        """Read some lines.

        An ERROR among them is raised at once: the changes before it come again when the watch resumes.
        """
        batch: Batch[T] = Batch(self._version)
        changes = batch.changes
        decode = self._decode
        for line in lines:
            try:
                if line.startswith(_MODIFIED):
                    found = decode(memoryview(line)[28:-1])
                elif line.startswith(_ADDED):
                    found = decode(memoryview(line)[25:-1])
                else:
                    self._read_slowly(line, batch)
                    continue
            except UNREADABLE:
                self._read_slowly(line, batch)
                continue
            changes.append(found)
            batch.version = found.metadata.resource_version
        self._version = batch.version
        return batch

    def _read_slowly(self, line: bytes, batch: Batch[T]) -> None:
        """Read a line of any type, and of an object that does not fit its struct at least the key."""
        try:
            type_, raw = msgspec.structs.astuple(_decode_envelope(line))
            if type_ == "ERROR":
                raise from_status(_decode_status(raw), request=self._request)
            partial = _decode_partial(raw)
        except UNREADABLE as error:
            raise Garbled(f"{self._request}: a line of {len(line)} bytes is not a valid event: {error}") from error
        if type_ == "DELETED":
            batch.changes.append(partial.metadata.key)
        elif type_ in _CHANGES:
            try:
                batch.changes.append(self._decode(raw))
            except UNREADABLE as error:
                batch.unreadable.append((partial.metadata.key, str(error)))
        elif type_ != "BOOKMARK":
            raise Garbled(f"{self._request}: an event has the unknown type {type_!r}")
        batch.version = partial.metadata.resource_version


async def watch(
    client: Client,
    kind: Kind[T],
    *,
    version: str = "",
    duration: float = DURATION,
    silence: float = SILENCE,
    **selected: Unpack[Selection],
) -> AsyncGenerator[Batch[T]]:
    """Follow the changes after a version, until the server ends the watch.

    The first batch is empty: it says that the watch is open. Without a version, the objects that exist come next,
    as additions. Raises `Expired` where the version is too old, `Unreachable` where the connection breaks or falls
    silent; the version of the last batch is where to resume.
    """
    query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(duration)))}
    query |= selection(selected)
    if version:
        query["resourceVersion"] = version
    where = collection(kind, selected.get("namespace", ""))
    lines = Lines()
    frames = Frames(kind, version=version, request=f"watch {where}")
    async with client.stream(with_query(where, query), silence=silence) as reader:
        yield Batch(version)
        # A line that the server did not finish is dropped: the object comes again when the watch resumes.
        async for chunk in reader:
            if complete := lines.feed(chunk):
                yield frames.batch(complete)
