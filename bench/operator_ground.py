"""What the operator is measured on where no pod really runs: real servers of Kubernetes and Slurm, played nodes.

    kube-apiserver, etcd, kube-scheduler        real, without the controllers of Kubernetes
    kubelets                                    kwok: a pod that has a node runs at once, one that is deleted goes;
                                                where a benchmark is only tried out, this process instead
    slurmctld, slurmrestd                       real; the nodes that slurmd would register are there already
    the operator                                `isthmus operator`, a process of its own

The operator finds slurmrestd where it always does, at the address of a Service: Services have addresses of the
Slurm bed's own network here.
"""

import asyncio
import os
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from bench import kwok, workload
from bench.bridge_ground import slurm_client, stock_scheduler
from bench.harness import note
from bench.news import News
from bench.process import Process, by_program, running
from isthmus import names
from isthmus.domain.kube.conditions import holds
from isthmus.domain.languages.slurmconf import Directive
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import restapi
from isthmus.domain.operator.manifests.common import labels
from isthmus.domain.operator.nodeset.status import shown
from isthmus.domain.operator.slurmfiles import power
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import Conflict, NotFound
from isthmus.kube.informer import Informer
from isthmus.kube.store import Store
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES
from isthmus.model.objects import SECRETS, SERVICES
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import CONTROLLERS, NODESETS, RESTAPIS, NodeSet
from isthmus.operator import crds
from isthmus.runtime import loop
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_conf import SLURMRESTD_PORT
from tests.flows.operator.elastic_bed import configure

NAMESPACE = "bench"
NODESET = "w"
ELASTIC: Mapping[str, Any] = {"autoscale": {}, "slurmd": {"resources": {"limits": {"cpu": "2", "memory": "512Mi"}}}}
"""What makes the nodes of the NodeSet elastic: Slurm knows them by this, too."""

_SLURM = "slurm"
_MOST_NODES = 2_000
_WITHIN = 180.0
OF_SLURM = 'host="slurmrestd"'
"""Label of requests to Slurm."""
_LABEL = re.compile(r'(?:method|code)="([^"]*)"')
_QUIET = 3.5
"""Seconds: what has happened may be told two seconds later."""

_GLANCE = 1.0
"""Seconds between two looks at what the operator counts: one costs it twenty milliseconds."""


@dataclass(frozen=True)
class Ground:
    """The servers, with nodes for so many workers."""

    plane: ControlPlaneBed
    slurm: SlurmBed
    kwok: bool

    def operator(self) -> AbstractContextManager[Process]:
        """Run the operator as its users do, but for its webhooks, which nobody could call here."""

        def words(place: Path) -> Sequence[str | Path]:
            del place
            return ("operator", f"--kubeconfig={self.plane.kubeconfig}")

        return running(words)


@contextmanager
def ground(workers: int, *, quick: bool = False, elastic: bool = False) -> Iterator[Ground]:
    """Start the servers, with so many nodes in Kubernetes and so many in Slurm; `quick` ones go without kwok.

    Elastic nodes stand in slurm.conf as the operator writes it, with its programs; they are off.
    """
    settings = {"MaxNodeCount": str(_MOST_NODES)}
    if elastic:
        settings["SlurmctldParameters"] = ",".join(power.PARAMETERS)
    with SlurmBed(nodes=0, accounting=False, settings=settings) as slurm:
        if elastic:
            spec = {"controllerRef": {"name": _SLURM}, "replicas": workers, **ELASTIC}
            configure(slurm, [msgspec.convert({"metadata": _meta(NODESET), "spec": spec}, NodeSet)])
        # Wide enough for the bed's address not to be the first, which the API server takes for itself.
        network = ip_network(f"{slurm.address}/12", strict=False)
        flags = (
            f"--service-cluster-ip-range={network}",
            # Nodes are as kwok says, and nobody is there who would take a taint away.
            "--disable-admission-plugins=TaintNodesByCondition",
        )
        with ControlPlaneBed(controllers=False, apiserver_flags=flags) as plane:
            loop.run(_furnish(plane, slurm, workers, registered=not elastic))
            with nullcontext() if quick else kwok.playing(plane), stock_scheduler(plane):
                yield Ground(plane, slurm, kwok=not quick)


_KEYS = {"slurmKeyRef": "slurm.key", "jwtKeyRef": "jwt.key"}


async def _furnish(plane: ControlPlaneBed, slurm: SlurmBed, workers: int, *, registered: bool) -> None:
    """Make nodes, and a Slurm cluster as far as the operator needs one: keys, a Controller and a RestApi."""
    async with Client(load(plane.kubeconfig)) as kube, slurm_client(slurm) as client:
        await crds.install(kube)
        await workload.make_namespace(kube, NAMESPACE)
        await workload.all_of(kube.create(NODES, kwok.node(f"k{number}", pods=10)) for number in range(workers))
        keys = {"slurm.key": b"k" * 32, "jwt.key": slurm.jwt_key.read_bytes()}
        data = {name: b64encode(key).decode() for name, key in keys.items()}
        await kube.create(SECRETS, {"metadata": _meta("keys"), "data": data})
        # The operator takes over what carries its marks, and leaves its address as it is.
        port = {"name": "slurmrestd", "port": SLURMRESTD_PORT}
        service = {"clusterIP": slurm.address, "ports": [port]}
        marks = labels(restapi.APP, _SLURM, restapi.COMPONENT, cluster=_SLURM)
        meta = {**_meta(partnames.restapi(_SLURM)), "labels": marks}
        await kube.create(SERVICES, {"metadata": meta, "spec": service})
        references = {name: {"name": "keys", "key": key} for name, key in _KEYS.items()}
        # Somebody else's slurmctld: one of ours would have to take the files that the operator makes.
        spec = {**references, "external": True, "externalConfig": {"host": slurm.address, "port": 6817}}
        await kube.create(CONTROLLERS, {"metadata": _meta(_SLURM), "spec": spec})
        marks = labels("slurmctld", _SLURM, "controller", cluster=_SLURM)
        auth = {**_meta(partnames.auth(_SLURM)), "labels": marks}
        await kube.create(SECRETS, {"metadata": auth, "data": data})
        spec = {"controllerRef": {"name": _SLURM}, "service": {"port": SLURMRESTD_PORT}}
        await kube.create(RESTAPIS, {"metadata": _meta(_SLURM), "spec": spec})
        if not registered:
            return
        line: dict[str, str | int] = {"CPUs": 4, "RealMemory": 4096, "State": "External", "NodeAddr": "127.0.0.1"}
        hosts = f"{NODESET}-[0-{workers - 1}]"
        await client.create_node(Directive.of({"NodeName": hosts, "Feature": NODESET, **line}))


def _meta(name: str) -> dict[str, str]:
    return {"namespace": NAMESPACE, "name": name}


class Watched:
    """The NodeSet and its pods, as a watch of our own shows them."""

    def __init__(self, kube: Client, slurm: SlurmBed) -> None:
        self.kube = kube
        self._slurm = slurm
        pods, nodesets = Informer(kube, PODS, namespace=NAMESPACE), Informer(kube, NODESETS, namespace=NAMESPACE)
        self.informers = (pods, nodesets)
        self.pods = pods.store
        self._nodesets = nodesets.store
        self._news = News()
        self.states = 0
        """How often a pod has shown another state of its Slurm node, or none any more."""
        self.pods.on_change(self._news.tell)
        self.pods.on_change(self._count)
        self._nodesets.on_change(self._news.tell)

    def _count(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if new and shown(new) != (shown(old) if old else ()):
            self.states += 1

    def all_shown(self) -> bool:
        """Whether each pod shows a state of its Slurm node."""
        return all(shown(pod) for pod in self.pods.values())

    async def make(self, workers: int, **further: Any) -> float:
        """Make the NodeSet; return when."""
        began = time.monotonic()
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
        spec = {"controllerRef": {"name": _SLURM}, "replicas": workers, "updateStrategy": strategy, **further}
        await self.kube.create(NODESETS, {"metadata": _meta(NODESET), "spec": spec})
        return began

    async def change(self, **spec: Any) -> float:
        """Change the NodeSet; return when."""
        began = time.monotonic()
        await self.kube.merge_patch(NODESETS, Key(NAMESPACE, NODESET), {"spec": spec})
        return began

    async def until_settled(self, workers: int) -> float:
        """Wait until the NodeSet says that so many nodes are in service and that nothing is left to do."""
        await self.until(lambda: self._settled(workers), what=f"{workers} nodes are in service")
        return time.monotonic()

    def _settled(self, workers: int) -> bool:
        nodeset = self._nodesets.get(Key(NAMESPACE, NODESET))
        if nodeset is None or not self.ready():
            return False
        status = nodeset.status
        counts = (status.replicas, status.updated_replicas, status.available_replicas, status.slurm_idle)
        return counts == (workers,) * 4

    def ready(self) -> bool:
        """Whether the NodeSet, as it is now, says that nothing is left to do."""
        nodeset = self._nodesets.get(Key(NAMESPACE, NODESET))
        told = condition(nodeset.status.conditions, "Ready") if nodeset else None
        return bool(
            nodeset
            and told
            and told.observed_generation == nodeset.metadata.generation
            and holds(nodeset.status.conditions, "Ready")
        )

    async def until(self, done: Callable[[], bool], *, what: str) -> float:
        """Wait until what the watch told makes this true; return when."""
        if not await self._news.until(done, within=_WITHIN):
            raise Terminal(f"not within {_WITHIN:.0f} s: {what}; {self.story()}")
        return time.monotonic()

    async def until_records(self, count: int) -> float:
        """Wait until Slurm knows so many nodes."""
        async with slurm_client(self._slurm) as client:
            deadline = time.monotonic() + _WITHIN
            while (listing := await client.nodes()) is None or len(listing.nodes) != count:
                if time.monotonic() > deadline:
                    raise Terminal(f"Slurm has {len(listing.nodes) if listing else 0} nodes and not {count}")
                await asyncio.sleep(0.1)
        return time.monotonic()

    def story(self) -> str:
        """How far it has come."""
        nodeset: NodeSet | None = self._nodesets.get(Key(NAMESPACE, NODESET))
        return f"{len(self.pods)} pods; the NodeSet says {nodeset.status if nodeset else 'nothing'}"


@asynccontextmanager
async def watching(there: Ground) -> AsyncIterator[Watched]:
    """Watch the NodeSet and its pods."""
    async with Client(load(there.plane.kubeconfig)) as kube:
        watched = Watched(kube, there.slurm)
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(it.run()) for it in watched.informers]
            for it in watched.informers:
                await it.synced.wait()
            if not there.kwok:
                working.append(tasks.create_task(_play(kube, watched.pods)))
            try:
                yield watched
            finally:
                for task in working:
                    task.cancel()


async def _play(kube: Client, pods: Store[Pod]) -> NoReturn:
    """Do to pods what kwok does, one after the other, and leave conditions of others alone, as kubelets do."""
    due: asyncio.Queue[Key] = asyncio.Queue()
    pods.on_change(lambda key, _, pod: due.put_nowait(key) if pod else None)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "startTime": ready["lastTransitionTime"], "conditions": [ready]}
    while True:
        key = await due.get()
        pod = pods.get(key)
        with suppress(NotFound, Conflict):  # it is gone, or another has its name
            if pod and pod.leaving:
                await kube.delete(PODS, key, grace=0)
            elif pod and pod.bound and pod.status.phase == "Pending":
                body = {"metadata": {**_meta(key.name), "uid": pod.metadata.uid}, "status": status}
                await kube.apply(PODS, body, manager="kubelet", force=True, subresource="status")


@dataclass(frozen=True)
class Requests:
    """How many requests the operator has sent so far, as it counts them itself; its Lease is not among them."""

    kubernetes: float
    writes: float
    slurm: float
    kinds: Mapping[str, float] = field(default_factory=dict)
    """Those to Kubernetes by method and code."""

    @classmethod
    def of(cls, process: Process) -> "Requests":
        """Count them."""
        series = process.series(names.CLIENT_REQUESTS.name)
        kubernetes = {labels: count for labels, count in series.items() if OF_SLURM not in labels}
        return cls(
            kubernetes=sum(kubernetes.values()),
            writes=sum(count for labels, count in kubernetes.items() if 'method="GET"' not in labels),
            slurm=sum(count for labels, count in series.items() if OF_SLURM in labels),
            kinds={" ".join(_LABEL.findall(labels)): count for labels, count in kubernetes.items()},
        )

    def __sub__(self, before: "Requests") -> "Requests":
        kinds = {kind: count - before.kinds.get(kind, 0.0) for kind, count in self.kinds.items()}
        return Requests(
            kubernetes=self.kubernetes - before.kubernetes,
            writes=self.writes - before.writes,
            slurm=self.slurm - before.slurm,
            kinds={kind: count for kind, count in kinds.items() if count},
        )

    def __str__(self) -> str:
        told = ", ".join(f"{count:,.0f} {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{self.kubernetes:,.0f} API requests ({told}), {self.slurm:,.0f} calls to Slurm"


@dataclass(frozen=True)
class Rest:
    """What the operator costs while nothing happens."""

    share: float
    """Of one core."""
    writes: float
    calls: float
    """To Slurm, in a second."""

    @classmethod
    def of(cls, process: Process, window: float) -> "Rest":
        """Look on for so many seconds."""
        before, processor, began = Requests.of(process), process.processor, time.monotonic()
        time.sleep(window)
        used, elapsed = process.processor - processor, time.monotonic() - began
        sent = Requests.of(process) - before
        return cls(share=used / elapsed, writes=sent.writes, calls=sent.slurm / elapsed)


async def until_quiet(process: Process) -> None:
    """Wait until the operator has written nothing for some seconds."""
    deadline = time.monotonic() + _WITHIN
    last, since = Requests.of(process).writes, time.monotonic()
    while time.monotonic() - since < _QUIET:
        if time.monotonic() > deadline:
            note(f"the operator still writes after {_WITHIN:.0f} s")
            return
        await asyncio.sleep(_GLANCE)
        if (now := Requests.of(process).writes) != last:
            last, since = now, time.monotonic()


def note_processors(before: dict[str, float]) -> None:
    """Say who used the processors since then."""
    used = {name: seconds - before.get(name, 0.0) for name, seconds in by_program().items()}
    told = sorted(used.items(), key=lambda it: -it[1])
    note("processor time: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in told if seconds >= 0.1))


def note_load() -> None:
    note(f"load of the machine: {os.getloadavg()[0]:.1f}")
