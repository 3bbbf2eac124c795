"""How bytes move through a fault proxy, and where the faults strike on their way."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn, Protocol
from urllib.parse import urlsplit

from tests.bed import http1
from tests.bed.fault_rules import Cut, Delay, Duplicate, Exchange, Fault, Hang, HoldBack, LoseAnswer, Respond

_PIECE = 1 << 16


class Traffic(Protocol):
    """What a connection asks of the proxy that it belongs to."""

    async def begin(self, method: str, target: str) -> Exchange:
        """Record a request and find out what is to happen to it."""

    async def flowing(self) -> None:
        """Return when bytes may move."""

    async def connect(self) -> "Peer":
        """Open a connection to the real part."""


@dataclass(frozen=True)
class Target:
    """Where the real part listens."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    speaks_http: bool

    @classmethod
    def parse(cls, url: str, *, tls: ssl.SSLContext | None) -> "Target":
        """Read a URL of one of the schemes that the module's docstring names."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https", "tcp", "http+unix", "unix"}:
            raise ValueError(f"{url!r} is none of http, https, tcp, http+unix and unix")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
        speaks_http = parts.scheme in {"http", "http+unix"} or (parts.scheme == "https" and tls is not None)
        return cls(url, parts.scheme, parts.hostname or "", port, parts.path, tls, speaks_http)


class Over(Exception):  # noqa: N818 - no error: the connection has come to its end
    """Raised by one half of a connection to end the other half, too."""


class Peer:
    """One side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def adopt(cls, accepted: socket.socket, *, tls: ssl.SSLContext | None) -> "Peer":
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http1.MAX_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @classmethod
    async def connect(cls, target: Target) -> "Peer":
        if target.host:
            # In bytes mode the client's own TLS runs through us, end to end.
            tls = target.tls if target.scheme == "https" and target.speaks_http else None
            return cls(*await asyncio.open_connection(target.host, target.port, ssl=tls, limit=http1.MAX_HEAD))
        return cls(*await asyncio.open_unix_connection(target.path, limit=http1.MAX_HEAD))

    async def send(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            # uvloop takes it for a mistake to write to somebody who has just left.
            raise ConnectionResetError("the connection is closed")
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        if self._tls_is_closed:
            return
        # A TLS peer that does not close in turn would hold us for half a minute: end the TCP connection under it.
        if self.writer.get_extra_info("ssl_object") and not self.writer.transport.get_write_buffer_size():
            self.writer.transport.abort()
        self.writer.close()

    def reset(self) -> None:
        """End with a TCP reset, so that the other side sees an error and no orderly end."""
        if self._tls_is_closed:
            return
        raw = self.writer.get_extra_info("socket")
        if raw is not None and raw.family == socket.AF_INET and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    @property
    def _tls_is_closed(self) -> bool:
        """Whether this was TLS that is closed: asking its transport for anything fails."""
        return getattr(self.writer.transport, "_ssl_protocol", self) is None


class _Connection:
    """What the two kinds of connection share: the answer's way back to the client, with its faults."""

    def __init__(self, proxy: Traffic, client: Peer) -> None:
        self.proxy = proxy
        self.client = client
        self.part: Peer | None = None

    async def serve(self) -> None:
        """Run both halves until one of them says that it is over."""
        try:
            async with asyncio.TaskGroup() as group:
                await self.requests(group)
        except* (Over, OSError, asyncio.IncompleteReadError):
            # The end of a connection is an event for the client under test, not for the proxy.
            pass
        finally:
            self.client.close()
            if self.part:
                self.part.close()

    async def requests(self, group: asyncio.TaskGroup) -> None:
        raise NotImplementedError

    async def reach_part(self) -> Peer:
        """Connect to the real part; when it is away, the client sees a reset, as if it had reached it itself."""
        try:
            return await self.proxy.connect()
        except OSError:
            self.client.reset()
            raise

    def cut(self, fault: Cut) -> NoReturn:
        if fault.reset:
            self.client.reset()
        raise Over

    async def silence(self) -> NoReturn:
        """Swallow what the client says until it leaves."""
        while await self.client.reader.read(_PIECE):
            pass
        raise Over

    async def start(self, fault: Fault | None) -> None:
        """Do what a fault does before the part hears of the exchange."""
        match fault:
            case Cut(after_bytes=None):
                self.cut(fault)
            case Hang(after_bytes=None):
                await self.silence()
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)

    async def send_back(self, data: bytes, *, fault: Fault | None, sent: int) -> int:
        """Give the client a piece of the answer, of which it has `sent` bytes already; return the new count."""
        await self.proxy.flowing()
        if isinstance(fault, Cut | Hang) and fault.after_bytes is not None:
            allowed = data[: max(0, fault.after_bytes - sent)]
            if allowed:
                await self.client.send(allowed)
            if sent + len(data) >= fault.after_bytes:
                if isinstance(fault, Cut):
                    self.cut(fault)
                # The half that reads requests notices when the client leaves.
                await asyncio.Event().wait()
            return sent + len(allowed)
        await self.client.send(data)
        return sent + len(data)


class HttpConnection(_Connection):
    """One half reads requests ahead, so that it notices a client that leaves; the other relays answers.

    A request is passed on only after the answer to the one before it is through. Nothing that the part sends is
    held back between answers: a second answer that nobody asked for reaches the client like any other.
    """

    def __init__(self, proxy: Traffic, client: Peer) -> None:
        super().__init__(proxy, client)
        self._idle = asyncio.Event()
        self._idle.set()
        self._exchange: Exchange | None = None

    async def requests(self, group: asyncio.TaskGroup) -> None:
        while True:
            head = await http1.read_head(self.client.reader)
            await self._idle.wait()
            await self.proxy.flowing()
            exchange = await self.proxy.begin(head.method, head.target)
            await self._one(head, exchange, group)

    async def _one(self, head: http1.Head, exchange: Exchange, group: asyncio.TaskGroup) -> None:
        fault = exchange.fault
        await self.start(fault)
        match fault:
            case Respond(raw=raw, status=status):
                async for _ in http1.request_body(self.client.reader, head):
                    pass
                exchange.status = status
                await self.client.send(raw)
                return
            case HoldBack(until=until):
                body = b"".join([piece async for piece in http1.request_body(self.client.reader, head)])
                self.client.close()
                await until.wait()
                late = await self.reach_part()
                try:
                    await late.send(head.raw + body)
                    exchange.status = (await http1.read_head(late.reader)).status
                finally:
                    late.close()
                raise Over
        if self.part is None:
            self.part = await self.reach_part()
            group.create_task(self._answers(self.part))
        self._exchange = exchange
        self._idle.clear()
        await self.part.send(head.raw)
        async for piece in http1.request_body(self.client.reader, head):
            await self.proxy.flowing()
            await self.part.send(piece)

    async def _answers(self, part: Peer) -> None:
        while True:
            try:
                head = await http1.read_head(part.reader)
            except asyncio.IncompleteReadError as end:
                # slurmrestd may close in the middle of an answer that nobody asked for.
                await self.send_back(end.partial, fault=None, sent=0)
                raise Over from end
            exchange = self._exchange
            fault = exchange.fault if exchange else None
            method = exchange.method if exchange else ""
            if exchange and exchange.status is None and head.status >= HTTPStatus.OK:
                exchange.status = head.status
            if head.status < HTTPStatus.OK:
                await self.client.send(head.raw)
            else:
                await self._relay(head, fault, http1.answer_body(part.reader, head, method))
                self._exchange = None
                self._idle.set()

    async def _relay(self, head: http1.Head, fault: Fault | None, body: AsyncIterator[bytes]) -> None:
        if isinstance(fault, Duplicate | LoseAnswer):
            whole = head.raw + b"".join([piece async for piece in body])
            if isinstance(fault, LoseAnswer):
                raise Over
            await self.client.send(whole + whole)
            return
        sent = await self.send_back(head.raw, fault=fault, sent=0)
        async for piece in body:
            sent = await self.send_back(piece, fault=fault, sent=sent)


class ByteConnection(_Connection):
    """Moves bytes both ways; the whole connection is one exchange."""

    async def requests(self, group: asyncio.TaskGroup) -> None:
        exchange = await self.proxy.begin("CONNECT", "*")
        fault = exchange.fault
        await self.start(fault)
        self.part = await self.reach_part()
        group.create_task(self._back(self.part, fault))
        while piece := await self.client.reader.read(_PIECE):
            await self.proxy.flowing()
            await self.part.send(piece)
        raise Over

    async def _back(self, part: Peer, fault: Fault | None) -> None:
        sent = 0
        while piece := await part.reader.read(_PIECE):
            sent = await self.send_back(piece, fault=fault, sent=sent)
        raise Over
