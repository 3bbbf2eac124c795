"""One answer of an HTTP/1.1 server, made from its bytes as they come. Nothing here waits for anything."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

_HEAD_LIMIT = 1 << 16
_END_OF_LINE = b"\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_SIZE_LINE = 128
"""No chunk announces its size in more bytes than this, extensions included."""

_NUMBERS = {10: re.compile(r"[0-9]{1,15}", re.ASCII), 16: re.compile(r"[0-9A-Fa-f]{1,12}", re.ASCII)}
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class ProtocolError(ConnectionError):
    """What came is not HTTP/1.1."""


class Head(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names are in lower case."""
    last: bool
    """Whether the server sends nothing more on this connection."""


class Answer:
    __slots__ = ("_chunked", "_gap", "_held", "_left", "_tunnel", "complete", "excess", "head")

    def __init__(self, *, tunnel: bool = False) -> None:
        """Expect an answer; with `tunnel`, to a CONNECT, whose success has no body."""
        self.head: Head | None = None
        self.complete = False
        self.excess = False
        """Whether bytes followed the response without a request."""
        self._tunnel = tunnel
        self._held = b""
        """Bytes that mean nothing before more of them come: of a head, or of the line before a chunk."""
        self._chunked = False
        self._left: int | None = 0
        """How much of the body, or of the present chunk, is still to come; None if unknown."""
        self._gap = 0
        """The line end behind the chunk before, which stands in front of the next one's size."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes; return the pieces of the body among them. What comes behind the answer is dropped."""
        if self.complete:
            self.excess = True
            return []
        if self._held:
            data = self._held + data
            self._held = b""
        at = 0
        while self.head is None:
            end = data.find(_END_OF_HEAD, at)
            if end < 0:
                if len(data) - at > _HEAD_LIMIT:
                    raise ProtocolError("the header of the response is too long")
                self._held = data[at:]
                return []
            self._read_head(data[at:end])
            at = end + len(_END_OF_HEAD)
        if self._chunked:
            return self._read_chunks(data, at)
        piece = data[at:] if self._left is None else data[at : at + self._left]
        if self._left is not None:
            self._left -= len(piece)
            self.complete = not self._left
            self.excess = at + len(piece) < len(data)
        return [piece] if piece else []

    def end(self) -> None:
        """Take the end of the connection, which completes an answer that did not state its length."""
        if self.head and self._left is None and not self._chunked:
            self.complete = True

    def _read_head(self, text: bytes) -> None:
        first, *lines = text.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) == 1 or not (words[1].isascii() and words[1].isdigit()):
            raise ProtocolError(f"the response starts with {first[:40]!r}")
        status = int(words[1][:4])
        if status < HTTPStatus.OK:  # an interim answer; the real one follows
            return
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        last = words[0] == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        coding = headers.get("transfer-encoding", "").lower()
        if self._tunnel and status < HTTPStatus.MULTIPLE_CHOICES:
            last = False  # whatever the proxy says of itself: from here on the connection is another one's
        elif status in _WITHOUT_BODY:
            self._left = 0
        elif coding == "chunked":
            self._chunked = True
        elif coding:
            raise ProtocolError(f"the response has the unsupported encoding {coding[:40]!r}")
        elif "content-length" in headers:
            self._left = _number(headers["content-length"], base=10)
        else:
            self._left = None
            last = True
        self.head = Head(status, headers, last)

    def _read_chunks(self, data: bytes, at: int) -> list[bytes]:
        pieces: list[bytes] = []
        while not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                if not piece:
                    return pieces
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
            elif self._left is None:
                at = self._read_trailers(data, at)
            else:
                at = self._read_size(data, at)
            if at < 0:
                return pieces
        self.excess = at < len(data)
        return pieces

    def _read_size(self, data: bytes, at: int) -> int:
        """Read the line before a chunk; return where it ends, or less than 0 as long as it does not."""
        begin = at + self._gap
        end = data.find(_END_OF_LINE, begin, begin + _SIZE_LINE)
        if end < 0:
            if len(data) - at >= _SIZE_LINE:
                raise ProtocolError("a chunk of the response has no length")
            self._held = data[at:]
            return -1
        if self._gap and not data.startswith(_END_OF_LINE, at):
            raise ProtocolError("a chunk of the response is longer than its length")
        # Behind the last chunk, whose size is 0, an empty line ends the body, with trailers before it or without.
        self._left = _number(data[begin:end].decode("latin-1").partition(";")[0].strip(), base=16) or None
        self._gap = len(_END_OF_LINE)
        return end + len(_END_OF_LINE)

    def _read_trailers(self, data: bytes, at: int) -> int:
        """Skip what may stand behind the last chunk; return as `_read_size` does."""
        if data.startswith(_END_OF_LINE, at):
            self.complete = True
            return at + len(_END_OF_LINE)
        end = data.find(_END_OF_HEAD, at)
        if end < 0:
            if len(data) - at > _HEAD_LIMIT:
                raise ProtocolError("the trailers of the response are too long")
            self._held = data[at:]
            return -1
        self.complete = True
        return end + len(_END_OF_HEAD)


def _number(text: str, *, base: int) -> int:
    if not _NUMBERS[base].fullmatch(text):
        raise ProtocolError(f"the response has the invalid length {text[:20]!r}")
    return int(text, base)
