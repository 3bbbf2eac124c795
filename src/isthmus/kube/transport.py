"""Requests to the API server: connections, credentials, time-outs, bounded parallelism, and waiting when told to.

Two ways in. `send` is one request and its whole answer; at most `parallel` of them run at once, so a burst of
thousands queues here instead of in the server. `stream` is a request whose answer goes on; it takes no place among
the others. What goes wrong leaves as an error of `kube.errors`, whichever way it came.
"""

import asyncio
import socket
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from isthmus import __version__
from isthmus.kube import errors, tls
from isthmus.kube.config import Config

JSON: Final = "application/json"

CONNECT_TIMEOUT: Final = 10.0
TIMEOUT: Final = 65.0
"""The API server itself gives up after 60 s, and says so; less would only hide from us what became of a request."""

PATIENCE: Final = 30.0
"""How long a request waits in all when the server says "later", before its caller has to know."""

_UNAUTHORIZED = 401
_LATER = frozenset({429, 503})
_SUCCESS = range(200, 300)
_GZIP = zlib.MAX_WBITS | 16

Observer = Callable[[str, int, float], None]
"""Told of every answer: method, HTTP code (0 for none), seconds."""


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
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        self._slots = asyncio.Semaphore(parallel)
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None
        self._proof: Mapping[str, str] | None = None
        self._tls = tls.trust(config.ca, insecure=config.insecure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.server!r})"

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=0,  # `_slots` bounds requests; watches must not count among them
            keepalive_timeout=75,
            socket_factory=_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": f"isthmus/{__version__}", "Accept-Encoding": "identity"},
            skip_auto_headers=("Accept",),
            read_bufsize=1 << 20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        content: str = JSON,
        accept: str = JSON,
        compressed: bool = False,
    ) -> bytes:
        """Send one request and return its answer. `target` is a path with its query, already quoted.

        Ask for answers `compressed` where they are large. The server sends a list in thousands of small TLS
        records, and unpacking a tenth of them costs less than decrypting all.
        """
        renewed = False
        waited = 0.0
        async with self._slots:
            while True:
                headers = await self._identify(accept, content if body is not None else None)
                if compressed:
                    headers["Accept-Encoding"] = "gzip"
                code, answer, later = await self._once(method, target, headers, body)
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
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes, float | None]:
        started = time.perf_counter()
        code = 0
        try:
            async with self._request(method, target, headers, self._timeout, body=body) as response:
                answer = await response.read()
                code = response.status
                if response.headers.get("Content-Encoding") == "gzip":
                    answer = zlib.decompress(answer, wbits=_GZIP)
                return code, answer, _retry_after(response.headers) if code in _LATER else None
        except (aiohttp.ClientError, TimeoutError, OSError, zlib.error) as error:
            raise self._unreachable(error, f"{method} {target}") from error
        finally:
            if self._observe:
                self._observe(method, code, time.perf_counter() - started)

    @asynccontextmanager
    async def stream(
        self, target: str, *, silence: float | None, accept: str = JSON
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a GET whose answer goes on; reading it fails after `silence` seconds without a byte."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        renewed = False
        while True:
            headers = await self._identify(accept)
            try:
                async with self._request("GET", target, headers, timeout) as response:
                    if response.status in _SUCCESS:
                        yield response.content
                        return
                    answer = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(error, f"GET {target}") from error
            if response.status == _UNAUTHORIZED and not renewed:
                renewed = True
                if await self.config.credentials.renew():
                    continue
            later = _retry_after(response.headers)
            raise errors.from_answer(response.status, answer, request=f"GET {target}", retry_after=later)

    @asynccontextmanager
    async def websocket(self, target: str, *, protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket that speaks one subprotocol."""
        headers = await self._identify("*/*")
        try:
            async with self._open_session().ws_connect(
                URL(self.config.server + target, encoded=True),
                protocols=(protocol,),
                headers=headers,
                ssl=self._tls,
                proxy=self.config.proxy,
                server_hostname=self.config.tls_server_name,
            ) as opened:
                yield opened
        except aiohttp.WSServerHandshakeError as error:
            raise errors.from_answer(error.status, error.message.encode(), request=f"GET {target}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error, f"GET {target}") from error

    def _request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        *,
        body: bytes | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._open_session().request(
            method,
            URL(self.config.server + target, encoded=True),
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self._tls,
            proxy=self.config.proxy,
            server_hostname=self.config.tls_server_name,
        )

    async def _identify(self, accept: str, content: str | None = None) -> dict[str, str]:
        """Make the headers of a request; where the proof of who we are is new, put it to use first."""
        proof = await self.config.credentials.headers()
        if proof is not self._proof:
            self._proof = proof
            if certificate := self.config.credentials.certificate:
                # Other settings, not changed ones: connections are shared among requests with the same settings,
                # so that none goes over a connection on which we are still known by the old certificate.
                self._tls = tls.trust(self.config.ca, insecure=self.config.insecure)
                tls.present(self._tls, certificate)
        if content is None:
            return {"Accept": accept, **proof}
        return {"Accept": accept, "Content-Type": content, **proof}

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open: use it in `async with`")
        return self._session

    def _unreachable(self, error: Exception, request: str) -> errors.Unreachable:
        said = str(error) or type(error).__name__
        return errors.Unreachable(f"{request}: no answer from {self.config.server}: {said}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def _by_budget(error: errors.ApiError) -> bool:
    """Tell a disruption budget's refusal, which may last for hours, from a busy server's."""
    return any(cause.reason == "DisruptionBudget" for cause in error.status.causes)


def _socket(info: tuple[Any, ...]) -> socket.socket:
    """Make a socket that finds out within half a minute that its peer is gone, also when nothing is sent."""
    family, type_, protocol, _, _ = info
    made = socket.socket(family, type_, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return made
