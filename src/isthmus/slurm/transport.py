"""One request to whichever slurmrestd answers.

Endpoints are tried in turn, beginning with the one that answered last. What was certainly not sent goes to the next
one; what may have been applied does so only if applying it twice does no harm, else the caller learns that the
answer is lost.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from isthmus.errors import Terminal
from isthmus.http1.connection import Connection, Pool, Response
from isthmus.slurm.auth import TokenSource
from isthmus.slurm.errors import AnswerLost, Unreachable

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_IDLE_SECONDS = 10.0
"""A connection that rested longer may be closed by the other end at the very moment we use it."""

_PARALLEL_REQUESTS = 16
"""slurmrestd works with a handful of threads; more requests at once only wait inside of it instead of here."""

_UNIX_SCHEMES = frozenset({"unix", "http+unix"})
_PORTS = {"http": 80, "https": 443}


class Reply(NamedTuple):
    """What came back, not yet looked at."""

    status: int
    body: bytes
    is_json: bool


Observe = Callable[[str, int, float], None]


class Transport:
    """Requests to one Slurm cluster through one or several slurmrestd."""

    def __init__(
        self,
        endpoints: Sequence[str],
        tokens: TokenSource,
        *,
        tls: ssl.SSLContext | None = None,
        observe: Observe | None = None,
        parallel: int = _PARALLEL_REQUESTS,
        longest_rest: float = _IDLE_SECONDS,
    ) -> None:
        """Take endpoints such as `http://host:6820`, `https://host:6820` or `unix:///run/slurmrestd.sock`.

        `tls` says which authorities to trust and which certificate to show; None trusts those of the system.
        `observe` gets for each request: its method, the status (0 for none) and the seconds that it took. At most
        `parallel` requests run at an endpoint, and a connection may be idle for so many seconds.
        """
        if not endpoints:
            raise Terminal("no slurmrestd is configured", remedy="set at least one, such as http://localhost:6820")
        self._endpoints = [
            _Endpoint(endpoint, tls=tls, parallel=parallel, longest_rest=longest_rest) for endpoint in endpoints
        ]
        self._tokens = tokens
        self._observe = observe or (lambda *_: None)
        self._current = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self._endpoints:
            endpoint.close()

    @property
    def endpoint(self) -> str:
        """The slurmrestd that answered last."""
        return self._endpoints[self._current].name

    async def request(
        self, method: str, path: str, *, body: Any = None, patience: float = _ANSWER_SECONDS
    ) -> Reply:
        """Send a request, `path` being quoted already, and wait at most `patience` seconds for its answer."""
        payload = b"" if body is None else msgspec.json.encode(body)
        began, status = time.perf_counter(), 0
        try:
            reply = await self._authorized(method, path, payload, patience=patience)
            status = reply.status
        finally:
            self._observe(method, status, time.perf_counter() - began)
        return reply

    async def _authorized(self, method: str, path: str, payload: bytes, *, patience: float) -> Reply:
        reply = await self._request(method, path, payload, patience=patience)
        if reply.status == HTTPStatus.UNAUTHORIZED and self._tokens.renew():
            reply = await self._request(method, path, payload, patience=patience)
        return reply

    async def _request(self, method: str, path: str, payload: bytes, *, patience: float) -> Reply:
        failures: list[str] = []
        lost = False
        first = self._current
        for turn in range(len(self._endpoints)):
            index = (first + turn) % len(self._endpoints)
            endpoint = self._endpoints[index]
            try:
                response = await endpoint.request(
                    method, path, payload, token=self._tokens.token(), patience=patience
                )
            except NotConnectedError as error:
                failures.append(f"{endpoint.name}: {error}")
            except OSError as error:
                failures.append(f"{endpoint.name}: {_reason(error)}")
                lost = True
                if method != "GET":
                    # The next caller should not wait for the same silence first.
                    self._current = (index + 1) % len(self._endpoints)
                    break
            else:
                self._current = index
                is_json = response.headers.get("content-type", "").startswith("application/json")
                return Reply(response.status, response.body, is_json)
        told = "; ".join(failures)
        if lost:
            raise AnswerLost(f"the response of slurmrestd to {method} {path} was lost ({told})")
        raise Unreachable(
            f"no slurmrestd answers ({told})", remedy="check that slurmrestd runs and that its address is right"
        )


class NotConnectedError(Exception):
    """There is no connection, so nothing was sent."""


class _Endpoint:
    """One slurmrestd: its address and the connections to it."""

    def __init__(self, endpoint: str, *, tls: ssl.SSLContext | None, parallel: int, longest_rest: float) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme in _UNIX_SCHEMES and parts.path:
            self._socket: str | None = parts.path
            self._host, self._port, self._prefix = "localhost", 0, ""
            self._tls: ssl.SSLContext | None = None
        elif parts.scheme in _PORTS and parts.hostname and not parts.username and endpoint.isascii():
            self._socket = None
            self._host, self._port = parts.hostname, parts.port or _PORTS[parts.scheme]
            self._prefix = parts.path.rstrip("/")
            self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        else:
            raise Terminal(
                f"{endpoint!r} is not a valid slurmrestd address",
                remedy="write http://host:6820, https://host:6820 or unix:///path/to/socket",
            )
        self.name = endpoint
        self._pool = Pool(longest_rest=longest_rest)
        self._gate = asyncio.Semaphore(parallel)

    def close(self) -> None:
        self._pool.close()

    async def request(self, method: str, path: str, payload: bytes, *, token: str, patience: float) -> Response:
        head = (
            f"{method} {self._prefix}{path} HTTP/1.1\r\n"
            f"Host: {self._host}\r\n"
            f"X-SLURM-USER-TOKEN: {token}\r\n"
            f"Content-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        )
        request = head.encode("ascii") + payload
        async with self._gate:
            connection = self._pool.take()
            if connection and method == "GET":
                # The other end may have closed it while it rested; reading once more does no harm.
                with suppress(ConnectionError):
                    return await self._exchange(connection, request, patience=patience)
                connection = None
            response = await self._exchange(connection or await self._connect(), request, patience=patience)
            if response.status == HTTPStatus.MISDIRECTED_REQUEST:
                # This connection was not for us, for example because it knows another token.
                response = await self._exchange(await self._connect(), request, patience=patience)
            return response

    async def _exchange(self, connection: Connection, request: bytes, *, patience: float) -> Response:
        response = await connection.exchange(request, patience=patience)
        if response.status >= HTTPStatus.BAD_REQUEST:
            # slurmrestd 26.05 sends two answers to every request that fails, and after a time-out of its own older
            # ones do, too: the second may come at any moment.
            connection.close()
        self._pool.put(connection)
        return response

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                if self._socket:
                    _, connection = await loop.create_unix_connection(Connection, self._socket)
                else:
                    _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        except (OSError, ssl.SSLError) as error:
            raise NotConnectedError(_reason(error)) from error
        return connection


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
