"""A real Prometheus scrapes a real bridge: its board has data, and alerts fire from real causes and end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from isthmus import names
from isthmus.bridge.cache import orphans
from isthmus.bridge.config import Config, Features
from isthmus.kube.client import Client
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.processes import bridge as process
from isthmus.processes.bridge import Part
from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import PARTITION, make_node, pod
from tests.flows.bridge.test_apps import HEALTH, METRICS, until_bound, until_known
from tests.flows.monitoring.board_bed import Board, scraping

NO_DATA: Final = {"Allocations returned, per hour": "Kubernetes could use every node"}
ALERTS: Final = {
    "IsthmusBridgeLostSlurm",
    "IsthmusBridgeTokenExpiring",
    "IsthmusGresMismatch",
    "IsthmusOrphanAllocation",
}

_RUNS: Final = {
    "name": "main",
    "image": "example/none",
    "imageID": "",
    "ready": True,
    "restartCount": 0,
    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
}


class Site:
    """A bridge's processes, its token, and its pods."""

    def __init__(self, slurm: SlurmBed, client: Client, namespace: str, directory: Path, kubeconfig: Path) -> None:
        self.slurm = slurm
        self.client = client
        self.namespace = namespace
        self._token = directory / "token"
        self._kubeconfig = kubeconfig
        self._config = Config(
            scheduler_name=f"test-{uuid4().hex[:8]}",
            slurm_rest_api=(slurm.rest_url,),
            slurm_jwt_file=self._token,
            partition=PARTITION,
            features=Features(enable_leader_election=False),
        )
        self.be_valid(seconds=3600)

    def be_valid(self, *, seconds: int) -> None:
        """Replace the token, as kubelet does when its Secret changes."""
        new = self._token.with_suffix(".new")
        new.write_text(self.slurm.token("slurm", lifetime=seconds))
        new.replace(self._token)

    @asynccontextmanager
    async def running(self, part: Part, address: str) -> AsyncIterator[None]:
        """Run a part as its own process would."""
        options = process.Options(
            kubeconfig=self._kubeconfig,
            metrics_address=f"{address}:{METRICS}",
            health_address=f"{address}:{HEALTH}",
            webhook_address="0",
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(process.run(frozenset({part}), self._config, options))
            yield
            running.cancel()

    async def make(self, name: str, **annotations: str) -> Key:
        asked = {f"{names.JOB_ANNOTATIONS}{key}": value for key, value in annotations.items()}
        body = pod(self.namespace, name, schedulerName=self._config.scheduler_name, annotations=asked)
        return (await self.client.create(PODS, body)).metadata.key

    def counted(self, counter: str, number: int) -> str:
        """Ask whether a counter of this namespace has come so far."""
        return f'sum({counter}{{namespace="{self.namespace}"}}) == {number}'

    async def place(self, name: str) -> str:
        """Let a pod be placed and run; its job."""
        found = await until_bound(self.client, await self.make(name))
        status = {"phase": "Running", "containerStatuses": [_RUNS]}
        await self.client.merge_patch(PODS, found.metadata.key, {"status": status}, subresource="status")
        return found.metadata.labels[names.JOB_ID_LABEL]


@pytest.fixture
def site(
    slurm_with_external_nodes: SlurmBed,
    client: Client,
    namespace: str,
    tmp_path: Path,
    control_plane: ControlPlaneBed,
) -> Site:
    return Site(slurm_with_external_nodes, client, namespace, tmp_path, control_plane.kubeconfig)


@pytest.fixture
def addresses() -> Iterator[tuple[str, str]]:
    with loopback_address() as first, loopback_address() as second:
        yield first, second


@pytest.fixture
def board(tmp_path: Path, addresses: tuple[str, str]) -> Iterator[Board]:
    with scraping(tmp_path, "bridge", [f"{it}:{METRICS}" for it in addresses], ALERTS) as board:
        yield board


@pytest.mark.usefixtures("nodes")
async def test_the_board_has_data_and_alerts_fire_from_their_causes(
    site: Site, board: Board, addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "LASTING", 0.5)
    async with site.running("scheduler", addresses[0]):
        await board.shows("isthmus_bridge_slurm_in_touch == 1")
        site.be_valid(seconds=45)
        await board.fires("IsthmusBridgeTokenExpiring")
        site.be_valid(seconds=3600)
        await board.is_well()
        # Nobody ends the job of a pod that is gone until the controllers run.
        await site.place("lost")
        await site.client.delete(PODS, Key(site.namespace, "lost"), grace=0)
        await board.fires("IsthmusOrphanAllocation")
        async with site.running("controllers", addresses[1]):
            await board.is_well()
            # The first of a kind does not raise a counter, which begins with it.
            for number, name in enumerate(("first", "second"), 1):
                job = await site.place(name)
                await board.shows(site.counted("isthmus_bridge_pods_started_total", number))
                site.slurm.command("scancel", job)
                await board.shows(site.counted("isthmus_bridge_pods_evicted_total", number))
                # As its kubelet would, when it has ended.
                await site.client.delete(PODS, Key(site.namespace, name), grace=0)
            await site.make("later", begin="2037-01-01T00:00:00Z")
            async with labelled_node(site) as node:
                # Slurm cannot have it without an address.
                await board.fires("IsthmusGresMismatch")
                address = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
                await site.client.merge_patch(NODES, node, {"status": address}, subresource="status")
                await board.is_well()
                await board.lacks(set(NO_DATA))
            await asyncio.to_thread(site.slurm.kill, "slurmrestd")
            try:
                await board.fires("IsthmusBridgeLostSlurm")
            finally:
                await asyncio.to_thread(site.slurm.start, "slurmrestd")  # others use it, too
            await board.is_well()


@asynccontextmanager
async def labelled_node(site: Site) -> AsyncIterator[str]:
    """Have a node that the bridge is to register, until Slurm has forgotten it."""
    name = f"n{uuid4().hex[:8]}"
    await make_node(site.client, name, labels={names.EXTERNAL_NODE_LABEL: ""})
    try:
        yield name
    finally:
        await site.client.delete(NODES, name)
        await until_known(site.slurm, name, known=False)
