"""Logs and commands through our own client, on real kubelets."""

from collections.abc import AsyncIterator

import pytest

from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.kube.stream import execute, logs
from isthmus.model.meta import Key
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.pods import pod


@pytest.fixture
async def client(cluster: ClusterBed) -> AsyncIterator[Client]:
    async with Client(config.from_files([cluster.kubeconfig])) as opened:
        yield opened


@pytest.fixture
def talker(cluster: ClusterBed, namespace: str) -> Key:
    command = "echo one; echo two; while [ ! -e /tmp/end ]; do sleep 0.1; done; echo three"
    manifest = pod("talker", command=command, more="  restartPolicy: Never\n")
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=manifest)
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/talker", "--timeout=180s")
    # A container runs before it has said anything, and what it said is in its log still later.
    said = ("logs", "talker", f"--namespace={namespace}")
    eventually(lambda: cluster.kubectl(*said), "the log of the first words", holds=lambda it: it == "one\ntwo\n")
    return Key(namespace, "talker")


async def test_logs_show_what_was_written(client: Client, talker: Key) -> None:
    assert b"".join([chunk async for chunk in logs(client, talker)]) == b"one\ntwo\n"
    assert b"".join([chunk async for chunk in logs(client, talker, tail=1)]) == b"two\n"


async def test_following_logs_ends_with_the_container(client: Client, talker: Key) -> None:
    written = b""
    async for chunk in logs(client, talker, follow=True):
        written += chunk
        if written == b"one\ntwo\n":
            assert await execute(client, talker, ["touch", "/tmp/end"], stdout=lambda _: None) == 0  # noqa: S108
    assert written == b"one\ntwo\nthree\n"


async def test_a_command_gives_output_errors_and_exit_code(client: Client, talker: Key) -> None:
    out, err = bytearray(), bytearray()
    script = ["sh", "-c", "echo to output; echo to errors >&2; exit 7"]
    code = await execute(client, talker, script, stdout=out.extend, stderr=err.extend)
    assert (code, bytes(out), bytes(err)) == (7, b"to output\n", b"to errors\n")


async def test_a_command_reads_its_input_to_the_end(client: Client, talker: Key) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    out = bytearray()
    assert await execute(client, talker, ["wc", "-c"], stdin=pieces(), stdout=out.extend) == 0
    assert out.strip() == b"100000"


async def test_a_terminal_is_one(client: Client, talker: Key) -> None:
    out = bytearray()
    assert await execute(client, talker, ["tty"], stdout=out.extend, tty=True) == 0
    assert out.startswith(b"/dev/pts/")


async def test_a_pod_that_is_not_there_is_said_so(client: Client, talker: Key) -> None:
    nobody = Key(talker.namespace, "nobody")
    with pytest.raises(NotFound):
        await execute(client, nobody, ["true"], stdout=lambda _: None)
