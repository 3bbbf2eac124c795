"""The kinds of Slurm clusters on a real API server, and a namespace for each test."""

from collections.abc import AsyncIterator

import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.operator import crds
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import NAMESPACES, make_namespace


@pytest.fixture
async def kube(control_plane: ControlPlaneBed) -> AsyncIterator[Client]:
    async with Client(load(control_plane.kubeconfig)) as client:
        await crds.install(client)
        yield client


@pytest.fixture
async def namespace(kube: Client) -> AsyncIterator[str]:
    name = await make_namespace(kube)
    yield name
    await kube.delete(NAMESPACES, name)
