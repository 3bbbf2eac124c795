"""The least that a program can do to send bindings: sockets, prepared bytes, and no library in between."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from isthmus.model.meta import Key

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connections(url: str, tls: ssl.SSLContext, count: int) -> AsyncIterator[list[Connection]]:
    """Open so many connections."""
    where = urlsplit(url)
    opened = [await asyncio.open_connection(where.hostname, where.port, ssl=tls) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def bind_all(opened: Iterable[Connection], pods: Iterable[Key], *, node: str) -> None:
    """Bind the pods over these connections, on each one request after the other."""
    requests = iter([_request(pod, node=node) for pod in pods])
    async with asyncio.TaskGroup() as group:
        for connection in opened:
            group.create_task(_send(connection, requests))


async def _send(connection: Connection, requests: Iterable[bytes]) -> None:
    reader, writer = connection
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"a binding was refused: {body.decode(errors='replace')}")


def _request(pod: Key, *, node: str) -> bytes:
    body = (
        f'{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{pod.name}","namespace":"{pod.namespace}"}},'
        f'"target":{{"apiVersion":"v1","kind":"Node","name":"{node}"}}}}'
    )
    return (
        f"POST /api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding HTTP/1.1\r\n"
        f"Host: api\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
