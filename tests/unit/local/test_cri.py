"""A real containerd in a real machine says when it is ready for a kubelet."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from isthmus.local import cri
from isthmus.local.machine import Machine
from isthmus.local.node import Node
from tests.unit.local.conftest import eventually
from tests.unit.local.test_node import node


@pytest.fixture
def worker(tmp_path: Path, group: str) -> Iterator[Node]:
    machine = Machine(tmp_path / "m", hostname="unit-worker", group=f"{group}/m", keep=(tmp_path,))
    worker = node(tmp_path, 1, machine=machine)
    worker.write_configuration()
    machine.boot()
    yield worker
    machine.halt()


def test_containerd_is_ready_when_it_answers_kubelets(worker: Node) -> None:
    part = worker.containerd()
    assert not part.ready()
    worker.machine.start(part)
    eventually(part.ready)
    worker.machine.kill("containerd")
    assert not part.ready()


def test_a_containerd_that_listens_but_has_no_side_for_kubelets_is_not_ready(worker: Node) -> None:
    config = worker.machine.directory / "containerd.toml"
    config.write_text(
        config.read_text().replace("disabled_plugins = [", 'disabled_plugins = ["io.containerd.grpc.v1.cri", ')
    )
    worker.machine.start(worker.containerd())

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(worker.socket)) == 0

    eventually(listens)
    assert not worker.containerd().ready()


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(8), b"\xff" * 100])
def test_somebody_who_speaks_another_language_is_not_ready(tmp_path: Path, words: bytes) -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection, suppress(BrokenPipeError):  # who asked does not wait for ever
            connection.recv(65536)
            connection.sendall(words)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        assert not cri.is_ready(tmp_path / "s")
        thread.join()
    assert not cri.is_ready(tmp_path / "absent")
