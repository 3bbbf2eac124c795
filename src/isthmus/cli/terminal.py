"""Runs a command in a pod as if it ran here: its input, output and exit code, and a terminal if there is one."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key

_PIECE = 65536


async def run_in_pod(client: Client, pod: Key, command: Sequence[str], *, container: str) -> int:
    """Run it to its end."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()

    def show(piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    def complain(piece: bytes) -> None:
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()

    with _raw() if interactive else _as_it_is():
        return await stream.execute(
            client,
            pod,
            command,
            container=container,
            stdin=_typed(),
            stdout=show,
            stderr=complain,
            tty=interactive,
        )


async def _typed() -> AsyncIterator[bytes]:
    """Give what is typed or piped in, as it comes."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A file is always readable, and cannot be waited for.
        while piece := os.read(descriptor, _PIECE):
            yield piece
        return
    try:
        while True:
            await readable.wait()
            readable.clear()
            piece = os.read(descriptor, _PIECE)
            if not piece:
                return
            yield piece
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _raw() -> Iterator[None]:
    """Let every key go to the pod, also those that would end or stop us."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
