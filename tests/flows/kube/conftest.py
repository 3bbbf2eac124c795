"""A client of the real control plane, a namespace for each test, and a proxy that can break single requests."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from isthmus.kube.auth import Credentials
from isthmus.kube.client import Client
from isthmus.kube.config import Config, load
from isthmus.kube.watch import watch
from isthmus.model.base import Kind
from isthmus.model.meta import Partial
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults, Proxy

NAMESPACES: Kind[Partial] = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS: Kind[Partial] = Kind(Partial, "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "configmaps", "ConfigMap")

Through = Callable[..., AbstractAsyncContextManager[tuple[Proxy, Config]]]


def pod(namespace: str, name: str, **spec: object) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/none"}]
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"containers": containers, **spec}}


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "data": data}


@pytest.fixture
async def client(config: Config) -> AsyncIterator[Client]:
    async with Client(config) as client:
        yield client


async def make_namespace(client: Client) -> str:
    """Make a namespace in which pods can be created: one whose service account is there."""
    name = f"test-{uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    async with aclosing(watch(client, ACCOUNTS, namespace=name, duration=120)) as batches:
        async for batch in batches:
            if any(isinstance(found, Partial) and found.metadata.name == "default" for found in batch.changes):
                return name
    raise AssertionError("the controller manager made no service account")


@asynccontextmanager
async def namespace_for_pods(client: Client) -> AsyncIterator[str]:
    """Make a namespace whose pods are gone in the end."""
    name = await make_namespace(client)
    yield name
    # It stays: to look for objects of every kind in it, in order to delete it, takes 0.2 s of CPU time.
    await client.delete_all(PODS, namespace=name, grace=0)


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    async with namespace_for_pods(client) as name:
        yield name


@pytest.fixture
def through(control_plane: ControlPlaneBed, faults: Faults) -> Through:
    """Reach the API server through a proxy that reads HTTP: `async with through() as (proxy, config)`.

    Without credentials the client is an administrator, by token: a certificate is verified anew at each request.
    """
    authority = control_plane.plane.authority

    @asynccontextmanager
    async def open_proxy(credentials: Credentials | None = None) -> AsyncIterator[tuple[Proxy, Config]]:
        pair = authority.issue("faults", "faults", hosts=("127.0.0.1",))
        server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server_tls.load_cert_chain(pair.certificate, pair.key)
        part_tls = ssl.create_default_context(cafile=str(authority.certificate))
        opened = faults.in_front_of(control_plane.url, server_tls=server_tls, part_tls=part_tls)
        async with opened as proxy:
            config = msgspec.structs.replace(load(control_plane.kubeconfig), server=proxy.url)
            yield proxy, msgspec.structs.replace(config, credentials=credentials or config.credentials)

    return open_proxy


async def token_of(client: Client, namespace: str, account: str = "default") -> str:
    """Mint a token for a service account."""
    body = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    answer = await client.send("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body=body)
    return str(msgspec.json.decode(answer)["status"]["token"])
