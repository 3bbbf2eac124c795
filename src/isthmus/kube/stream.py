"""Logs of containers, and commands run in them: what the CLI shows.

A command runs over a WebSocket on which each message starts with the number of its channel: 0 input, 1 output,
2 errors, 3 the status at the end, 4 the size of the terminal, 255 "that channel is closed" (v5.channel.k8s.io).
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec

from isthmus.kube.client import Client, pod_path, with_query
from isthmus.kube.errors import UNREADABLE, Garbled, Status, Unreachable, from_status
from isthmus.model.meta import Key
from isthmus.tasks import helpers

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

PROTOCOL: Final = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255

_decode_status = msgspec.json.Decoder(Status).decode


async def logs(
    client: Client,
    pod: Key,
    *,
    container: str = "",
    follow: bool = False,
    tail: int | None = None,
) -> AsyncGenerator[bytes]:
    """Read what a container wrote, in pieces as they come; with `follow`, until the container ends."""
    query = {"container": container} if container else {}
    if follow:
        query["follow"] = "true"
    if tail is not None:
        query["tailLines"] = str(tail)
    # A container may be silent for days; TCP keep-alive still finds out when the server is gone.
    silence = None if follow else 60.0
    async with client.stream(with_query(f"{pod_path(pod)}/log", query), silence=silence, accept="*/*") as reader:
        async for chunk in reader:
            yield chunk


async def execute(
    client: Client,
    pod: Key,
    command: Sequence[str],
    *,
    container: str = "",
    stdin: AsyncIterable[bytes] | None = None,
    stdout: Callable[[bytes], object],
    stderr: Callable[[bytes], object] | None = None,
    tty: bool = False,
) -> int:
    """Run a command in a container and return its exit code. With a terminal, errors come with the output."""
    query = [("command", word) for word in command]
    query += [("stdin", "true")] if stdin is not None else []
    query += [("stdout", "true"), ("tty", "true")] if tty else [("stdout", "true"), ("stderr", "true")]
    query += [("container", container)] if container else []
    async with client.websocket(f"{pod_path(pod)}/exec?{urlencode(query)}", protocol=PROTOCOL) as socket:
        if socket.protocol != PROTOCOL:
            raise Garbled("the API server does not speak v5.channel.k8s.io (Kubernetes 1.30 or later does)")
        async with helpers() as group:
            feeding = group.create_task(_feed(socket, stdin)) if stdin is not None else None
            code = await _receive(socket, {_STDOUT: stdout, _STDERR: stderr or stdout})
            if feeding:
                feeding.cancel()
        return code


async def _feed(socket: "ClientWebSocketResponse", stdin: AsyncIterable[bytes]) -> None:
    async for chunk in stdin:
        await socket.send_bytes(bytes([_STDIN]) + chunk)
    await socket.send_bytes(bytes([_CLOSE, _STDIN]))


async def _receive(socket: "ClientWebSocketResponse", sinks: Mapping[int, Callable[[bytes], object]]) -> int:
    import aiohttp  # noqa: PLC0415 - by who has opened the socket; slow to import

    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, payload = message.data[0], message.data[1:]
        if channel == _STATUS:
            return _exit_code(payload)
        if payload and channel in sinks:
            sinks[channel](payload)
    raise Unreachable("the connection to the container ended before its command did")


def _exit_code(payload: bytes) -> int:
    try:
        status = _decode_status(payload)
    except UNREADABLE as error:
        raise Garbled(f"the command ended with an invalid status: {error}") from error
    if status.status == "Success":
        return 0
    for cause in status.causes:
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    raise from_status(status, request="exec", code=status.code or 500)
