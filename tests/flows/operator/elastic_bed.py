"""A real Slurm with elastic nodes: our configuration, our programs, and the pods' scripts, run as kubelet would."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec

from isthmus.domain.elastic.decision import Verb, phase_of
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files, power, slurm_conf
from isthmus.model.slinky import Controller, NodeSet
from isthmus.model.slurm import Node
from isthmus.operator.nodesets.power import change_of
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import Daemon, _claim
from tests.flows.slurm.helpers import eventually

SETS = ("a", "b")
IDLE = "2s"
"""How long a node may be idle by its policy."""
KEPT = ("NodeName", "NodeSet", "PartitionName", "Resume", "Suspend", "PrologSlurmctld", "GresTypes")
"""Lines of our slurm.conf that the bed takes over."""


class Pod:
    """A worker pod whose container is a process of the bed."""

    def __init__(self, bed: SlurmBed, nodeset: NodeSet) -> None:
        self._bed = bed
        host = {"external": True, "externalConfig": {"host": "127.0.0.1", "port": bed.controller_port}}
        controller = msgspec.convert({"metadata": {"name": "s", "namespace": "n"}, "spec": host}, Controller)
        made = worker.template(nodeset, controller, settings=Settings()).fill(numbered(nodeset, 0))
        self._container = made["spec"]["containers"][0]
        self.node = f"{nodeset.metadata.name}-0"
        told = {it["name"]: it["value"] for it in self._container["env"] if "value" in it}
        self._env = {"ISTHMUS_NODE": self.node, **told}
        self._daemon: Daemon | None = None

    def start(self) -> None:
        # Each slurmd keeps its configuration in the same place, and each pod writes its node-gres.conf there.
        argv = [*self._container["command"], *self._container["args"]]
        self._daemon = self._bed._box.spawn(
            argv,
            log=f"/var/log/slurm/{self.node}.log",
            hostname=self.node,
            env=self._env,
            own_directory="/run/slurm",
            own_copy="/etc/slurm",
        )

    def end(self) -> None:
        """As kubelet does: the hook, then the signal."""
        if self._daemon and self._daemon.exit_code is None:
            hook = self._container["lifecycle"]["preStop"]["exec"]["command"]
            self._bed._box.run(*hook, env=self._env)
            self._daemon.end(signal.SIGTERM, grace=10)


class Site:
    """A Slurm with two elastic nodes, of a NodeSet each."""

    def __init__(self, bed: SlurmBed, client: Client, pods: dict[str, Pod], nodesets: dict[str, NodeSet]) -> None:
        self.bed = bed
        self.client = client
        self.pods = pods
        self.nodesets = nodesets
        """By their names, as slurm.conf was made from them first."""

    def deliver(self, *nodesets: NodeSet, dynamic: tuple[str, ...] = ()) -> None:
        """Give a running slurmctld the files for these NodeSets, as the operator does."""
        _write(self.bed, list(nodesets), {"SuspendTimeout": "600"}, dynamic=dynamic)
        self.bed.scontrol("reconfigure")

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

    def submit(self, *options: str, script: str = "srun hostname") -> int:
        given = ("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")
        return int(self.bed.command(*given, user="alice").strip())

    async def job_is(self, job: int, state: str) -> None:
        """Wait until a job is in a state. While nodes start, Slurm says RUNNING, too; that is not meant."""

        async def read() -> Any:
            return (await self.client.job(job))[0].job_state

        await eventually(read, lambda found: state in found and (state != "RUNNING" or "CONFIGURING" not in found))


def elastic_nodeset(name: str, port: int, *, features: str = "", **given: Any) -> NodeSet:
    spec = {
        "controllerRef": {"name": "s"},
        "replicas": 1,
        "extraConf": f"Port={port}{f' Feature={features}' if features else ''}",
        "slurmd": {"resources": {"limits": {"cpu": "2", "memory": "512Mi"}}},
        **given,
    }
    return msgspec.convert({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, NodeSet)


def _write(
    bed: SlurmBed, nodesets: list[NodeSet], settings: Mapping[str, str], *, dynamic: tuple[str, ...] = ()
) -> Inputs:
    """Put what our slurm.conf says of power and nodes in the place of what the bed's says."""
    controller = msgspec.convert({"metadata": {"name": "s", "namespace": "n"}, "spec": {}}, Controller)
    inputs = Inputs(
        controller=controller,
        settings=Settings(cgroup="none"),
        workers=tuple(Workers.of(it, dynamic=dynamic) for it in nodesets),
        version=bed.version,
    )
    lines = [it for it in slurm_conf(inputs).splitlines() if it.startswith(KEPT)]
    lines = [it for it in lines if it.partition("=")[0] not in settings]
    lines += [f"{key}={value}" for key, value in settings.items()]
    conf = bed.path("/etc/slurm/slurm.conf")
    before = [it for it in conf.read_text().splitlines() if not it.startswith(KEPT)]
    conf.write_text("\n".join([*before, *lines, ""]))
    return inputs


def configure(bed: SlurmBed, nodesets: list[NodeSet], **settings: str) -> None:
    """Give the bed what our slurm.conf says of power, and our programs, and start slurmctld with it."""
    inputs = _write(bed, nodesets, settings)
    owner = bed.path("/etc/slurm/slurm.conf").stat()
    for name, content in files(inputs).items():
        if name not in {"slurm.conf", "cgroup.conf"}:
            path = bed.path(f"/etc/slurm/{name}")
            path.write_text(content)
            path.chmod(0o755 if name.startswith("power-") else 0o644)
    spool = bed.path("/var/spool/slurmctld")
    spool.mkdir(parents=True, exist_ok=True)
    os.chown(spool, owner.st_uid, owner.st_gid)
    with bed.path("/etc/hosts").open("a") as hosts:
        hosts.write("".join(f"127.0.0.1 {it}-0\n" for it in SETS))
    bed.restart("slurmctld")


@asynccontextmanager
async def elastic_site(
    slurm_bed: Callable[..., SlurmBed],
    release: str,
    *,
    idle: int | None = None,
    only: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    accounting: bool = False,
    **settings: str,
) -> AsyncIterator[Site]:
    """Start a Slurm of a release; its nodes take ten minutes to stop.

    With `idle`, that is the suspendTime of the cluster, and Slurm stops nodes by itself. Without, the policy says
    how long nodes may be idle: Slurm waits for ten minutes, and the operator stops them earlier.
    `only` are fields of single NodeSets, and `settings` lines of slurm.conf instead of ours.
    """
    policy: dict[str, Any] = {"autoscale": {"idleTime": IDLE}} if idle is None else _suspended_after(idle)
    parameters = ",".join(("enable_configless", *power.PARAMETERS))
    usual = {"SlurmctldParameters": parameters, "ReturnToService": "2", "MessageTimeout": "5"}
    with ExitStack() as claims:
        # Ports that no other bed has, and that the kernel gives to no client before slurmd listens.
        ports = [number for number, claim in (_claim() for _ in SETS) if claims.enter_context(claim)]
        bed = slurm_bed(release, nodes=0, accounting=accounting, settings=usual)
        nodesets = [
            elastic_nodeset(name, port, **{**policy, **only.get(name, {})})
            for name, port in zip(SETS, ports, strict=True)
        ]
        configure(bed, nodesets, **{"SuspendTimeout": "600"} | settings)
        pods = {f"{it.metadata.name}-0": Pod(bed, it) for it in nodesets}
        for pod in pods.values():
            claims.callback(pod.end)
        async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
            yield Site(bed, client, pods, {it.metadata.name: it for it in nodesets})


def _suspended_after(seconds: int) -> dict[str, Any]:
    return {"autoscale": {}, "suspendTime": seconds}
