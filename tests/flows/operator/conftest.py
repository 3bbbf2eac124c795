"""The kinds of Slurm clusters on a real API server, and a namespace for each test."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import ApiError
from isthmus.model.node import NODES
from isthmus.model.objects import SERVICES
from isthmus.model.pod import PODS
from isthmus.operator import crds
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import make_namespace
from tests.flows.operator.nodesets_bed import PLACES


async def until_listed(client: Client, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Wait until the API server lists kinds, a moment after it serves them: kubectl and helm know no others."""
    wanted = {
        (f"{spec['group']}/{version['name']}", spec["names"]["plural"])
        for spec in (it["spec"] for it in definitions)
        for version in spec["versions"]
        if version["served"]
    }
    async with asyncio.timeout(60):
        while wanted:
            for api in {api for api, _ in wanted}:
                with suppress(ApiError):
                    listed = json.loads(await client.raw(f"/apis/{api}"))["resources"]
                    wanted -= {(api, it["name"]) for it in listed}
            await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def served(control_plane: ControlPlaneBed) -> None:
    """Have the kinds served, once for all tests."""

    async def install() -> None:
        async with Client(load(control_plane.kubeconfig)) as client:
            await crds.install(client)
            await until_listed(client, crds.definitions())

    asyncio.run(install())


@pytest.fixture
async def kube(control_plane: ControlPlaneBed, served: None) -> AsyncIterator[Client]:  # noqa: ARG001 - first that
    async with Client(load(control_plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(kube: Client) -> AsyncIterator[str]:
    name = await make_namespace(kube)
    yield name
    await kube.delete_all(NODES, labels=f"{PLACES}={name}")
    # What others could see or want goes. The rest stays: to empty a namespace costs the API server half a test.
    await kube.delete_all(PODS, namespace=name, fields="spec.nodeName!=", grace=0)
    await kube.delete_all(SERVICES, namespace=name)
