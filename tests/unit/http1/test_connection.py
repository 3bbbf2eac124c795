"""Whole answers, in as many pieces as the network likes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from isthmus.http1.connection import Connection


@asynccontextmanager
async def _answering(body: bytes) -> AsyncIterator[Callable[[], "asyncio.Future[bytes]"]]:
    """Serve one body to every request on a connection, and give a function that asks for it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                for at in range(0, len(body), 100_000):
                    writer.write(body[at : at + 100_000])
                    await writer.drain()
        writer.close()
        ended.set()

    ended = asyncio.Event()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, host, port)

    async def ask() -> bytes:
        return (await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", patience=30)).body

    try:
        yield lambda: asyncio.ensure_future(ask())
    finally:
        connection.close()
        await ended.wait()
        server.close()


@pytest.mark.parametrize("count", [1, 1_000, 2_000_000])
async def test_an_answer_is_whole_whatever_its_length(count: int) -> None:
    numbers = list(range(count))
    async with _answering(msgspec.json.encode(numbers)) as ask:
        for _ in range(2):
            assert msgspec.json.decode(await ask(), type=list[int]) == numbers
