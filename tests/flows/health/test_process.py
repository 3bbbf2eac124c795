"""The process `soperatorchecks` as a whole: it gets ready, leads, counts, and ends."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import pytest

from isthmus import names
from isthmus.kube.client import Client
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.processes import soperatorchecks as app
from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed


@pytest.fixture
def host() -> Iterator[str]:
    with loopback_address() as found:
        yield found


async def test_it_gets_ready_leads_and_shows_its_metrics(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, host: str
) -> None:
    health, scrape = f"{host}:8081", f"{host}:8080"
    options = app.Options(
        namespaces=(namespace,),
        kubeconfig=control_plane.kubeconfig,
        health_address=health,
        metrics_address=scrape,
        election_namespace=namespace,
    )
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(app.run(options, environ={}))

        async def ready() -> bool:
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://{health}/readyz") as answer:
                    return answer.status == 200
            return False

        async def leads() -> bool:
            found = (await kube.list(LEASES, namespace=namespace)).items
            return any(it.metadata.key == Key(namespace, app.NAME) and it.spec.holder_identity for it in found)

        async with asyncio.timeout(120):
            while not (await ready() and await leads()):
                assert not running.done()
                await asyncio.sleep(0.1)
        async with session.get(f"http://{scrape}/metrics") as answer:
            text = await answer.text()
        assert names.REPAIR_SECONDS.name in text
        assert 'controller_runtime_max_concurrent_reconciles{controller="node-health"}' in text
        running.cancel()
