"""Asks a container runtime whether it is ready for a kubelet.

containerd listens some time before the side of it that Kubernetes speaks to has begun, longest when it has old
containers to look through, and a kubelet that asks too early gives up and ends. One gRPC call tells; written out as
the HTTP/2 frames that it is, because no library for it is worth its weight here.
"""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GO_AWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_NO_MESSAGE = bytes(5)  # not compressed, zero bytes long: a request without fields
_REQUEST = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/runtime.v1.RuntimeService/Version",
    ":authority": "localhost",
    "content-type": "application/grpc",
    "te": "trailers",
}


def is_ready(runtime: Path) -> bool:
    """Whether the runtime behind this socket answers a version request."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(runtime))
            connection.sendall(
                _PREFACE
                + _frame(_SETTINGS)
                + _frame(_HEADERS, b"".join(map(_header, _REQUEST.items())), flags=_END_HEADERS, stream=1)
                + _frame(_DATA, _NO_MESSAGE, flags=_END_STREAM, stream=1)
            )
            # A version comes as data; an error has only headers, the last of which end the stream.
            for kind, flags in _frames(connection):
                if kind == _DATA:
                    return True
                if kind in (_RESET, _GO_AWAY) or (kind == _HEADERS and flags & _END_STREAM):
                    return False
    except OSError:
        return False
    return False


def _frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _header(pair: tuple[str, str]) -> bytes:
    """A header that is not in, nor to be kept in, any table of either side."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in pair)


def _frames(connection: socket.socket) -> Iterator[tuple[int, int]]:
    """The kind and flags of each frame that arrives, until the other side closes."""
    with connection.makefile("rb") as stream:
        while len(head := stream.read(9)) == 9:  # noqa: PLR2004 - the length of every frame's head
            stream.read(int.from_bytes(head[:3], "big"))
            yield head[3], head[4]
