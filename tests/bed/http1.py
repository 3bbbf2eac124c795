"""Just enough HTTP/1.1 to know where a message ends, with every byte kept as it came.

A fault proxy must pass on what the real part sent, not a polite rendering of it, so no HTTP library will do.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

# A head longer than this is no head that our clients or the real parts would send.
MAX_HEAD = 1 << 20
_PIECE = 1 << 16
_NO_BODY = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


@dataclass(frozen=True)
class Head:
    """The start line and headers of one message; `raw` is what stood on the wire."""

    raw: bytes
    start: tuple[str, str, str]
    headers: Mapping[str, str]

    @property
    def method(self) -> str:
        return self.start[0]

    @property
    def target(self) -> str:
        return self.start[1]

    @property
    def status(self) -> int:
        return int(self.start[1])

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the empty line; IncompleteReadError has what came instead when the peer closed before."""
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = [*first.split(" ", 2), "", ""]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Head(raw=raw, start=(words[0], words[1], words[2]), headers=headers)


async def request_body(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield the body as it stands on the wire, piece by piece."""
    if head.chunked:
        async for piece in _chunks(reader):
            yield piece
    else:
        async for piece in _exactly(reader, int(head.headers.get("content-length", 0))):
            yield piece


async def answer_body(reader: asyncio.StreamReader, head: Head, method: str) -> AsyncIterator[bytes]:
    """Yield the body that belongs to this answer; without a stated length it lasts until the peer closes."""
    if method == "HEAD" or head.status in _NO_BODY:
        return
    if head.chunked:
        async for piece in _chunks(reader):
            yield piece
    elif "content-length" in head.headers:
        async for piece in _exactly(reader, int(head.headers["content-length"])):
            yield piece
    else:
        while piece := await reader.read(_PIECE):
            yield piece


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise ConnectionResetError("the body ended before its stated length")
        size -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            if size == 0:
                break
            yield line + await reader.readexactly(size + 2)
        # Trailers, if any, then the empty line.
        yield line
        while (trailer := await reader.readuntil(b"\r\n")) != b"\r\n":
            yield trailer
        yield b"\r\n"
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the body ended in the middle of a chunk") from error
