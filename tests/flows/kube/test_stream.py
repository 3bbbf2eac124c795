"""Logs and commands, as far as an API server without nodes can tell."""

from contextlib import aclosing

import pytest

from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound, Rejected
from isthmus.kube.stream import execute, logs
from isthmus.model.meta import Key
from isthmus.model.pod import PODS
from tests.flows.kube.conftest import pod


async def read(client: Client, key: Key) -> bytes:
    async with aclosing(logs(client, key, tail=10, follow=True)) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_logs_of_a_pod_that_is_not_there(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        await read(client, Key(namespace, "nobody"))


async def test_logs_of_a_pod_that_was_not_placed_are_empty(client: Client, namespace: str) -> None:
    await client.create(PODS, pod(namespace, "waiting"))
    assert await read(client, Key(namespace, "waiting")) == b""


async def test_a_command_in_a_pod_that_is_not_there(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        await execute(client, Key(namespace, "nobody"), ["true"], stdout=print)


async def test_a_command_in_a_pod_that_was_not_placed(client: Client, namespace: str) -> None:
    await client.create(PODS, pod(namespace, "waiting"))
    with pytest.raises(Rejected):
        await execute(client, Key(namespace, "waiting"), ["true"], stdout=print)
