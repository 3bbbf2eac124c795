"""`isthmus report` finds the exporter of a cluster, and reaches it through the real API server."""

import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobrun import JobRun
from isthmus.errors import Retry, Terminal
from isthmus.exporter import usage
from isthmus.exporter.jobhistory import JobHistory
from isthmus.inspect.report import from_cluster
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.objects import SERVICES
from isthmus.model.pod import PODS
from isthmus.slurm.poller import Poller
from tests.flows.kube.conftest import pod

_ENDPOINTS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "endpoints", "Endpoints")


def _address() -> str:
    """An address of this machine that is not the loopback's: the API server proxies to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of an exporter in which alice has used ten CPUs for an hour."""
    poller = Poller(None)  # type: ignore[arg-type] # nobody asks Slurm here
    history = JobHistory(poller, directory=None, limits=Limits(), accounting=None)
    end = int(time.time()) - 60
    run = JobRun(
        job_id=1, submit=1, start=end - 3600, end=end, elapsed=3600, cpus=10, user="alice", state="completed"
    )
    await history._database.run(lambda connection: usage.write(connection, [run]))
    app = web.Application()
    app.add_routes(history.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, _address(), 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()
    await history._database.close()


async def _expose(client: Client, namespace: str, name: str, port: int) -> None:
    labels = {"app.kubernetes.io/component": "exporter", "app.kubernetes.io/instance": name}
    meta = {"namespace": namespace, "name": f"{name}-exporter", "labels": labels}
    ports = [{"name": "metrics", "port": 8080}, {"name": "monitoring", "port": 8081}]
    await client.create(SERVICES, {"metadata": meta, "spec": {"ports": ports}})
    if port:
        # The API server proxies only to addresses of pods, and this one is not run by anybody.
        made = await client.create(PODS, pod(namespace, name))
        address = {"podIP": _address(), "podIPs": [{"ip": _address()}]}
        await client.merge_patch(PODS, made.metadata.key, {"status": address}, subresource="status")
        target = {"kind": "Pod", "namespace": namespace, "name": name, "uid": made.metadata.uid}
        addresses = [{"ip": _address(), "targetRef": target}]
        at = [{"addresses": addresses, "ports": [{"name": "monitoring", "port": port}]}]
        await client.create(_ENDPOINTS, {"metadata": meta, "subsets": at})


async def test_the_exporter_is_found_and_asked_through_the_api_server(
    client: Client, namespace: str, port: int
) -> None:
    with pytest.raises(Terminal, match=f"no exporter of any cluster in namespace {namespace}"):
        await from_cluster(client, {}, namespace=namespace)
    await _expose(client, namespace, "one", port)
    found = await from_cluster(client, {"by": "user"}, namespace=namespace)
    assert [(line.group, line.cpu_hours) for line in found.lines] == [("alice", 10.0)]
    await _expose(client, namespace, "two", 0)
    with pytest.raises(Terminal, match=f"2 exporters: {namespace}/one-exporter, {namespace}/two-exporter"):
        await from_cluster(client, {}, namespace=namespace)
    assert (await from_cluster(client, {"by": "user"}, namespace=namespace, cluster="one")).lines == found.lines


async def test_an_exporter_that_is_down_is_an_error_with_a_remedy(client: Client, namespace: str) -> None:
    await _expose(client, namespace, "one", 0)
    with pytest.raises(Retry, match=r"one-exporter does not answer(?s:.*)kubectl get pods"):
        await from_cluster(client, {}, namespace=namespace)
