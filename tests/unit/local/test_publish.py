"""The real process, as the cluster runs it, between real sockets."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from isthmus.local import host
from tests.bed.addresses import loopback_address
from tests.unit.local.conftest import eventually

PATIENCE = 120


@dataclass(frozen=True)
class Published:
    port: int
    there: socket.socket

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection: the client's, and the one that arrived at the node."""
        ours = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        arrived, _ = self.there.accept()
        arrived.settimeout(PATIENCE)
        return ours, arrived


@pytest.fixture
def published(port: int) -> Iterator[Published]:
    with loopback_address() as address, socket.socket() as there:
        there.bind((address, 0))
        there.listen()
        there.settimeout(PATIENCE)
        pair = f"{port}:{there.getsockname()[1]}"
        with subprocess.Popen([sys.executable, "-m", "isthmus.local.publish", address, pair]) as process:
            try:
                eventually(lambda: not host.port_is_free(port))
                yield Published(port, there)
            finally:
                process.kill()


def read_all(end: socket.socket) -> bytes:
    received = b""
    while data := end.recv(65536):
        received += data
    return received


async def test_bytes_go_both_ways_unchanged_and_an_end_goes_through_alone(published: Published) -> None:
    ours, arrived = published.connect()
    request, answer = bytes(range(256)) * 4000, bytes(reversed(range(256))) * 5000
    with closing(ours), closing(arrived):

        def ask() -> bytes:
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)
            return read_all(ours)

        asked = asyncio.ensure_future(asyncio.to_thread(ask))
        # The answer begins after the whole request, so the end of one direction did not end the other.
        assert await asyncio.to_thread(read_all, arrived) == request
        await asyncio.to_thread(arrived.sendall, answer)
        arrived.close()
        assert await asked == answer


def test_a_client_that_breaks_off_is_seen_at_the_node_though_that_is_silent(published: Published) -> None:
    ours, arrived = published.connect()
    with closing(arrived):
        ours.sendall(b"x")
        assert arrived.recv(1) == b"x"
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close by reset
        ours.close()
        assert arrived.recv(1) == b""


def test_when_nobody_listens_at_the_node_the_connection_ends(published: Published) -> None:
    published.there.close()
    with socket.create_connection(("127.0.0.1", published.port), timeout=PATIENCE) as ours:
        assert ours.recv(1) == b""
