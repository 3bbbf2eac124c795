"""The bridge on a real API server and a real Slurm, with Node objects and no kubelets."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from isthmus import names
from isthmus.bridge import policies
from isthmus.bridge.cache.metrics import WorldMetrics
from isthmus.bridge.cache.world import World, cluster_id
from isthmus.bridge.scheduler.scheduler import Scheduler
from isthmus.domain.bridge.devices import Profile
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.crd import install
from isthmus.kube.errors import AlreadyExists
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.names import MetricName
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.allocation import Allocator
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.client import connect
from isthmus.slurm.completion import to_helper
from tests.bed.addresses import loopback_address
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.flows.kube.conftest import namespace_for_pods
from tests.flows.kube.waiting import eventually
from tests.flows.working import at_work

PARTITION = "main"
WITHIN = 60.0


def pod(namespace: str, name: str, *, cpu: str = "1", memory: str = "64Mi", **more: Any) -> dict[str, Any]:
    """Make a pod that Slurm is to place; annotations and labels go into its metadata, the rest into its spec."""
    metadata = {"namespace": namespace, "name": name}
    metadata |= {part: more.pop(part) for part in ("annotations", "labels", "ownerReferences") if part in more}
    container = {"name": "main", "image": "example/none", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **more}
    return {"metadata": metadata, "spec": spec}


async def make_node(
    client: Client,
    name: str,
    *,
    cpu: str = "4",
    memory: str = "4Gi",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> None:
    """Make a node that is ready, as a kubelet would."""
    resources = {"cpu": cpu, "memory": memory, "pods": "110"}
    try:
        await client.create(NODES, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})
    except AlreadyExists:
        return
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    await client.merge_patch(NODES, name, {"status": status}, subresource="status")
    # The API server itself taints new nodes as not ready, for the controller that is not there to say otherwise.
    await client.merge_patch(NODES, name, {"spec": {"taints": spec.get("taints")}})


async def until(what: Callable[[], Any], *, within: float = WITHIN) -> Any:
    """Wait for a condition of the caches."""
    return await eventually(what, within=within)


class Bridge:
    """A running bridge, and what tests do with it."""

    def __init__(self, world: World, scheduler: Scheduler, manager: Manager, metrics: Metrics) -> None:
        self.world = world
        self.scheduler = scheduler
        self.manager = manager
        self.metrics = metrics

    def counted(self, metric: MetricName, suffix: str = "", /, **labels: str) -> float:
        """What it has counted, as Prometheus would add it up."""
        return counted(self.metrics, metric, suffix, **labels)

    async def create(self, body: dict[str, Any]) -> Key:
        """Create a pod."""
        return (await self.world.kube.create(PODS, body)).metadata.key

    async def bound(self, *keys: Key, within: float = WITHIN) -> list[Pod]:
        """Wait until pods have nodes."""

        def all_bound() -> list[Pod] | None:
            found = [self.world.pods.get(key) for key in keys]
            return [pod for pod in found if pod] if all(pod and pod.bound for pod in found) else None

        pods: list[Pod] = await until(all_bound, within=within)
        return pods

    async def told(self, key: Key, reason: str, *, containing: str = "") -> str:
        """Wait until a pod is told why it waits, in a message with these words; return the message."""

        def message() -> str | None:
            found = self.world.pods.get(key)
            for condition in found.status.conditions if found else ():
                told = condition.type == "PodScheduled" and condition.reason == reason
                if told and containing in condition.message:
                    return condition.message
            return None

        return str(await until(message))


@asynccontextmanager
async def running(
    config: Config,
    slurm: SlurmBed | str,
    *,
    defaults: Defaults | None = None,
    key: Any = None,
    helper: str = "",
    cluster: str = "",
    nodes_on_demand: bool = False,
    clock: Callable[[], float] = time.monotonic,
    profiles: Sequence[Profile] = (),
) -> AsyncIterator[Bridge]:
    """Run a bridge's scheduler until the block ends.

    `slurm` is a bed, or the URL of a proxy before it; `helper` is that of `isthmus-complete`, if it is to be asked.
    """
    url = slurm if isinstance(slurm, str) else slurm.rest_url
    tokens = MintedTokens(key if isinstance(slurm, str) else slurm.jwt_key, user="slurm")
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Client(config))
        allocator = Allocator(await stack.enter_async_context(to_helper([helper], tokens))) if helper else None
        client: SlurmClient = await stack.enter_async_context(connect([url], tokens, allocator=allocator))
        world = World(kube, client, cluster=cluster or await cluster_id(kube), profiles=profiles)
        metrics = Metrics()
        WorldMetrics(world, tokens, metrics)
        recorder = Recorder(kube, controller="slurm-bridge", instance="test")
        defaults = defaults or Defaults(partition=PARTITION)
        scheduler = Scheduler(
            world, defaults, nodes_on_demand=nodes_on_demand, recorder=recorder, metrics=metrics, clock=clock
        )
        manager = await stack.enter_async_context(at_work(world, recorder, scheduler.workers))
        yield Bridge(world, scheduler, manager, metrics)


@pytest.fixture
def address() -> Iterator[str]:
    """A loopback address at which nobody else listens, and nobody will: not one that the kernel hands out."""
    with loopback_address() as address:
        yield address


@pytest.fixture
async def client(config: Config) -> AsyncIterator[Client]:
    async with Client(config) as client:
        await install(client, policies.crd(), manager=names.FIELD_MANAGER)
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    async with namespace_for_pods(client) as name:
        yield name


@pytest.fixture
def slurm_with_external_nodes(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm 26.05 with four external nodes e1 to e4, and one with a slurmd."""
    bed = shared_slurm("26.05", nodes=1, external_nodes=4)
    yield bed
    bed.command("scancel", "--user=slurm")


@pytest.fixture
def slurm_with_gres(shared_slurm: Callable[..., SlurmBed]) -> SlurmBed:
    """A Slurm 26.05 that counts GPUs."""
    return shared_slurm("26.05", nodes=0, external_nodes=1, accounting=False, settings={"GresTypes": "gpu"})


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[list[str]]:
    """Kubernetes nodes e1 to e4."""
    made = [f"e{number}" for number in range(1, 5)]
    for name in made:
        await make_node(client, name)
    yield made
    for name in made:
        await client.delete(NODES, name)


@pytest.fixture
async def bridge(
    config: Config, client: Client, slurm_with_external_nodes: SlurmBed, nodes: list[str]
) -> AsyncIterator[Bridge]:
    """A bridge on both."""
    del client, nodes
    async with running(config, slurm_with_external_nodes) as bridge:
        yield bridge
