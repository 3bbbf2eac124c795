"""HTTP/1.1 with a server that may answer twice.

slurmrestd 26.05 sends two answers to every request that fails, and after a time-out of its own older ones do, too.
A strict HTTP client gives up on both answers, a lenient one takes the second for the answer to its next request.
Here the first answer counts, and a connection that carries a byte nobody asked for is dead. This is all of HTTP/1.1
that talking to slurmrestd takes, directly or through a gateway that sends in chunks.
"""

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, cast

_HEAD_LIMIT = 1 << 16
_BODY_LIMIT = 1 << 30
"""No answer of Slurm is longer than this; half a million jobs in full would not be."""

_END_OF_HEAD = b"\r\n\r\n"
_CHUNK_LINE = 128
_NUMBERS = {10: re.compile(r"[0-9]{1,15}", re.ASCII), 16: re.compile(r"[0-9A-Fa-f]{1,12}", re.ASCII)}
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Response(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: bytes


class ProtocolError(ConnectionError):
    """What came is not HTTP/1.1."""


class Connection(asyncio.Protocol):
    """A connection on which one request after the other is answered."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._answer = _Answer()
        self._lost = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, *, patience: float) -> Response:
        """Send a request and wait for its answer; whatever goes wrong, the connection is closed."""
        if not self.usable or self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._answer = _Answer()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience):
                self._transport.write(request)
                response = await self._waiter
        except TimeoutError:
            self.close()
            raise TimeoutError(f"no answer within {patience:g} s") from None
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None
        if response.status >= HTTPStatus.BAD_REQUEST or response.headers.get("connection", "").lower() == "close":
            self.close()
        return response

    def close(self) -> None:
        """End the connection without waiting for anything that is still under way."""
        if self._transport:
            self._transport.abort()

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # Not checked but believed: the streams of uvloop are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer."""
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        try:
            response = self._answer.feed(data)
        except ProtocolError as error:
            self._waiter.set_exception(error)
            return
        if response:
            self._waiter.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        """End; an answer without a stated length is complete now."""
        self._lost = True
        if self._waiter and not self._waiter.done():
            response = None if error else self._answer.at_end()
            if response:
                self._waiter.set_result(response)
            else:
                self._waiter.set_exception(
                    error or ConnectionResetError("the connection was cut before the answer")
                )


class _Answer:
    """An answer as far as it has come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body_at = 0
        self._length: int | None = None
        self._chunks: _Chunks | None = None

    def feed(self, data: bytes) -> Response | None:
        """Take more bytes; gives the answer once it is complete. What comes behind it is left unread."""
        self._buffer += data
        while not self._status:
            if not self._read_head():
                return None
        if self._status in _WITHOUT_BODY:
            return self._response(b"")
        if self._chunks:
            body = self._chunks.read(self._buffer)
            return None if body is None else self._response(body)
        end = len(self._buffer) if self._length is None else self._body_at + self._length
        if end - self._body_at > _BODY_LIMIT:
            raise ProtocolError("the answer is longer than any of Slurm's")
        if self._length is None or len(self._buffer) < end:
            return None
        return self._response(bytes(memoryview(self._buffer)[self._body_at : end]))

    def at_end(self) -> Response | None:
        """Give the answer if the end of the connection is its end."""
        if not self._status or self._chunks or self._length is not None:
            return None
        return self._response(bytes(memoryview(self._buffer)[self._body_at :]))

    def _response(self, body: bytes) -> Response:
        return Response(self._status, self._headers, body)

    def _read_head(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ProtocolError("the head of the answer does not end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) == 1 or not (words[1].isascii() and words[1].isdigit()):
            raise ProtocolError(f"the answer begins with {first[:40]!r}")
        status = int(words[1][:4])
        if status < HTTPStatus.OK:  # an interim answer; the real one follows
            del self._buffer[: end + len(_END_OF_HEAD)]
            return bool(self._buffer)
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._status, self._body_at = status, end + len(_END_OF_HEAD)
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunks = _Chunks(self._body_at)
        elif "content-length" in self._headers:
            self._length = _number(self._headers["content-length"], base=10)
        return True


class _Chunks:
    """A body that comes in chunks, each with its length in front."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._body = bytearray()

    def read(self, buffer: bytearray) -> bytes | None:
        """Go on reading; gives the body once its last chunk is there."""
        while (end := buffer.find(b"\r\n", self._at, self._at + _CHUNK_LINE)) >= 0:
            size = _number(buffer[self._at : end].decode("latin-1").split(";")[0].strip(), base=16)
            start = end + 2
            if size == 0:
                # Trailers are allowed behind the last chunk, but nobody sends any: an empty line ends the body.
                return bytes(self._body) if buffer.find(b"\r\n", start) >= 0 else None
            if len(buffer) < start + size + 2:
                return None
            self._body += memoryview(buffer)[start : start + size]
            self._at = start + size + 2
            if len(self._body) > _BODY_LIMIT:
                raise ProtocolError("the answer is longer than any of Slurm's")
        if len(buffer) - self._at >= _CHUNK_LINE:
            raise ProtocolError("a chunk of the answer has no length")
        return None


def _number(text: str, *, base: int) -> int:
    if not _NUMBERS[base].fullmatch(text):
        raise ProtocolError(f"the answer has the length {text[:20]!r}")
    return int(text, base)
