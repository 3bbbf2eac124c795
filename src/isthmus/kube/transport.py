"""Requests to the API server: connections, credentials, time-outs, bounded parallelism, pauses on request.

Two ways in. `send` is one request and its whole answer; at most `parallel` of them run at once, so a burst of
thousands queues here instead of in the server. `stream` is a request without an end; it takes no place among
the others. What goes wrong leaves as an error of `kube.errors`, whichever way it came.
"""

import asyncio
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from isthmus import __version__
from isthmus.errors import Terminal
from isthmus.http1.answer import Head
from isthmus.http1.connection import Connection, Peek, Pool, Response
from isthmus.kube import errors, tls
from isthmus.kube.config import Config
from isthmus.kube.route import CONNECT_TIMEOUT, Route

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

JSON: Final = "application/json"

TIMEOUT: Final = 65.0
"""The API server itself gives up after 60 s, and says so; less would only hide from us what became of a request."""

PATIENCE: Final = 30.0
"""How long a request waits in all when the server says "later", before its caller has to know."""

_MAX_IDLE_S = 75.0
"""The API server closes connections that rested for longer than two minutes or so."""

_BEGINNING = 1 << 16
_AGENT = f"isthmus/{__version__}"
_UNAUTHORIZED = 401
_LATER = frozenset({429, 503})
_SUCCESS = range(200, 300)
_GZIP = zlib.MAX_WBITS | 16
_TROUBLE = (OSError, zlib.error)

Observer = Callable[[str, int, float], None]
"""Called for every response with method, HTTP code (0 for none) and seconds."""


class _Identity(NamedTuple):
    """Our current identity, and the connections that use it."""

    proof: Mapping[str, str]
    headers: str
    tls: ssl.SSLContext
    pool: Pool


class Transport:
    """Connections to one API server."""

    def __init__(
        self,
        config: Config,
        *,
        parallel: int = 64,
        timeout: float = TIMEOUT,
        observe: Observer | None = None,
    ) -> None:
        self.config = config
        self._route = Route(config, patience=min(timeout, CONNECT_TIMEOUT))
        self._timeout = timeout
        self._slots = asyncio.Semaphore(parallel)
        self._observe = observe
        self._tls = tls.trust(config.ca, insecure=config.insecure)
        self._identity: _Identity | None = None
        self._open = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.server!r})"

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        if self._identity:
            self._identity.pool.close()
            self._identity = None
            await asyncio.sleep(0)  # sockets are closed in the loop's next round

    async def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        content: str = JSON,
        accept: str = JSON,
        compressed: bool = False,
        peek: Callable[[bytes], bool] | None = None,
    ) -> bytes:
        """Send one request and return its answer. `target` is a path with its query, already quoted.

        Ask for answers `compressed` where they are large. The server sends a list in thousands of small TLS
        records, and unpacking a tenth of them costs less than decrypting all. `peek` is shown the beginning of a
        successful answer while the rest is still to come, again and again until it says that it has seen enough.
        """
        renewed = False
        waited = 0.0
        async with self._slots:
            while True:
                identity = await self._identify()
                request = self._request(
                    method, target, identity, body=body, content=content, accept=accept, compressed=compressed
                )
                code, answer, later = await self._once(method, target, request, identity, peek=peek)
                if code in _SUCCESS:
                    return answer
                if code == _UNAUTHORIZED and not renewed:
                    renewed = True
                    if await self.config.credentials.renew():
                        continue
                error = errors.from_answer(code, answer, request=f"{method} {target}", retry_after=later)
                if code not in _LATER or later is None or waited + later > PATIENCE or _by_budget(error):
                    raise error
                waited += later
                await asyncio.sleep(later)

    async def _once(
        self,
        method: str,
        target: str,
        request: bytes,
        identity: _Identity,
        *,
        peek: Callable[[bytes], bool] | None,
    ) -> tuple[int, bytes, float | None]:
        started = time.perf_counter()
        code = 0
        try:
            response = await self._exchange(
                request, identity, again=method == "GET", peek=_unpacked(peek) if peek else None
            )
            code, headers, answer = response
            if headers.get("content-encoding") == "gzip":
                answer = zlib.decompress(answer, wbits=_GZIP)
            return code, answer, _retry_after(headers) if code in _LATER else None
        except _TROUBLE as error:
            raise self._unreachable(error, f"{method} {target}") from error
        finally:
            if self._observe:
                self._observe(method, code, time.perf_counter() - started)

    async def _exchange(self, request: bytes, identity: _Identity, *, again: bool, peek: Peek | None) -> Response:
        """Send a request over a connection that rested, or over a new one.

        The server may have closed the first while it rested: what may be sent `again` then is.
        """
        if connection := identity.pool.take():
            try:
                return await self._exchange_over(connection, request, identity, peek=peek)
            except OSError as error:
                if not again or isinstance(error, TimeoutError):
                    raise
        return await self._exchange_over(await self._route.connect(identity.tls), request, identity, peek=peek)

    async def _exchange_over(
        self, connection: Connection, request: bytes, identity: _Identity, *, peek: Peek | None
    ) -> Response:
        response = await connection.exchange(request, patience=self._timeout, peek=peek)
        self._rest(connection, identity)
        return response

    @asynccontextmanager
    async def stream(self, target: str, *, silence: float | None, accept: str = JSON) -> AsyncIterator["Stream"]:
        """Open a GET whose response does not end; reading it fails after `silence` seconds without a byte."""
        renewed = False
        while True:
            identity = await self._identify()
            request = self._request("GET", target, identity, accept=accept)
            try:
                connection, head = await self._begin(request, identity, silence=silence)
                reader = Stream(connection, silence=silence)
                try:
                    if head.status in _SUCCESS:
                        yield reader
                        return
                    answer = b"".join([piece async for piece in reader])
                finally:
                    self._rest(connection, identity)
            except _TROUBLE as error:
                raise self._unreachable(error, f"GET {target}") from error
            if head.status == _UNAUTHORIZED and not renewed:
                renewed = True
                if await self.config.credentials.renew():
                    continue
            later = _retry_after(head.headers)
            raise errors.from_answer(head.status, answer, request=f"GET {target}", retry_after=later)

    async def _begin(
        self, request: bytes, identity: _Identity, *, silence: float | None
    ) -> tuple[Connection, Head]:
        if connection := identity.pool.take():
            with suppress(ConnectionError):
                return connection, await connection.begin(request, patience=silence)
        connection = await self._route.connect(identity.tls)
        return connection, await connection.begin(request, patience=silence)

    @asynccontextmanager
    async def websocket(self, target: str, *, protocol: str) -> "AsyncIterator[ClientWebSocketResponse]":
        """Open a WebSocket that speaks one subprotocol."""
        # Few of our commands need them, and each would wait for this import.
        import aiohttp  # noqa: PLC0415 - slow to import
        from yarl import URL  # noqa: PLC0415 - likewise

        identity = await self._identify()
        try:
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.ws_connect(
                    URL(self.config.server + target, encoded=True),
                    protocols=(protocol,),
                    headers={"User-Agent": _AGENT, **identity.proof},
                    ssl=identity.tls,
                    proxy=self.config.proxy,
                    server_hostname=self.config.tls_server_name,
                ) as opened,
            ):
                yield opened
        except aiohttp.WSServerHandshakeError as error:
            raise errors.from_answer(error.status, error.message.encode(), request=f"GET {target}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error, f"GET {target}") from error

    def _request(
        self,
        method: str,
        target: str,
        identity: _Identity,
        *,
        accept: str,
        body: bytes | None = None,
        content: str = JSON,
        compressed: bool = False,
    ) -> bytes:
        if not target.startswith("/") or not target.isascii() or not target.isprintable() or " " in target:
            raise Terminal(f"{target!r} is not a valid API server path", remedy="percent-encode special characters")
        head = f"{method} {self._route.prefix}{target} HTTP/1.1\r\n{identity.headers}Accept: {accept}\r\n"
        if compressed:
            head += "Accept-Encoding: gzip\r\n"
        if body is None:
            return f"{head}\r\n".encode("ascii")
        return f"{head}Content-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n".encode("ascii") + body

    async def _identify(self) -> _Identity:
        """Say who we are; where the proof of it is new, put it to use first."""
        if not self._open:
            raise RuntimeError("the client is not open: use it in `async with`")
        proof = await self.config.credentials.headers()
        identity = self._identity
        if identity is None or proof is not identity.proof:
            if certificate := self.config.credentials.certificate:
                self._tls = tls.trust(self.config.ca, insecure=self.config.insecure)
                tls.present(self._tls, certificate)
            given = {"Host": self._route.authority, "User-Agent": _AGENT, **proof}
            headers = "".join(f"{name}: {value}\r\n" for name, value in given.items())
            if identity:
                # No request may go over a connection on which we are still known by the old certificate.
                identity.pool.close()
            identity = self._identity = _Identity(proof, headers, self._tls, Pool(longest_rest=_MAX_IDLE_S))
        return identity

    def _rest(self, connection: Connection, identity: _Identity) -> None:
        if identity is self._identity:
            identity.pool.put(connection)
        else:
            connection.close()

    def _unreachable(self, error: Exception, request: str) -> errors.Unreachable:
        said = str(error) or type(error).__name__
        return errors.Unreachable(f"{errors.readable(request)}: no response from {self.config.server}: {said}")


class Stream:
    def __init__(self, connection: Connection, *, silence: float | None) -> None:
        self._connection = connection
        self._silence = silence

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Give all that came since the last time; fail after so much silence."""
        if piece := await self._connection.read(patience=self._silence):
            return piece
        raise StopAsyncIteration


def _unpacked(peek: Callable[[bytes], bool]) -> Peek:
    """Let one who looks for plain bytes look at the beginning of an answer that may be compressed."""

    def look(head: Head, pieces: Sequence[bytes]) -> bool:
        if head.status not in _SUCCESS:
            return True
        beginning = b"".join(pieces)[:_BEGINNING]
        if head.headers.get("content-encoding") == "gzip":
            try:
                beginning = zlib.decompressobj(wbits=_GZIP).decompress(beginning, _BEGINNING)
            except zlib.error:
                return True  # decompressing the whole reports it
        return peek(beginning)

    return look


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _by_budget(error: errors.ApiError) -> bool:
    """Whether a disruption budget refused, which may last for hours, and not a busy server."""
    return any(cause.reason == "DisruptionBudget" for cause in error.status.causes)
