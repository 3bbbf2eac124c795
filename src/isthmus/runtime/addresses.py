"""Addresses to listen on, as flags of Go programs have them: `:8080`, `[::1]:8080`, `0` for none.

Whether one can be listened on is found out before anything starts, and said in a sentence.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from aiohttp import web

from isthmus.errors import Terminal
from isthmus.runtime import server
from isthmus.runtime.certkeeper import show
from isthmus.runtime.certs import Lives, renew

_LAST_PORT: Final = 65535
_OFF: Final = "0"
_FOREVER: Final = timedelta(days=3650)


class Address(NamedTuple):
    """Where to listen; an empty host means all."""

    host: str
    port: int


def parse(text: str) -> Address | None:
    """Read an address; None where nothing is to be served."""
    if text in {_OFF, ""}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT):
        raise Terminal(
            f"{text!r} is not a valid listen address", remedy="write :8080, 127.0.0.1:8080, or 0 for none"
        )
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


@asynccontextmanager
async def listen(
    address: Address | None, routes: Iterable[web.RouteDef], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve as long as the block lasts, and give it the port; where there is no address, nothing is served."""
    if address is None:
        yield 0
        return
    async with server.serve(routes, host=address.host or _everywhere(), port=address.port, tls=tls) as port:
        yield port


def check(address: Address | None) -> None:
    """Find out before anything starts that an address cannot be listened on, and say so in a sentence."""
    if address is None or not address.port:
        return
    try:
        with socket.create_server(
            (address.host or _everywhere(), address.port), family=_family(address.host or _everywhere())
        ):
            pass
    except OSError as error:
        raise Terminal(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}",
            remedy="choose another address, or stop what listens there",
        ) from error


def own_certificate() -> ssl.SSLContext:
    """Make a certificate that lives as long as the process, for scrapers that encrypt and do not verify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    material = renew(
        None,
        [socket.gethostname(), "localhost"],
        now=datetime.now(UTC),
        lives=Lives(authority=_FOREVER, serving=_FOREVER),
    )
    show(context, material)
    return context


def _everywhere() -> str:
    """All addresses: of both families, unless this machine has IPv4 alone."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", 0))
    except OSError:
        return "0.0.0.0"  # noqa: S104 - what is asked for
    return ""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
