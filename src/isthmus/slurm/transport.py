"""One HTTP request to whichever slurmrestd answers.

Endpoints are tried in turn, beginning with the one that answered last. What was certainly not sent goes to the next
one; what may have been applied does so only if applying it twice does no harm, else the caller learns that the
answer is lost. A connection that carried an error of the server is never used again: after a time-out of its own,
slurmrestd may send a second answer on it, which the next request would take for its own.
"""

import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from isthmus.errors import Terminal
from isthmus.slurm.auth import TokenSource
from isthmus.slurm.errors import AnswerLost, Unreachable

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_KEEP_ALIVE_SECONDS = 10.0
_PARALLEL_REQUESTS = 16
"""slurmrestd works with a handful of threads; more requests at once only wait inside of it instead of here."""

_UNIX_SCHEMES = frozenset({"unix", "http+unix"})
_TCP_SCHEMES = frozenset({"http", "https"})


class Reply(NamedTuple):
    """What came back, not yet looked at."""

    status: int
    body: bytes
    is_json: bool


class Transport:
    """Requests to one Slurm cluster through one or several slurmrestd."""

    def __init__(self, endpoints: Sequence[str], tokens: TokenSource, *, tls: ssl.SSLContext | None = None) -> None:
        """Take endpoints such as `http://host:6820`, `https://host:6820` or `unix:///run/slurmrestd.sock`.

        `tls` says which authorities to trust and which certificate to show; None trusts those of the system.
        """
        if not endpoints:
            raise Terminal("no slurmrestd is given", remedy="name at least one, such as http://localhost:6820")
        self._endpoints = [_Endpoint(endpoint, tls=tls) for endpoint in endpoints]
        self._tokens = tokens
        self._current = 0

    async def __aenter__(self) -> Self:
        for endpoint in self._endpoints:
            endpoint.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self._endpoints:
            await endpoint.close()

    @property
    def endpoint(self) -> str:
        """The slurmrestd that answered last."""
        return self._endpoints[self._current].name

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        patience: float = _ANSWER_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request; `path` is quoted already, `patience` is how long to wait for each part of the answer."""
        payload = None if body is None else msgspec.json.encode(body)
        reply = await self._request(method, path, payload, patience=patience, headers=headers)
        if reply.status == HTTPStatus.UNAUTHORIZED and self._tokens.renew():
            reply = await self._request(method, path, payload, patience=patience, headers=headers)
        return reply

    async def _request(
        self, method: str, path: str, payload: bytes | None, *, patience: float, headers: Mapping[str, str] | None
    ) -> Reply:
        failures: list[str] = []
        lost = False
        for turn in range(len(self._endpoints)):
            index = (self._current + turn) % len(self._endpoints)
            endpoint = self._endpoints[index]
            sent_headers = {**(headers or {}), "X-SLURM-USER-TOKEN": self._tokens.token()}
            if payload is not None:
                sent_headers["Content-Type"] = "application/json"
            try:
                reply = await endpoint.request(method, path, payload, headers=sent_headers, patience=patience)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failures.append(f"{endpoint.name}: {_reason(error)}")
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                failures.append(f"{endpoint.name}: {_reason(error)}")
                lost = True
                if method != "GET":
                    break
            else:
                self._current = index
                return reply
        told = "; ".join(failures)
        if lost:
            # Whoever asks next should not wait for the same silence first.
            self._current = (self._current + 1) % len(self._endpoints)
            raise AnswerLost(f"the answer of slurmrestd to {method} {path} was lost ({told})")
        raise Unreachable(
            f"no slurmrestd answers ({told})", remedy="check that slurmrestd runs and that its address is right"
        )


class _Endpoint:
    """One slurmrestd: its address and the connections to it."""

    def __init__(self, endpoint: str, *, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme in _UNIX_SCHEMES and parts.path:
            self._socket: str | None = parts.path
            self._base = "http://localhost"
        elif parts.scheme in _TCP_SCHEMES and parts.hostname and not parts.username:
            self._socket = None
            self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        else:
            raise Terminal(
                f"{endpoint!r} is no address of a slurmrestd",
                remedy="write http://host:6820, https://host:6820 or unix:///path/to/socket",
            )
        self.name = endpoint
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        connector: aiohttp.BaseConnector
        if self._socket:
            connector = aiohttp.UnixConnector(
                self._socket, limit=_PARALLEL_REQUESTS, keepalive_timeout=_KEEP_ALIVE_SECONDS
            )
        else:
            connector = aiohttp.TCPConnector(
                limit=_PARALLEL_REQUESTS,
                keepalive_timeout=_KEEP_ALIVE_SECONDS,
                ssl=True if self._tls is None else self._tls,
            )
        # Cookies and decompression are machinery that slurmrestd has no use for.
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, payload: bytes | None, *, headers: Mapping[str, str], patience: float
    ) -> Reply:
        if self._session is None:
            raise RuntimeError("the transport is used outside of its `async with` block")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=patience)
        async with self._session.request(
            method,
            URL(f"{self._base}{path}", encoded=True),
            data=payload,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,  # a token must not follow wherever an answer points
        ) as response:
            body = await response.read()
            if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                response.close()
            return Reply(response.status, body, response.content_type == "application/json")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
