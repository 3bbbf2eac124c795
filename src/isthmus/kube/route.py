"""The route to an API server: its address, directly or through a proxy, with TLS end to end."""

import asyncio
import socket
import ssl
from base64 import b64encode
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from isthmus.http1.connection import Connection
from isthmus.http1.tls import Secured
from isthmus.kube.config import Config

CONNECT_TIMEOUT: Final = 10.0

_PORTS = {"http": 80, "https": 443}


class Route:
    """How to connect to one API server."""

    def __init__(self, config: Config, *, patience: float = CONNECT_TIMEOUT) -> None:
        self._patience = patience
        parts = urlsplit(config.server)
        self._host, self._port = _address(parts)
        self._encrypted = parts.scheme == "https"
        self._name = config.tls_server_name or self._host
        self._proxy = urlsplit(config.proxy) if config.proxy else None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.authority = f"{host}:{self._port}"
        """What stands in the Host header."""
        self.prefix = parts.path
        """What stands before every path."""

    async def connect(self, tls: ssl.SSLContext) -> Connection:
        """Open a connection with these TLS settings; raises OSError where that fails."""
        try:
            async with asyncio.timeout(self._patience):
                return await (self._connect_through(self._proxy, tls) if self._proxy else self._connect(tls))
        except TimeoutError:
            raise TimeoutError(f"no connection within {self._patience:g} s") from None

    async def _connect(self, tls: ssl.SSLContext) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection()
        if not self._encrypted:
            transport, _ = await loop.create_connection(lambda: connection, self._host, self._port)
            _notice_death(transport)
            return connection
        transport, secured = await loop.create_connection(
            lambda: Secured(connection, tls, server_name=self._name), self._host, self._port
        )
        _notice_death(transport)
        await secured.handshake()
        return connection

    async def _connect_through(self, proxy: SplitResult, tls: ssl.SSLContext) -> Connection:
        loop = asyncio.get_running_loop()
        host, port = _address(proxy)
        # The proxy is not part of the cluster: the machine's own authorities vouch for it.
        outer = ssl.create_default_context() if proxy.scheme == "https" else None
        transport, connection = await loop.create_connection(Connection, host, port, ssl=outer)
        _notice_death(transport)
        try:
            answer = await connection.exchange(self._ask_for_tunnel(proxy), patience=self._patience, tunnel=True)
            if answer.status == HTTPStatus.OK and self._encrypted:
                secured = Secured(connection, tls, server_name=self._name)
                transport.set_protocol(secured)
                secured.connection_made(transport)
                await secured.handshake()
        except BaseException:
            connection.close()
            raise
        if answer.status != HTTPStatus.OK:
            connection.close()
            raise ConnectionRefusedError(f"the proxy {host}:{port} responds with HTTP {answer.status}")
        return connection

    def _ask_for_tunnel(self, proxy: SplitResult) -> bytes:
        lines = [f"CONNECT {self.authority} HTTP/1.1", f"Host: {self.authority}"]
        if proxy.username is not None:
            secret = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(secret.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


def _address(parts: SplitResult) -> tuple[str, int]:
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _notice_death(transport: asyncio.BaseTransport) -> None:
    """Let a socket find out within half a minute that its peer is gone, also when nothing is sent."""
    opened: socket.socket | None = transport.get_extra_info("socket")
    if opened is None:
        # uvloop has closed the transport already: the peer went as soon as it was there.
        raise ConnectionResetError("the connection was closed immediately")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
