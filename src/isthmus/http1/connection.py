"""A connection on which one request after the other is answered, and those that rest between requests.

The first answer to a request counts, and a connection with a byte that was not requested is dead: slurmrestd
answers some requests twice, and the second answer must not be taken for that to the next request.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from isthmus.http1.answer import Answer, Head, ProtocolError

LARGEST = 1 << 30
"""No whole answer is longer: 100,000 pods or half a million jobs in full are not."""

_LARGE = 4 << 20
"""The pieces of longer answers are put together as they come. Otherwise there would be twice as much of a list of
10,000 jobs in memory, and small pieces are not given back to the system.
"""

_BREATH = 0.002
"""A stream is read again this many seconds after it last brought something, and not at every byte.

A server that sends event after event wakes us up for each, which costs more than reading it. What comes meanwhile
is read at once, and what comes after a pause is not delayed.
"""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: bytes


Peek = Callable[[Head, Sequence[bytes]], bool]
"""Looks at the beginning of an answer, its head and the pieces of its body; says whether it has seen enough."""


class Connection(asyncio.Protocol):
    """A connection to a server. Whatever goes wrong on it, it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._pieces: list[bytes] = []
        self._gathered: bytearray | None = None
        self._size = 0
        self._whole = False
        """Whether only the end of the answer is worth waking up for."""
        self._peek: Peek | None = None
        self._paused = False
        """Whether nothing more of a stream is wanted before what came has been read."""
        self._breathe_until = 0.0
        self._trouble: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        # One alarm serves many requests: it is looked at when it rings, not set anew for each of them.
        self._alarm: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._patience = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        transport = self._transport
        return (
            transport is not None and self._answer is None and self._trouble is None and not transport.is_closing()
        )

    @property
    def transport(self) -> asyncio.Transport:
        """What the bytes go through."""
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        return self._transport

    async def exchange(
        self, request: bytes, *, patience: float, peek: Peek | None = None, tunnel: bool = False
    ) -> Response:
        """Send a request and wait for its whole answer.

        `peek` is shown what there is of the answer whenever more comes, until it says that it has seen enough.
        `tunnel` says that the request is a CONNECT.
        """
        self._whole = True
        self._peek = peek
        answer = self._send(request, tunnel=tunnel)
        self._expect(patience)
        try:
            while not answer.complete:
                await self._wait()
        except BaseException:
            self.close()
            raise
        finally:
            self._peek = None
        head = cast("Head", answer.head)
        body = self._take()
        self._finish(answer)
        return Response(head.status, head.headers, body)

    async def begin(self, request: bytes, *, patience: float | None) -> Head:
        """Send a request and wait for the head of its answer, whose body is then to be `read`."""
        self._whole = False
        answer = self._send(request)
        try:
            while answer.head is None:
                self._expect(patience)
                await self._wait()
        except BaseException:
            self.close()
            raise
        return answer.head

    async def read(self, *, patience: float | None) -> bytes:
        """Wait for more of the body; nothing is its end. Gives up after `patience` seconds without a byte."""
        answer = self._answer
        if answer is None:
            return b""
        try:
            while not self._pieces and not answer.complete:
                self._expect(patience)
                if self._paused:
                    self._loop.call_at(self._breathe_until, self._resume)
                await self._wait()
        except BaseException:
            self.close()
            raise
        if self._pieces:
            return self._take()
        self._finish(answer)
        return b""

    def close(self) -> None:
        """End the connection without waiting for anything that is still under way."""
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if self._transport:
            self._transport.abort()

    def _send(self, request: bytes, *, tunnel: bool = False) -> Answer:
        if not self.usable or self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._answer = answer = Answer(tunnel=tunnel)
        self._transport.write(request)
        return answer

    def _finish(self, answer: Answer) -> None:
        self._answer = None
        self._resume()
        if answer.excess or answer.head is None or answer.head.last:
            self.close()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if not self._whole or self._peek or self._size < _LARGE:
            self._pieces.append(piece)
            return
        if self._gathered is None:
            self._gathered = bytearray(b"".join(self._pieces))
            self._pieces = []
        self._gathered += piece

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        gathered, self._gathered = self._gathered, None
        self._size = 0
        if gathered is not None:
            # Readers of whole answers can do the same with this, and a copy would be as large again.
            return cast("bytes", gathered)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self.transport.resume_reading()
        self._paused = False

    # Waiting

    async def _wait(self) -> None:
        """Wait until data arrives or an error occurs; a caller that needs more waits again."""
        if self._trouble:
            raise self._trouble
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, trouble: Exception) -> None:
        if self._trouble is None:
            self._trouble = trouble
        self._wake()
        self.close()

    def _expect(self, patience: float | None) -> None:
        """Fail callers that still wait after so many seconds."""
        if patience is None:
            self._deadline = float("inf")
            return
        self._patience = patience
        self._deadline = self._loop.time() + patience
        if self._alarm and self._alarm.when() > self._deadline:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._waiter is None or self._deadline == float("inf"):
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError(f"no answer within {self._patience:g} s"))
        else:
            self._alarm = self._loop.call_at(self._deadline, self._ring)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or begin again inside of a tunnel."""
        # Not checked but believed: the streams of uvloop are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self._fail(ProtocolError("the server sent data without a request"))
            return
        try:
            pieces = answer.feed(data)
        except ProtocolError as error:
            self._fail(error)
            return
        for piece in pieces:
            self._add(piece)
        if not self._whole:
            if answer.head and not self._paused:
                self._paused = True
                self._breathe_until = self._loop.time() + _BREATH
                self.transport.pause_reading()
            self._wake()
        elif answer.complete:
            self._wake()
        elif self._peek and answer.head and self._peek(answer.head, self._pieces):
            self._peek = None
        elif self._size > LARGEST:
            self._fail(ProtocolError(f"the response is longer than {LARGEST >> 20} MiB"))

    def connection_lost(self, error: Exception | None) -> None:
        """End; an answer without a stated length is complete now."""
        answer = self._answer
        if answer and not answer.complete and error is None:
            answer.end()
        if answer and answer.complete:
            self._trouble = self._trouble or ConnectionResetError("the connection is closed")
            self._wake()
        else:
            self._fail(error or ConnectionResetError("the connection was closed before the response"))


class Pool:
    """Connections that rest, to be used again, the latest first."""

    def __init__(self, *, longest_rest: float) -> None:
        """Keep each for so many seconds: the other end may close one at the very moment we use it."""
        self._longest_rest = longest_rest
        self._resting: list[tuple[float, Connection]] = []

    def take(self) -> Connection | None:
        """Find a connection that rested not too long."""
        while self._resting:
            since, connection = self._resting.pop()
            if connection.usable and time.monotonic() - since < self._longest_rest:
                return connection
            connection.close()
        return None

    def put(self, connection: Connection) -> None:
        """Let a connection rest if it can be used again, else end it."""
        if connection.usable:
            self._resting.append((time.monotonic(), connection))
        else:
            connection.close()

    def close(self) -> None:
        """End all that rest."""
        for _, connection in self._resting:
            connection.close()
        self._resting.clear()
