"""The bridge's processes as they are started in a pod, on a real API server and a real Slurm."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from isthmus import names
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_conf import SLURMRESTD_PORT
from tests.flows.bridge.conftest import PARTITION, make_node, pod

PRIORITY_CLASSES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False
)

ISTHMUS = Path(sys.executable).with_name("isthmus")

# The usual ports and ten thousand: the kernel hands these out to nobody, and each process has its own address.
HEALTH, METRICS, WEBHOOK = 18081, 18080, 19443


@dataclass
class Process:
    """A running process, and its servers."""

    popen: subprocess.Popen[str]
    health: str
    metrics: str

    async def ready(self) -> tuple[int, str]:
        """Ask whether it is ready; 0 while nobody listens."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.health}/readyz") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def until_ready(self, condition: Callable[[int, str], bool], *, within: float = 60) -> str:
        """Wait until readiness is as wanted; return what it says."""
        last = ""
        try:
            async with asyncio.timeout(within):
                while True:
                    assert self.popen.poll() is None, "the process ended"
                    status, last = await self.ready()
                    if condition(status, last):
                        return last
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not as wanted in time:\n{last}") from None

    async def until_scraped(self, text: str, *, within: float = 60) -> str:
        """Wait until its metrics contain this; return them all."""
        async with asyncio.timeout(within), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.metrics}/metrics") as answer:
                    if text in (scraped := await answer.text()):
                        return scraped
                await asyncio.sleep(0.05)

    async def end(self) -> int:
        """Ask it to end, and wait for that."""
        self.popen.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.popen.wait, 60)


@contextmanager
def process(*words: str, log: Path, scheme: str = "http", **environ: str) -> Iterator[Process]:
    """Run a process of the bridge until the block ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | environ
    with (
        loopback_address() as address,
        log.open("w") as output,
        subprocess.Popen(
            [
                ISTHMUS,
                "bridge",
                *words,
                f"--health-probe-bind-address={address}:{HEALTH}",
                f"--metrics-bind-address={address}:{METRICS}",
            ],
            env=environment,
            stdout=output,
            stderr=output,
            text=True,
        ) as popen,
    ):
        try:
            yield Process(popen, f"http://{address}:{HEALTH}", f"{scheme}://{address}:{METRICS}")
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            popen.kill()


async def until_bound(client: Client, key: Key) -> Pod:
    async with asyncio.timeout(60):
        while not (found := await client.get(PODS, key)).bound:  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.05)
    return found


async def until_known(slurm: SlurmBed, node: str, *, known: bool = True) -> None:
    def look() -> bool:
        return node in slurm.command("sinfo", "-h", "-N", "-o", "%N").split()

    async with asyncio.timeout(60):
        while await asyncio.to_thread(look) != known:  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.1)


@pytest.fixture
def scheduler_name() -> str:
    """A name that no other test's processes answer to."""
    return f"test-{uuid4().hex[:8]}"


@pytest.fixture
def settings(tmp_path: Path, scheduler_name: str, slurm_with_external_nodes: SlurmBed) -> Path:
    """A configuration whose token is not there yet."""
    file = tmp_path / "config.yaml"
    file.write_text(
        f"schedulerName: {scheduler_name}\n"
        f"slurmRestApi: {slurm_with_external_nodes.rest_url}\n"
        f"slurmJwtFile: {tmp_path}/auth-token\n"
        f"partition: {PARTITION}\n"
        "featureLabels: [zone]\n"
    )
    return file


@dataclass(frozen=True)
class Place:
    """Where a scheduler runs: its name and settings, and the servers."""

    scheduler_name: str
    settings: Path
    kubeconfig: Path
    slurm: SlurmBed

    @property
    def token(self) -> Path:
        return self.settings.with_name("auth-token")

    def scheduler(self, *flags: str) -> AbstractContextManager[Process]:
        words = ("scheduler", f"--config={self.settings}", f"--kubeconfig={self.kubeconfig}", *flags)
        return process(*words, log=self.settings.with_name("log"))


@pytest.fixture
def place(
    scheduler_name: str,
    settings: Path,
    control_plane: ControlPlaneBed,
    slurm_with_external_nodes: SlurmBed,
    nodes: list[str],
) -> Place:
    del nodes  # which are there for the pods
    return Place(scheduler_name, settings, control_plane.kubeconfig, slurm_with_external_nodes)


async def test_the_scheduler_waits_for_its_token_and_then_places_pods(
    place: Place, client: Client, namespace: str, nodes: list[str]
) -> None:
    scheduler_name = place.scheduler_name
    lease = Key("default", scheduler_name)
    with place.scheduler("--leader-elect=true") as running:
        said = await running.until_ready(lambda status, text: status == 503 and "auth-token" in text)
        assert f"slurm: has not been read yet: the token file {place.token} cannot be read" in said
        place.token.write_text(f"SLURM_JWT={place.slurm.token('slurm')}\n")
        await running.until_ready(lambda status, _: status == 200)

        await client.create(PODS, pod(namespace, "one", schedulerName=scheduler_name))
        found = await until_bound(client, Key(namespace, "one"))
        assert found.spec.node_name in nodes
        assert (await client.get(LEASES, lease)).spec.holder_identity
        # The binding may be known to us before its answer is known to the scheduler.
        scraped = await running.until_scraped(f'kind="Pod",namespace="{namespace}"}} 1.0')
        assert f'leader_election_master_status{{name="{scheduler_name}"}} 1.0' in scraped
        assert "isthmus_bridge_slurm_in_touch 1.0" in scraped
        assert "isthmus_bridge_token_expiry_timestamp_seconds 1" in scraped
        assert "isthmus_bridge_orphan_allocations 0.0" in scraped

        assert await running.end() == 0
    assert not (await client.get(LEASES, lease)).spec.holder_identity, "the lease was not given back"
    place.slurm.command("scancel", found.metadata.labels[names.JOB_ID_LABEL])


async def test_weakness_26_a_priority_class_moves_a_job_where_the_configuration_says_so(
    place: Place, client: Client, namespace: str
) -> None:
    scheduler_name = place.scheduler_name
    with place.settings.open("a") as file:
        file.write("niceFromPriorityClass: true\n")
    place.token.write_text(place.slurm.token("slurm"))
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": scheduler_name}, "value": 1000})
    try:
        with place.scheduler("--no-leader-elect"):
            urgent = pod(namespace, "urgent", schedulerName=scheduler_name, priorityClassName=scheduler_name)
            await client.create(PODS, urgent)
            await client.create(PODS, pod(namespace, "plain", schedulerName=scheduler_name))
            found = [await until_bound(client, Key(namespace, name)) for name in ("urgent", "plain")]
            ids = [it.metadata.labels[names.JOB_ID_LABEL] for it in found]
            nice = [place.slurm.command("squeue", "-h", "-j", it, "-o", "%y").strip() for it in ids]
            assert nice == ["-1000", "0"]
            place.slurm.command("scancel", *ids)
    finally:
        await client.delete(PRIORITY_CLASSES, scheduler_name)


async def test_a_process_waits_for_kubernetes_and_says_so(settings: Path, tmp_path: Path, address: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        f"clusters: [{{name: c, cluster: {{server: 'http://{address}:16443'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    webhook = f"--webhook-bind-address={address}:{WEBHOOK}"
    words = ("all", f"--config={settings}", f"--kubeconfig={kubeconfig}", webhook)
    with process(*words, log=tmp_path / "log") as running:
        said = await running.until_ready(lambda status, text: status == 503 and "not known yet: " in text)
        assert "[-] cluster: not known yet: " in said
        assert "not contacted yet" not in await running.until_ready(lambda _, text: "not contacted yet" not in text)
        assert await running.end() == 0


async def test_all_in_one_admits_pods_while_slurm_is_away(
    tmp_path: Path, scheduler_name: str, control_plane: ControlPlaneBed, client: Client, address: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"schedulerName: {scheduler_name}\nfeatures: {{secureMetrics: true}}\n")
    del client  # which has made the kind of the policies
    words = (
        "all",
        f"--config={file}",
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--webhook-bind-address={address}:{WEBHOOK}",
        f"--name={scheduler_name}",
    )
    away = f"http://{address}:{SLURMRESTD_PORT}"
    with process(*words, log=tmp_path / "log", scheme="https", SLURM_REST_API=away, SLURM_JWT="a.b.c") as running:
        said = await running.until_ready(lambda status, _: status == 200)
        assert "[+] slurm: has not been read yet: " in said
        assert said.count("(pods are admitted meanwhile)") == 1
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{running.metrics}/metrics", ssl=trusting) as answer:
                assert "workqueue_depth" in await answer.text()
            hook = f"https://{address}:{WEBHOOK}/mutate--v1-pod"
            async with session.post(hook, data=b"{}", ssl=trusting) as answer:
                assert answer.status == 400  # somebody is there, and this is no review
        assert await running.end() == 0


async def test_controllers_register_nodes_with_the_features_that_were_chosen(
    settings: Path,
    tmp_path: Path,
    control_plane: ControlPlaneBed,
    client: Client,
    slurm_with_external_nodes: SlurmBed,
) -> None:
    (tmp_path / "auth-token").write_text(slurm_with_external_nodes.token("slurm"))
    name = f"n{uuid4().hex[:8]}"
    await make_node(client, name, labels={names.EXTERNAL_NODE_LABEL: "", "zone": "east"})
    address = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    await client.merge_patch(NODES, name, {"status": address}, subresource="status")
    words = ("controllers", f"--config={settings}", f"--kubeconfig={control_plane.kubeconfig}")
    lease = f"--leader-election-id=test-{name}"
    try:
        with process(*words, lease, log=tmp_path / "log") as running:
            await running.until_ready(lambda status, _: status == 200)
            await until_known(slurm_with_external_nodes, name)
            assert slurm_with_external_nodes.command("sinfo", "-h", "-n", name, "-o", "%f").strip() == "east"
            await client.delete(NODES, name)
            await until_known(slurm_with_external_nodes, name, known=False)
            assert await running.end() == 0
    finally:
        await client.delete_all(NODES, fields=f"metadata.name={name}")


def test_an_address_that_is_taken_is_told_in_a_sentence(settings: Path, control_plane: ControlPlaneBed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                ISTHMUS,
                "bridge",
                "scheduler",
                f"--config={settings}",
                f"--kubeconfig={control_plane.kubeconfig}",
                f"--health-probe-bind-address=127.0.0.1:{port}",
                "--metrics-bind-address=0",
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"isthmus: cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
