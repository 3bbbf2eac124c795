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
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from tests.bed.fault_rules import (
    Cut,
    Delay,
    Duplicate,
    Exchange,
    Fault,
    Hang,
    HoldBack,
    LoseAnswer,
    Respond,
    Rule,
    matches,
)
from tests.bed.fault_wire import ByteConnection, HttpConnection, Peer, Target

_LOOPBACK = "127.0.0.1"


class Proxy:
    """Made by `in_front_of`. Rules may come and go while requests are under way."""

    def __init__(self, target: Target, listen_on: str | Path, *, server_tls: ssl.SSLContext | None) -> None:
        self.seen: list[Exchange] = []
        self.target = target
        self._rules: list[Rule] = []
        self._listen_on = listen_on
        self._server_tls = server_tls
        self._listener = self._bind(0)
        self.connections: dict[asyncio.Task[None], None] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._news = asyncio.Condition()
        self._group: asyncio.TaskGroup

    # --- where clients connect -----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address for the client, with the scheme that the real part has."""
        scheme = self.target.scheme
        if isinstance(self._listen_on, Path):
            return f"{'http+unix' if self.target.speaks_http else 'unix'}://{self._listen_on}"
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

    def hold_back(
        self, until: asyncio.Event, *, method: str = "*", path: str = "*", times: int | None = None
    ) -> Rule:
        """Drop the connection without an answer, and have the request applied later."""
        self._needs_http("hold_back")
        return self._add(HoldBack(until), method=method, path=path, times=times)

    def refuse(self) -> None:
        """Be gone like a killed process: open connections are reset, new ones refused, until `heal`."""
        if not self._listening:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        port = 0 if isinstance(self._listen_on, Path) else self.port
        self._listener.close()
        # Bound without listening: connecting to it is refused, and nobody else can take the address meanwhile.
        self._listener = self._bind(port)
        self._end_connections()

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
        return [exchange for exchange in self.seen if matches(exchange.method, exchange.path, method, path)]

    def count(self, *, method: str = "*", path: str = "*") -> int:
        """How many requests came for that method and path, whatever became of them."""
        return len(self.exchanges(method=method, path=path))

    async def until_seen(self, *, method: str = "*", path: str = "*", times: int = 1, within: float = 60) -> None:
        """Wait until so many requests of that kind have come since the proxy began."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: self.count(method=method, path=path) >= times)

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _listening(self) -> bool:
        return bool(self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def _needs_http(self, fault: str) -> None:
        if not self.target.speaks_http:
            raise ValueError(
                f"{fault} needs a proxy that reads HTTP, and this one moves bytes for {self.target.scheme}:// only"
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
            self.connections[task] = None
            task.add_done_callback(self.connections.pop)

    def _end_connections(self) -> None:
        # Soon: one that was accepted a moment ago has to begin first, or nobody would close its socket.
        for connection in self.connections:
            asyncio.get_running_loop().call_soon(connection.cancel)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            client = await Peer.adopt(accepted, tls=self._server_tls)
        except OSError:
            accepted.close()
            return
        connection = HttpConnection(self, client) if self.target.speaks_http else ByteConnection(self, client)
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

    async def connect(self) -> Peer:
        """Open a connection to the real part."""
        return await Peer.connect(self.target)

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
                    self._end_connections()
        finally:
            self._listener.close()
            if isinstance(self._listen_on, Path):
                self._listen_on.unlink(missing_ok=True)


class Options(TypedDict, total=False):
    """Where a proxy listens and what it does about TLS.

    To read HTTP inside TLS, give both contexts: `server_tls` is what clients meet, `part_tls` (with a client
    certificate if the part wants one) is what we are to the part.
    """

    listen_on: Path | None
    server_tls: ssl.SSLContext | None
    part_tls: ssl.SSLContext | None


@asynccontextmanager
async def in_front_of(target: str, **options: Unpack[Options]) -> AsyncIterator[Proxy]:
    """Run a proxy in front of the part at `target`, on a free port of 127.0.0.1 or on a UNIX socket."""
    server_tls, part_tls = options.get("server_tls"), options.get("part_tls")
    if (server_tls is None) != (part_tls is None):
        raise ValueError(
            "give server_tls and part_tls together: TLS that ends here must begin again towards the part"
        )
    proxy = Proxy(Target.parse(target, tls=part_tls), options.get("listen_on") or _LOOPBACK, server_tls=server_tls)
    async with proxy.running():
        yield proxy


@dataclass
class Faults:
    """The `faults` fixture: `in_front_of`, with what passed shown in the report when the test fails."""

    proxies: list[Proxy] = field(default_factory=list)

    @asynccontextmanager
    async def in_front_of(self, target: str, **options: Unpack[Options]) -> AsyncIterator[Proxy]:
        """See the function of that name."""
        async with in_front_of(target, **options) as proxy:
            self.proxies.append(proxy)
            yield proxy


@pytest.fixture
def faults() -> Faults:
    """Put proxies in front of real parts: `async with faults.in_front_of(url) as proxy`."""
    return Faults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what passed through the proxies of a test that failed."""
    report = yield
    if report.failed:
        given = getattr(item, "funcargs", {}).get("faults")
        for proxy in given.proxies if isinstance(given, Faults) else ():
            report.sections.append(
                (f"what passed through the proxy in front of {proxy.target.url}", "\n".join(map(str, proxy.seen)))
            )
    return report
