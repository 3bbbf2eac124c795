"""A real Prometheus scrapes a real operator: its board has data."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from isthmus.domain.operator.manifests.common import Settings
from isthmus.kube.client import Client
from isthmus.model.lease import LEASES
from isthmus.model.objects import SECRETS
from isthmus.model.slinky import CONTROLLERS, NODESETS, RESTAPIS, TOKENS
from isthmus.processes import operator as process
from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.bridge.test_apps import HEALTH, METRICS, WEBHOOK
from tests.flows.monitoring.board_bed import Board, scraping
from tests.flows.operator.parts_bed import JWT_KEY, JWT_KEY_REF, SLURM_KEY, SLURM_KEY_REF

NO_DATA: Final = {
    "Elastic nodes": "no NodeSet is elastic",
    "Elastic nodes: time to start, 90 %": "likewise",
    "Elastic nodes: node-hours per hour": "likewise",
    "Drains and replacements, per hour": "no node was drained",
}
OF_IT: Final = {"controllerRef": {"name": "slurm"}}


@pytest.fixture
def address() -> Iterator[str]:
    with loopback_address() as address:
        yield address


@pytest.fixture
def board(tmp_path: Path, address: str) -> Iterator[Board]:
    with scraping(tmp_path, "operator", [f"{address}:{METRICS}"], {"IsthmusClusterDegraded"}) as board:
        yield board


@asynccontextmanager
async def running(kube: Client, kubeconfig: Path, namespace: str, address: str) -> AsyncIterator[None]:
    """Run the operator for one namespace."""
    options = process.Options(
        settings=Settings(cgroup="none"),
        name=f"operator-of-{namespace}",
        namespaces=(namespace,),
        kubeconfig=kubeconfig,
        metrics_address=f"{address}:{METRICS}",
        health_address=f"{address}:{HEALTH}",
        webhook_address=f"{address}:{WEBHOOK}",
        election_namespace=namespace,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(process.run(options))
            yield
            task.cancel()
    finally:
        await kube.delete_all(LEASES, namespace=namespace)  # others look for an operator's in every namespace


async def test_the_board_has_data(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, address: str, board: Board
) -> None:
    def meta(name: str) -> dict[str, Any]:
        return {"namespace": namespace, "name": name}

    for reference, key in ((SLURM_KEY_REF, SLURM_KEY), (JWT_KEY_REF, JWT_KEY)):
        data = {reference["key"]: key.decode()}
        await kube.create(SECRETS, {"metadata": meta(reference["name"]), "stringData": data})
    keys = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}
    await kube.create(CONTROLLERS, {"metadata": meta("slurm"), "spec": keys})
    await kube.create(RESTAPIS, {"metadata": meta("slurm"), "spec": OF_IT})
    await kube.create(NODESETS, {"metadata": meta("worker"), "spec": {**OF_IT, "replicas": 2}})
    await kube.create(TOKENS, {"metadata": meta("pass"), "spec": {"username": "alice", "jwtKeyRef": JWT_KEY_REF}})
    async with running(kube, control_plane.kubeconfig, namespace, address):
        await board.lacks(set(NO_DATA))
