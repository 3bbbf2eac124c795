"""The program in docs/building-on-isthmus.md, as it stands there, on a real API server."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest

from isthmus.kube.client import Client
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from tests.bed.addresses import quiet_port
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import pod
from tests.flows.kube.waiting import eventually_read

PAGE = Path(__file__).parents[3] / "docs" / "building-on-isthmus.md"
LEASE = Key("default", "pod-counter")


def program() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is still free when the program has started."""
    with quiet_port() as number:
        yield number


@pytest.fixture
def counter(control_plane: ControlPlaneBed, tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process of its own."""
    file = tmp_path / "counter.py"
    file.write_text(program())
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, str(file)], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.fixture
async def node(client: Client) -> AsyncIterator[str]:
    name = f"node-{uuid4().hex[:8]}"
    await client.create(NODES, {"metadata": {"name": name}})
    yield name
    await client.delete(NODES, name)


async def test_the_example_counts_and_ends_in_order(
    client: Client, namespace: str, node: str, counter: subprocess.Popen[str], port: int
) -> None:
    def counted(number: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return (await client.get(NODES, node)).metadata.annotations.get("example.org/pods") == str(number)

        return look

    await eventually_read(counted(0))
    for name in ("a", "b"):
        body = pod(namespace, name)
        body["metadata"]["annotations"] = {"slinky.slurm.net/slurm-node": node}
        await client.create(PODS, body)
    await eventually_read(counted(2))
    await client.delete(PODS, Key(namespace, "a"), grace=0)
    await eventually_read(counted(1))

    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as ready:
            assert await ready.text() == "[+] process: runs\n[+] nodes: up to date\n[+] pods: up to date\n"
        async with session.get(f"http://127.0.0.1:{port}/metrics") as scraped:
            metrics = await scraped.text()
    assert 'leader_election_master_status{name="pod-counter"} 1.0' in metrics
    assert 'controller_runtime_reconcile_errors_total{controller="pod-counter"} 0.0' in metrics
    patched = re.search(r'rest_client_requests_total\{code="200",host=".*",method="PATCH"\} (\S+)', metrics)
    assert patched
    assert float(patched[1]) >= 3

    assert (await client.get(LEASES, LEASE)).spec.holder_identity
    counter.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(counter.wait, 60) == 0
    assert not (await client.get(LEASES, LEASE)).spec.holder_identity, "the lease was not given back"


def test_the_example_is_about_forty_lines() -> None:
    lines = [line for line in program().splitlines() if line.strip() and not line.startswith(("import ", "from "))]
    assert len(lines) <= 40
