"""Elastic nodes on a real Slurm: our configuration, our programs, and the pods' scripts, run as kubelet would."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from isthmus.domain.elastic.decision import FENCED, HELD, Verb, phase_of
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files, power, slurm_conf
from isthmus.model.slinky import Controller, NodeSet
from isthmus.model.slurm import Node
from isthmus.operator.nodesets.power import change_of
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import Daemon, _claim, wait_until
from tests.flows.slurm.helpers import eventually

SETS = ("a", "b")
KEPT = ("NodeName", "NodeSet", "PartitionName", "Resume", "Suspend")
"""Lines of our slurm.conf that the bed takes over."""


class Pod:
    """A worker pod whose container is a process of the bed."""

    def __init__(self, bed: SlurmBed, nodeset: NodeSet, port: int) -> None:
        self._bed = bed
        self._port = port
        host = {"external": True, "externalConfig": {"host": "127.0.0.1", "port": bed.controller_port}}
        controller = msgspec.convert({"metadata": {"name": "s", "namespace": "n"}, "spec": host}, Controller)
        made = worker.template(nodeset, controller, settings=Settings()).fill(numbered(nodeset, 0))
        self._container = made["spec"]["containers"][0]
        self.node = f"{nodeset.metadata.name}-0"
        told = {it["name"]: it["value"] for it in self._container["env"] if "value" in it}
        self._env = {"ISTHMUS_NODE": self.node, **told}
        self._daemon: Daemon | None = None

    def start(self) -> None:
        # Each slurmd keeps its configuration in the same place.
        argv = [*self._container["command"], *self._container["args"]]
        self._daemon = self._bed._box.spawn(
            argv,
            log=f"/var/log/slurm/{self.node}.log",
            hostname=self.node,
            env=self._env,
            own_directory="/run/slurm",
        )

    def end(self) -> None:
        """As kubelet does: the hook, then the signal."""
        if self._daemon and self._daemon.exit_code is None:
            hook = self._container["lifecycle"]["preStop"]["exec"]["command"]
            self._bed._box.run(*hook, env=self._env)
            self._daemon.end(signal.SIGTERM, grace=10)


class Site:
    """A Slurm with two elastic nodes, of a NodeSet each."""

    def __init__(self, bed: SlurmBed, client: Client, pods: dict[str, Pod]) -> None:
        self.bed = bed
        self.client = client
        self.pods = pods

    async def nodes(self) -> dict[str, Node]:
        listing = await self.client.nodes()
        assert listing
        return {it.name: it for it in listing.nodes}

    async def all(self, phase: str, *, without: str = "") -> dict[str, Node]:
        """Wait until all nodes are in a phase."""

        def good(found: dict[str, Node]) -> bool:
            return all(phase_of(it) == phase and without not in it.state for it in found.values())

        return await eventually(self.nodes, good)

    async def ask(self, verb: Verb, *nodes: str, why: str = "") -> None:
        await self.client.update_nodes(nodes, change_of(verb, why))

    def submit(self, *options: str) -> int:
        given = ("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=srun hostname")
        return int(self.bed.command(*given, user="alice").strip())

    async def job_is(self, job: int, state: str) -> None:
        async def read() -> Any:
            return (await self.client.job(job))[0].job_state

        await eventually(read, lambda found: state in found)


def nodeset(name: str, port: int, **autoscale: Any) -> NodeSet:
    spec = {
        "controllerRef": {"name": "s"},
        "replicas": 1,
        "autoscale": autoscale,
        "extraConf": f"Port={port}",
        "slurmd": {"resources": {"limits": {"cpu": "2", "memory": "512Mi"}}},
    }
    return msgspec.convert({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, NodeSet)


def configure(bed: SlurmBed, nodesets: list[NodeSet], **settings: str) -> None:
    """Give the bed what our slurm.conf says of power, and our programs, and start slurmctld with it."""
    controller = msgspec.convert({"metadata": {"name": "s", "namespace": "n"}, "spec": {}}, Controller)
    inputs = Inputs(
        controller=controller,
        settings=Settings(cgroup="none"),
        workers=tuple(Workers.of(it) for it in nodesets),
        version=bed.version,
    )
    lines = [it for it in slurm_conf(inputs).splitlines() if it.startswith(KEPT)]
    lines = [it for it in lines if it.partition("=")[0] not in settings]
    lines += [f"{key}={value}" for key, value in settings.items()]
    conf = bed.path("/etc/slurm/slurm.conf")
    before = [it for it in conf.read_text().splitlines() if not it.startswith("PartitionName")]
    conf.write_text("\n".join([*before, *lines, ""]))
    owner = conf.stat()
    for name, content in files(inputs).items():
        if name.startswith("power-"):
            program = bed.path(f"/etc/slurm/{name}")
            program.write_text(content)
            program.chmod(0o755)
    spool = bed.path("/var/spool/slurmctld")
    spool.mkdir(parents=True, exist_ok=True)
    os.chown(spool, owner.st_uid, owner.st_gid)
    with bed.path("/etc/hosts").open("a") as hosts:
        hosts.write("".join(f"127.0.0.1 {it}-0\n" for it in SETS))
    bed.restart("slurmctld")


@pytest.fixture
def ports() -> Iterator[tuple[int, ...]]:
    """Ports that no other bed has, and that the kernel gives to no client before slurmd listens."""
    with ExitStack() as claims:
        yield tuple(number for number, claim in (_claim() for _ in SETS) if claims.enter_context(claim))


@pytest.fixture(params=VERSIONS)
async def site(
    request: pytest.FixtureRequest, ports: tuple[int, ...], slurm_bed: Callable[..., SlurmBed]
) -> AsyncIterator[Site]:
    parameters = ",".join(("enable_configless", *power.PARAMETERS))
    settings = {"SlurmctldParameters": parameters, "ReturnToService": "2", "MessageTimeout": "5"}
    bed = slurm_bed(request.param, nodes=0, accounting=False, settings=settings)
    nodesets = [nodeset(name, port, idleTime="2s") for name, port in zip(SETS, ports, strict=True)]
    configure(bed, nodesets, SuspendTimeout="600")
    pods = {f"{it.metadata.name}-0": Pod(bed, it, port) for it, port in zip(nodesets, ports, strict=True)}
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        yield Site(bed, client, pods)
    for pod in pods.values():
        pod.end()


async def test_a_gang_brings_its_nodes_up_and_they_go_when_they_are_idle(site: Site) -> None:
    found = await site.all("off")
    assert {(it.cpus, it.real_memory, it.features) for it in found.values()} == {
        (2, 512, ("a",)),
        (2, 512, ("b",)),
    }
    job = site.submit("-N2")
    await site.all("starting")
    await site.job_is(job, "CONFIGURING")
    record = site.bed.path(power.RECORD)
    wait_until(record.exists, what="our program was called", within=60)
    told = json.loads(record.read_text().splitlines()[0])
    assert (told["verb"], told["nodes"]) == ("resume", "a-0,b-0")
    assert told["resume"]["jobs"][0]["job_id"] == job
    # A slurmctld that comes back in the midst of it neither loses nor gives up its nodes.
    site.bed.restart("slurmctld")
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.job_is(job, "COMPLETED")
    await site.all("stopping")
    for pod in site.pods.values():
        pod.end()
    assert all("DRAIN" not in it.state for it in (await site.nodes()).values()), "nobody has to bring them back"
    # Slurm would wait for ten minutes.
    await site.ask("Settle", *site.pods)
    await site.all("off")
    # And again: what is left of the first time is in nobody's way.
    again = site.submit("-N2")
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.job_is(again, "COMPLETED")


async def test_a_slurmd_from_before_is_not_accepted(site: Site) -> None:
    """So a pod that was there before its node was started has to be replaced."""
    await site.ask("PowerUp", *site.pods)
    await site.all("starting")
    for pod in site.pods.values():
        pod.start()
    await site.all("stopping")
    await site.ask("Settle", *site.pods)
    await site.all("off")
    job = site.submit("-wa-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.bed.scontrol("reconfigure")  # every slurmd that there is registers again
    site.pods["a-0"].end()
    assert phase_of((await site.nodes())["a-0"]) == "starting"
    site.pods["a-0"].start()
    await site.job_is(job, "COMPLETED")


async def test_nodes_that_do_not_come_give_their_job_back(site: Site) -> None:
    job = site.submit("-wa-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    await site.ask("SetDown", "a-0", why=f"{HELD}no machine")
    found = await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "held")
    assert found["a-0"].reason == f"{HELD}no machine"
    await site.job_is(job, "PENDING")
    site.bed.scontrol("hold", str(job))
    await site.ask("PowerDown", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "stopping")
    await site.ask("Settle", "a-0")
    await site.all("off", without="DOWN")
    site.bed.scontrol("release", str(job))
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")


async def test_a_fenced_node_is_not_given_to_jobs(site: Site) -> None:
    await site.ask("Fence", "a-0", why=f"{FENCED}autoscale.max is 0")
    fenced = (await site.nodes())["a-0"]
    assert phase_of(fenced) == "off"
    assert "DRAIN" in fenced.state
    job = site.submit("-N1")
    await eventually(site.nodes, lambda found: phase_of(found["b-0"]) == "starting")
    waiting = site.submit("-N1")
    assert phase_of((await site.nodes())["a-0"]) == "off"
    await site.ask("Unfence", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.bed.command("scancel", str(job), str(waiting))


async def test_a_node_is_kept_awake(site: Site) -> None:
    await site.ask("PowerUp", "a-0")
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "starting")
    site.pods["a-0"].start()
    found = await eventually(site.nodes, lambda found: phase_of(found["a-0"]) in {"on", "stopping"})
    began = found["a-0"].last_busy.value or 0

    async def awake() -> dict[str, Node]:
        await site.ask("KeepAwake", "a-0")
        return await site.nodes()

    # Three times as long as it may be idle.
    found = await eventually(awake, lambda found: (found["a-0"].last_busy.value or 0) >= began + 6)
    assert phase_of(found["a-0"]) == "on"
    await eventually(site.nodes, lambda found: phase_of(found["a-0"]) == "stopping")
