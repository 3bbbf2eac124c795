"""The kinds of Slurm clusters on a real API server, and a namespace for each test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import ApiError
from isthmus.model.node import NODES
from isthmus.model.objects import SERVICES
from isthmus.model.pod import PODS
from isthmus.operator import crds
from tests.bed import logs
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.conftest import make_namespace
from tests.flows.operator.nodesets_bed import PLACES, NodeSets, make_controller, running


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


@contextmanager
def own_control_plane(request: pytest.FixtureRequest, name: str) -> Iterator[ControlPlaneBed]:
    """A control plane without controllers, for a module whose kinds would be in the way of other tests."""
    with (
        ControlPlaneBed(controllers=False) as bed,
        logs.shown(request.config, name=f"{name}-control-plane", directory=bed.logs),
    ):
        yield bed


def serve_kinds(control_plane: ControlPlaneBed) -> None:
    async def install() -> None:
        async with Client(load(control_plane.kubeconfig)) as client:
            await crds.install(client)
            await until_listed(client, crds.definitions())

    asyncio.run(install())


@pytest.fixture(scope="session")
def served(control_plane: ControlPlaneBed) -> None:
    """Have the kinds served, once for all tests."""
    serve_kinds(control_plane)


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


@pytest.fixture
def cluster(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm whose nodes tests make as slurmd would."""
    bed = shared_slurm("26.05", nodes=0, accounting=False, settings={"ReturnToService": "2"})
    yield bed
    bed.command("scancel", "--user=slurm")
    for line in bed.scontrol("--oneliner", "show", "nodes").splitlines():
        if line.startswith("NodeName="):
            bed.scontrol("delete", line.split()[0])


@pytest.fixture
async def bed(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed
) -> AsyncIterator[NodeSets]:
    """NodeSets with that Slurm; most modules have a bed of their own."""
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, cluster) as bed:
        yield bed
