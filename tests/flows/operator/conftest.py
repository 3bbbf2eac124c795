"""The kinds of Slurm clusters on a real API server, and a namespace for each test."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.node import NODES
from isthmus.operator import crds
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import NAMESPACES, make_namespace
from tests.flows.operator.nodesets_bed import PLACES


@pytest.fixture(scope="session")
def served(control_plane: ControlPlaneBed) -> None:
    """Have the kinds served, once for all tests."""

    async def install() -> None:
        async with Client(load(control_plane.kubeconfig)) as client:
            await crds.install(client)

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
    await kube.delete(NAMESPACES, name)
