"""TLS between a socket and a connection, which leaves the socket alone when nothing more is wanted.

The event loops' own TLS reads the socket even while its user pauses, and wakes up for every record. Here a pause
reaches the socket: what comes meanwhile waits in the kernel, and is read in one go.
"""

import asyncio
import ssl
from typing import Any, cast

_RECORD = 1 << 14
"""TLS records hold no more than this, and each read gives the rest of one record."""


class Secured(asyncio.Protocol, asyncio.Transport):
    """Below, a protocol that speaks TLS; above, the transport of a protocol that knows nothing of it."""

    def __init__(self, above: asyncio.Protocol, context: ssl.SSLContext, *, server_name: str) -> None:
        super().__init__()
        self._above = above
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._below: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed: Exception | None = None

    async def handshake(self) -> None:
        """Wait until both sides trust each other; raises OSError where they do not."""
        try:
            await self._ready
        except BaseException:
            self.abort()
            raise
        self._above.connection_made(self)

    # For the protocol above

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        left = memoryview(data)
        try:
            while left:  # one record is taken at a time
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def abort(self) -> None:
        """End at once."""
        if self._below:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._below is None or self._failed is not None or self._below.is_closing()

    def pause_reading(self) -> None:
        """Leave what comes to the kernel."""
        cast("asyncio.Transport", self._below).pause_reading()

    def resume_reading(self) -> None:
        cast("asyncio.Transport", self._below).resume_reading()

    # For the event loop below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast("asyncio.Transport", transport)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._ready.done() or self._shake_hands():
            self._read()

    def eof_received(self) -> bool:
        """Handle an end of stream that the peer did not announce, and that an attacker may have caused."""
        self._failed = self._failed or ConnectionResetError("the connection was closed")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        error = self._failed or error
        if not self._ready.done():
            self._ready.set_exception(
                error or ConnectionResetError("the connection was closed during the TLS handshake")
            )
            self._ready.exception()  # retrieved, even if no caller waits any more
        self._above.connection_lost(error)

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._flush()
        self._ready.set_result(None)
        return True

    def _read(self) -> None:
        pieces: list[bytes] = []
        ended = False
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(_RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()  # answers the peer's request for new keys, if there was one
        if pieces:
            self._above.data_received(b"".join(pieces))
        if ended and self._below:
            self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below:
            self._below.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        self._failed = error
        self._flush()  # tells the other side why
        if self._below:
            self._below.close()
