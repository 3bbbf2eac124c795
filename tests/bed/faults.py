"""A proxy in front of a real part, which breaks what a test wants broken and passes on the rest byte for byte.

    async with faults.in_front_of("http://127.1.2.3:6820") as proxy:      # the client is given proxy.url
        proxy.lose_answer(method="POST", path="*/job/submit", times=1)    # applied, but nobody is told
        proxy.respond(503, path="*/jobs/state*", times=3)
        …
        assert proxy.count(method="POST", path="*/job/submit") == 1

In front of `http://…`, of `http+unix:///path`, and of `https://…` with certificates given, the proxy understands
HTTP/1.1 and rules are per request. In front of `tcp://…`, `unix:///path` and `https://…` without certificates it
moves bytes only, and rules are per connection. The first rule that matches is the one that is used.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import pytest

from tests.bed import http1

_LOOPBACK = "127.0.0.1"
_PIECE = 1 << 16


@dataclass(frozen=True)
class Delay:
    """Pass everything on, but later."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """End the connection: before anything is passed on, or after so many bytes of the answer."""

    after_bytes: int | None
    reset: bool


@dataclass(frozen=True)
class Hang:
    """Go silent with the connection open: at once, or after so many bytes of the answer."""

    after_bytes: int | None


@dataclass(frozen=True)
class Respond:
    """Answer in the part's place; the part never sees the request."""

    raw: bytes
    status: int


@dataclass(frozen=True)
class Duplicate:
    """Send the part's answer twice on one connection, as slurmrestd does when it timed out."""


@dataclass(frozen=True)
class LoseAnswer:
    """Let the part do the work and answer in full, then drop the connection without a word of it."""


Fault = Delay | Cut | Hang | Respond | Duplicate | LoseAnswer


@dataclass
class Rule:
    """One fault and what it strikes. `used` counts the strikes; `times` bounds them, None for no bound."""

    fault: Fault
    method: str
    path: str
    times: int | None
    used: int = 0

    def strikes(self, method: str, target: str) -> bool:
        """Say whether this rule is for that request, which it may give with or without its query."""
        if self.times is not None and self.used >= self.times:
            return False
        return _matches(method, target, self.method, self.path)

    def remove(self) -> None:
        """Strike no more."""
        self.times = self.used


@dataclass
class Exchange:
    """One request that reached the proxy (in bytes mode: one connection) and what became of it.

    `status` is what the part or the proxy answered, None as long as nobody has. `fault` is the rule that struck.
    """

    method: str
    path: str
    status: int | None = None
    fault: Fault | None = None


class Proxy:
    """Made by `in_front_of`. Rules may come and go while requests are under way."""

    def __init__(self, target: "Target", listen_on: str | Path, *, server_tls: ssl.SSLContext | None) -> None:
        self.seen: list[Exchange] = []
        self._target = target
        self._rules: list[Rule] = []
        self._listen_on = listen_on
        self._server_tls = server_tls
        self._listener = self._bind(0)
        self._connections: dict[asyncio.Task[None], None] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._news = asyncio.Condition()
        self._group: asyncio.TaskGroup

    # --- where clients connect -----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address for the client, with the scheme that the real part has."""
        scheme = self._target.scheme
        if isinstance(self._listen_on, Path):
            return f"{'http+unix' if self._target.speaks_http else 'unix'}://{self._listen_on}"
        scheme = {"http+unix": "http", "unix": "tcp"}.get(scheme, scheme)
        return f"{scheme}://{_LOOPBACK}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port that clients connect to."""
        return int(self._listener.getsockname()[1])

    # --- faults --------------------------------------------------------------------------------------------------

    def delay(self, seconds: float, *, method: str = "*", path: str = "*", times: int | None = None) -> Rule:
        """Pass requests on only after `seconds`."""
        return self._add(Delay(seconds), method=method, path=path, times=times)

    def cut(
        self,
        *,
        after_bytes: int | None = None,
        reset: bool = False,
        method: str = "*",
        path: str = "*",
        times: int | None = None,
    ) -> Rule:
        """End the connection, with a TCP reset if asked.

        Without `after_bytes` the part never sees the request. With it the part does, and the client gets that many
        bytes of the answer, counted from the status line.
        """
        return self._add(Cut(after_bytes, reset), method=method, path=path, times=times)

    def hang(
        self, *, after_bytes: int | None = None, method: str = "*", path: str = "*", times: int | None = None
    ) -> Rule:
        """Go silent for good on that connection; `after_bytes` as for `cut`."""
        return self._add(Hang(after_bytes), method=method, path=path, times=times)

    def respond(
        self,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        method: str = "*",
        path: str = "*",
        times: int | None = None,
    ) -> Rule:
        """Answer in the part's place."""
        self._needs_http("respond")
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        raw = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        return self._add(Respond(raw, status), method=method, path=path, times=times)

    def duplicate(self, *, method: str = "*", path: str = "*", times: int | None = None) -> Rule:
        """Send the part's answer twice."""
        self._needs_http("duplicate")
        return self._add(Duplicate(), method=method, path=path, times=times)

    def lose_answer(self, *, method: str = "*", path: str = "*", times: int | None = None) -> Rule:
        """Have the request applied, and drop the connection instead of answering."""
        self._needs_http("lose_answer")
        return self._add(LoseAnswer(), method=method, path=path, times=times)

    def refuse(self) -> None:
        """Be gone like a killed process: open connections are reset, new ones refused, until `heal`."""
        if not self._listening:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        port = 0 if isinstance(self._listen_on, Path) else self.port
        self._listener.close()
        # Bound without listening: connecting to it is refused, and nobody else can take the address meanwhile.
        self._listener = self._bind(port)
        for connection in self._connections:
            connection.cancel()

    def freeze(self) -> None:
        """Move no byte in either direction, on open and on new connections, until `heal`."""
        self._flowing.clear()

    def heal(self) -> None:
        """Forget all rules, listen and let bytes flow. Connections that a rule silenced stay silent."""
        self._rules.clear()
        self._flowing.set()
        if not self._listening:
            self._listen()

    # --- what passed ---------------------------------------------------------------------------------------------

    def exchanges(self, *, method: str = "*", path: str = "*") -> list[Exchange]:
        """What of `seen` was for that method and path."""
        return [exchange for exchange in self.seen if _matches(exchange.method, exchange.path, method, path)]

    def count(self, *, method: str = "*", path: str = "*") -> int:
        """How many requests came for that method and path, whatever became of them."""
        return len(self.exchanges(method=method, path=path))

    async def until_seen(self, *, method: str = "*", path: str = "*", times: int = 1, within: float = 30) -> None:
        """Wait until so many requests of that kind have come since the proxy began."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: self.count(method=method, path=path) >= times)

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _listening(self) -> bool:
        return bool(self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def _needs_http(self, fault: str) -> None:
        if not self._target.speaks_http:
            raise ValueError(
                f"{fault} needs a proxy that reads HTTP, and this one moves bytes for {self._target.scheme}:// only"
            )

    def _add(self, fault: Fault, *, method: str, path: str, times: int | None) -> Rule:
        if (method, path) != ("*", "*"):
            self._needs_http("a rule for a method or path")
        rule = Rule(fault, method, path, times)
        self._rules.append(rule)
        return rule

    def _bind(self, port: int) -> socket.socket:
        if isinstance(self._listen_on, Path):
            self._listen_on.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self._listen_on))
        else:
            # The protocol is named because asyncio turns Nagle's delay off only where it reads TCP.
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._listen_on, port))
        listener.setblocking(False)  # noqa: FBT003 - its only form
        return listener

    def _listen(self) -> None:
        self._listener.listen()
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            task = self._group.create_task(self._serve(accepted))
            self._connections[task] = None
            task.add_done_callback(self._connections.pop)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            client = await _Peer.adopt(accepted, tls=self._server_tls)
        except OSError:
            accepted.close()
            return
        connection = _HttpConnection(self, client) if self._target.speaks_http else _ByteConnection(self, client)
        try:
            await connection.serve()
        except asyncio.CancelledError:
            client.reset()
            raise

    async def begin(self, method: str, target: str) -> Exchange:
        """Record a request and find out what is to happen to it."""
        exchange = Exchange(method, target)
        for rule in self._rules:
            if rule.strikes(method, target):
                rule.used += 1
                exchange.fault = rule.fault
                break
        self.seen.append(exchange)
        async with self._news:
            self._news.notify_all()
        return exchange

    async def flowing(self) -> None:
        """Return when bytes may move."""
        await self._flowing.wait()

    async def connect(self) -> "_Peer":
        """Open a connection to the real part."""
        return await _Peer.connect(self._target)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        """Serve as long as the block lasts."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._listen()
                try:
                    yield self
                finally:
                    asyncio.get_running_loop().remove_reader(self._listener)
                    for connection in self._connections:
                        connection.cancel()
        finally:
            self._listener.close()
            if isinstance(self._listen_on, Path):
                self._listen_on.unlink(missing_ok=True)


@dataclass(frozen=True)
class Target:
    """Where the real part listens."""

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
        return cls(parts.scheme, parts.hostname or "", port, parts.path, tls, speaks_http)


class _Over(Exception):  # noqa: N818 - no error: the connection has come to its end
    """Raised by one half of a connection to end the other half, too."""


class _Peer:
    """One side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def adopt(cls, accepted: socket.socket, *, tls: ssl.SSLContext | None) -> "_Peer":
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http1.MAX_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @classmethod
    async def connect(cls, target: Target) -> "_Peer":
        if target.host:
            # In bytes mode the client's own TLS runs through us, end to end.
            tls = target.tls if target.scheme == "https" and target.speaks_http else None
            return cls(*await asyncio.open_connection(target.host, target.port, ssl=tls, limit=http1.MAX_HEAD))
        return cls(*await asyncio.open_unix_connection(target.path, limit=http1.MAX_HEAD))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        # A TLS peer that does not close in turn would hold us for half a minute: end the TCP connection under it.
        if self.writer.get_extra_info("ssl_object") and not self.writer.transport.get_write_buffer_size():
            self.writer.transport.abort()
        self.writer.close()

    def reset(self) -> None:
        """End with a TCP reset, so that the other side sees an error and no orderly end."""
        if getattr(self.writer.transport, "_ssl_protocol", self) is None:
            return  # TLS that was closed before; asking such a transport for anything fails.
        raw = self.writer.get_extra_info("socket")
        if raw is not None and raw.family == socket.AF_INET and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class _Connection:
    """What the two kinds of connection share: the answer's way back to the client, with its faults."""

    def __init__(self, proxy: Proxy, client: _Peer) -> None:
        self.proxy = proxy
        self.client = client
        self.part: _Peer | None = None

    async def serve(self) -> None:
        """Run both halves until one of them says that it is over."""
        try:
            async with asyncio.TaskGroup() as group:
                await self.requests(group)
        except* (_Over, OSError):
            # The end of a connection is an event for the client under test, not for the proxy.
            pass
        finally:
            self.client.close()
            if self.part:
                self.part.close()

    async def requests(self, group: asyncio.TaskGroup) -> None:
        raise NotImplementedError

    async def reach_part(self) -> _Peer:
        """Connect to the real part; when it is away, the client sees a reset, as if it had reached it itself."""
        try:
            return await self.proxy.connect()
        except OSError:
            self.client.reset()
            raise

    def cut(self, fault: Cut) -> NoReturn:
        if fault.reset:
            self.client.reset()
        raise _Over

    async def silence(self) -> NoReturn:
        """Swallow what the client says until it leaves."""
        while await self.client.reader.read(_PIECE):
            pass
        raise _Over

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


class _HttpConnection(_Connection):
    """One half reads requests ahead, so that it notices a client that leaves; the other relays answers.

    A request is passed on only after the answer to the one before it is through. Nothing that the part sends is
    held back between answers: a second answer that nobody asked for reaches the client like any other.
    """

    def __init__(self, proxy: Proxy, client: _Peer) -> None:
        super().__init__(proxy, client)
        self._idle = asyncio.Event()
        self._idle.set()
        self._exchange: Exchange | None = None
        self._upgraded = False

    async def requests(self, group: asyncio.TaskGroup) -> None:
        while head := await http1.read_head(self.client.reader):
            await self._idle.wait()
            await self.proxy.flowing()
            exchange = await self.proxy.begin(head.method, head.target)
            await self._one(head, exchange, group)
            if "upgrade" in head.headers:
                await self._idle.wait()
            if self._upgraded:
                await _pour(self.client, self._part(), self.proxy)
        raise _Over

    def _part(self) -> _Peer:
        if self.part is None:
            raise _Over
        return self.part

    async def _one(self, head: http1.Head, exchange: Exchange, group: asyncio.TaskGroup) -> None:
        fault = exchange.fault
        match fault:
            case Cut(after_bytes=None):
                self.cut(fault)
            case Hang(after_bytes=None):
                await self.silence()
            case Respond(raw=raw, status=status):
                async for _ in http1.request_body(self.client.reader, head):
                    pass
                exchange.status = status
                await self.client.send(raw)
                return
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
        if self.part is None:
            self.part = await self.reach_part()
            group.create_task(self._answers(self.part))
        self._exchange = exchange
        self._idle.clear()
        await self.part.send(head.raw)
        async for piece in http1.request_body(self.client.reader, head):
            await self.proxy.flowing()
            await self.part.send(piece)

    async def _answers(self, part: _Peer) -> None:
        while head := await http1.read_head(part.reader):
            exchange = self._exchange
            fault = exchange.fault if exchange else None
            method = exchange.method if exchange else ""
            if exchange and exchange.status is None and head.status >= HTTPStatus.OK:
                exchange.status = head.status
            if head.status == HTTPStatus.SWITCHING_PROTOCOLS:
                await self.client.send(head.raw)
                self._upgraded = True
                self._idle.set()
                await _pour(part, self.client, self.proxy)
            elif head.status < HTTPStatus.OK:
                await self.client.send(head.raw)
            else:
                await self._relay(head, fault, http1.answer_body(part.reader, head, method))
                self._exchange = None
                self._idle.set()
        raise _Over

    async def _relay(self, head: http1.Head, fault: Fault | None, body: AsyncIterator[bytes]) -> None:
        if isinstance(fault, Duplicate | LoseAnswer):
            whole = head.raw + b"".join([piece async for piece in body])
            if isinstance(fault, LoseAnswer):
                raise _Over
            await self.client.send(whole + whole)
            return
        sent = await self.send_back(head.raw, fault=fault, sent=0)
        async for piece in body:
            sent = await self.send_back(piece, fault=fault, sent=sent)


class _ByteConnection(_Connection):
    """Moves bytes both ways; the whole connection is one exchange."""

    async def requests(self, group: asyncio.TaskGroup) -> None:
        exchange = await self.proxy.begin("CONNECT", "*")
        fault = exchange.fault
        match fault:
            case Cut(after_bytes=None):
                self.cut(fault)
            case Hang(after_bytes=None):
                await self.silence()
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
        self.part = await self.reach_part()
        group.create_task(self._back(self.part, fault))
        await _pour(self.client, self.part, self.proxy)

    async def _back(self, part: _Peer, fault: Fault | None) -> None:
        sent = 0
        while piece := await part.reader.read(_PIECE):
            sent = await self.send_back(piece, fault=fault, sent=sent)
        raise _Over


async def _pour(source: _Peer, sink: _Peer, proxy: Proxy) -> None:
    while piece := await source.reader.read(_PIECE):
        await proxy.flowing()
        await sink.send(piece)
    raise _Over


def _matches(method: str, target: str, method_pattern: str, path_pattern: str) -> bool:
    path = target.partition("?")[0]
    return fnmatchcase(method, method_pattern) and (
        fnmatchcase(target, path_pattern) or fnmatchcase(path, path_pattern)
    )


@asynccontextmanager
async def in_front_of(
    target: str,
    *,
    listen_on: Path | None = None,
    server_tls: ssl.SSLContext | None = None,
    part_tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Proxy]:
    """Run a proxy in front of the part at `target`, on a free port of 127.0.0.1 or on the UNIX socket `listen_on`.

    To read HTTP inside TLS, give both contexts: `server_tls` is what clients meet, `part_tls` (with a client
    certificate if the part wants one) is what we are to the part.
    """
    if (server_tls is None) != (part_tls is None):
        raise ValueError(
            "give server_tls and part_tls together: TLS that ends here must begin again towards the part"
        )
    proxy = Proxy(Target.parse(target, tls=part_tls), listen_on or _LOOPBACK, server_tls=server_tls)
    async with proxy.running():
        yield proxy


@dataclass
class Faults:
    """The `faults` fixture: `in_front_of`, with what passed shown in the report when the test fails."""

    proxies: list[Proxy] = field(default_factory=list)

    @asynccontextmanager
    async def in_front_of(
        self,
        target: str,
        *,
        listen_on: Path | None = None,
        server_tls: ssl.SSLContext | None = None,
        part_tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator[Proxy]:
        """See the function of that name."""
        async with in_front_of(target, listen_on=listen_on, server_tls=server_tls, part_tls=part_tls) as proxy:
            self.proxies.append(proxy)
            yield proxy


@pytest.fixture
def faults() -> Faults:
    """Put proxies in front of real parts: `async with faults.in_front_of(url) as proxy`."""
    return Faults()
