"""What the bridge is measured on: real servers, nodes that are mere objects, pods, a watch that sees them placed.

The API server has no controllers beside it, so that nobody but the subject of a measurement writes anything.
"""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from bench import workload
from bench.news import News
from isthmus import names
from isthmus.bridge import policies
from isthmus.errors import Retry, Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.crd import install
from isthmus.kube.informer import Informer
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import JobRequest
from isthmus.runtime import loop
from isthmus.slurm.allocation import Allocator
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.client import connect
from isthmus.slurm.completion import to_helper
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import programs
from tests.bed.slurm import SlurmBed

STOCK = "default-scheduler"
CPUS_PER_NODE = 4
"""Of every node of the Slurm bed; a pod asks for one."""

_CREATIONS_AT_ONCE = 16
_DELETIONS = 20
_SUBMISSIONS = 5
_MOST_NODES = 6_000
_WRITES = ("UPDATE", "SUBMIT", "ALLOCATION", "KILL", "CANCEL", "COMPLETE", "REQUEUE", "CREATE_NODE", "DELETE_NODE")
_WITHIN = 180.0
_COUNTED = ("pods", "events", "resourceclaims")
# Nodes are ready from the start, as they say themselves: there is no controller that would take a taint away.
_FLAGS = ("--disable-admission-plugins=TaintNodesByCondition",)
# The stock scheduler's own limits (50 requests a second) would be all that is measured.
_UNLIMITED = ("--kube-api-qps=5000", "--kube-api-burst=5000")


@contextmanager
def control_plane(nodes: int, *, external: bool = False, cpus: int = CPUS_PER_NODE) -> Iterator[ControlPlaneBed]:
    """Run a control plane with so many nodes e1, e2 …; `external` ones are there to be registered in Slurm."""
    with ControlPlaneBed(controllers=False, apiserver_flags=_FLAGS) as plane:
        loop.run(_furnish(plane, nodes, external=external, cpus=cpus))
        yield plane


@contextmanager
def slurm(nodes: int, *, jobs: int = 10_000, **more: str) -> Iterator[SlurmBed]:
    """Run a Slurm with so many nodes of the same names, for so many jobs, and `isthmus-complete` beside it.

    `more` are lines of slurm.conf.
    """
    settings = {"MaxNodeCount": str(_MOST_NODES), "MaxJobCount": str(jobs), **more}
    with SlurmBed(nodes=0, external_nodes=nodes, accounting=False, settings=settings) as bed:
        bed.start("isthmus-complete")
        yield bed


@contextmanager
def stock_scheduler(plane: ControlPlaneBed) -> Iterator[None]:
    """Run kube-scheduler beside a control plane, with nothing to hold it back."""
    found = programs(["kube-scheduler"])
    part = replace(plane.plane, binaries={**plane.plane.binaries, **found}).scheduler()
    with (plane.logs / "kube-scheduler.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *part.argv, *_UNLIMITED], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + _WITHIN
        while not part.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Terminal(
                    f"kube-scheduler did not get ready: {(plane.logs / 'kube-scheduler.log').read_text()}"
                )
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


async def _furnish(plane: ControlPlaneBed, nodes: int, *, external: bool, cpus: int) -> None:
    async with Client(load(plane.kubeconfig)) as client:
        await install(client, policies.crd(), manager=names.FIELD_MANAGER)
        await workload.all_of(
            client.create(NODES, _node(number, external=external, cpus=cpus)) for number in range(1, nodes + 1)
        )


def _node(number: int, *, external: bool, cpus: int) -> dict[str, Any]:
    resources = {"cpu": str(cpus), "memory": "4Gi", "pods": "110"}
    labels = {"kubernetes.io/os": "linux"} | ({names.EXTERNAL_NODE_LABEL: ""} if external else {})
    return {
        "metadata": {"name": f"e{number}", "labels": labels},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": f"198.18.{number // 250}.{number % 250 + 1}"}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "for a benchmark"}
            ],
        },
    }


class Load:
    """Pods of one namespace, made by us, and what a watch tells: when each got a node, or was told to go."""

    def __init__(self, client: Client, informer: Informer[Pod], namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pods = informer.store
        self.created: dict[Key, float] = {}
        self.bound: dict[Key, float] = {}
        self.leaving: dict[Key, float] = {}
        self.told: set[Key] = set()
        self._news = News()
        self.pods.on_change(self._changed)

    async def create(
        self,
        count: int,
        *,
        scheduler: str = names.SCHEDULER_NAME,
        then: Callable[[Pod], None] | None = None,
        claims: bool = False,
    ) -> list[Key]:
        """Make so many pods that ask for a CPU each, a few at a time; with `claims`, for that of their name."""
        first = len(self.created)
        gate = asyncio.Semaphore(_CREATIONS_AT_ONCE)

        async def one(number: int) -> Key:
            async with gate:
                key = Key(self.namespace, f"p{number}")
                self.created[key] = time.perf_counter()
                made = await self.client.create(PODS, _pod(key, scheduler, claims=claims))
                if then:
                    then(made)
                return key

        async with asyncio.TaskGroup() as group:
            made = [group.create_task(one(number)) for number in range(first, first + count)]
        return [each.result() for each in made]

    async def until(self, done: Callable[[], bool], *, what: str, within: float = _WITHIN) -> None:
        """Wait until what the watch told makes this true."""
        if not await self._news.until(done, within=within):
            raise Terminal(
                f"{what}: not within {within:.0f} s; of {len(self.created)} pods, {len(self.bound)} have a node"
            )

    async def until_bound(self, keys: Sequence[Key]) -> float:
        """Wait until all of these have nodes; return when the last one got it."""
        await self.until(lambda: all(key in self.bound for key in keys), what="pods get nodes")
        return max(self.bound[key] for key in keys)

    def rate(self, keys: Iterable[Key]) -> float:
        """Pods per second, from the moment the first was made until the last had its node."""
        chosen = list(keys)
        return len(chosen) / (max(self.bound[key] for key in chosen) - min(self.created[key] for key in chosen))

    def _changed(self, key: Key, _before: Pod | None, after: Pod | None) -> None:
        if after is None:
            return
        now = time.perf_counter()
        if after.bound:
            self.bound.setdefault(key, now)
        elif (found := condition(after.status.conditions, "PodScheduled")) and found.status == "False":
            self.told.add(key)
        if after.leaving:
            self.leaving.setdefault(key, now)
        self._news.tell()


@asynccontextmanager
async def load_on(plane: ControlPlaneBed) -> AsyncIterator[Load]:
    """Make a namespace for pods; they are deleted when the block ends."""
    async with Client(load(plane.kubeconfig)) as client:
        namespace = f"bench-{uuid4().hex[:8]}"
        await workload.make_namespace(client, namespace)
        informer = Informer(client, PODS, namespace=namespace)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(informer.run())
            await informer.synced.wait()
            try:
                yield Load(client, informer, namespace)
            finally:
                watching.cancel()
                await _delete_pods(client, namespace)


async def _delete_pods(client: Client, namespace: str) -> None:
    """Delete all pods. Where they are thousands, the API server gives up after a minute, and has deleted many."""
    for _ in range(_DELETIONS):
        with suppress(Retry):
            return await client.delete_all(PODS, namespace=namespace, grace=0)
    raise Terminal(f"the pods in {namespace} cannot be deleted")


@asynccontextmanager
async def slurm_client(bed: SlurmBed) -> AsyncIterator[SlurmClient]:
    """Talk to Slurm as the bridge does, beside it."""
    tokens = MintedTokens(bed.jwt_key, user="slurm")
    async with (
        to_helper([bed.completer_url], tokens) as helper,
        connect([bed.rest_url], tokens, allocator=Allocator(helper)) as client,
    ):
        yield client


async def writes(client: Client) -> int:
    """Count the requests, as the API server does, that made events or changed them, pods or claims."""
    text = (await client.raw("/metrics", accept="text/plain")).decode()
    found = 0.0
    for line in text.splitlines():
        if not line.startswith("apiserver_request_total{") or 'verb="GET"' in line or 'verb="LIST"' in line:
            continue
        kind = next((it for it in _COUNTED if f'resource="{it}"' in line), None)
        if kind is None or 'verb="WATCH"' in line:
            continue
        if kind != "events" and 'subresource=""' in line and 'verb="POST"' in line:
            continue
        found += float(line.rpartition(" ")[2])
    return int(found)


async def slurm_calls(client: SlurmClient) -> int:
    """Count the requests, as slurmctld does."""
    return sum(each.count for each in (await client.diagnose()).rpcs_by_message_type)


async def slurm_writes(client: SlurmClient) -> int:
    """Count the requests, as slurmctld does, that change jobs or nodes."""
    told = (await client.diagnose()).rpcs_by_message_type
    return sum(each.count for each in told if any(word in each.message_type for word in _WRITES))


async def submit_others(client: SlurmClient, count: int, *, hold: bool = True) -> None:
    """Submit jobs of somebody else, which wait for ever, or run as long."""
    request = JobRequest(
        name="others",
        flags=("EXTERNAL_JOB",),
        environment=("A=b",),
        current_working_directory="/tmp",  # noqa: S108 - of the bed
        tasks=1,
        hold=hold or None,
    )
    gate = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            for _ in range(_SUBMISSIONS):
                # slurmctld stalls now and then where it has so many; a job too many does no harm.
                with suppress(Retry):
                    await client.submit_once(request, key=f"others-{hold}-{number}")
                    return
        raise Terminal("Slurm does not take the jobs of others")

    await workload.all_of(one(number) for number in range(count))


def _pod(key: Key, scheduler: str, *, claims: bool) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "64Mi"}}
    more: dict[str, Any] = {}
    if claims:
        resources["claims"] = [{"name": "device"}]
        more["resourceClaims"] = [{"name": "device", "resourceClaimName": key.name}]
    return {
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": {"app": "bench"}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "example/none", "resources": resources}],
            **more,
        },
    }
