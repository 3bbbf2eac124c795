"""Which changes of pods count as starts, and that only a replica that works counts them."""

import asyncio
from collections.abc import Iterable

import msgspec

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.pods.starts import PodStarts
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.client import Client

POD = Pod(
    ObjectMeta("p", "ns", "u", labels={names.JOB_ID_LABEL: "5"}),
    PodSpec(node_name="n1", scheduler_name=names.SCHEDULER_NAME),
)


async def started(phases: Iterable[str], *, found: Pod = POD, leads: bool = True) -> float:
    """Let a pod pass through phases; return how many starts were counted."""
    world, metrics = World(None, Client(None), cluster="c"), Metrics()  # type: ignore[arg-type] # caches need no client
    worker = PodStarts(world, metrics.pods())
    task = asyncio.ensure_future(worker.run()) if leads else None
    await asyncio.sleep(0)
    for phase in phases:
        world.pods.put(msgspec.structs.replace(found, status=PodStatus(phase)))
    worker.drain()
    if task:
        await task
        world.pods.put(msgspec.structs.replace(found, status=PodStatus("Pending")))
        world.pods.put(msgspec.structs.replace(found, status=PodStatus("Running")))
    labels = {"namespace": "ns", "account": "", "kind": "Pod"}
    return metrics.registry.get_sample_value("isthmus_bridge_pods_started_total", labels) or 0.0


async def test_a_pod_starts_once_also_if_it_ended_before_anybody_saw_it_run() -> None:
    assert await started(["Pending", "Pending", "Running", "Running", "Succeeded"]) == 1
    assert await started(["Pending", "Succeeded"]) == 1
    assert await started(["Pending", "Failed"]) == 0


async def test_pods_that_ran_before_and_standbys_count_nothing() -> None:
    assert await started(["Running", "Succeeded"]) == 0
    assert await started(["Pending", "Running"], leads=False) == 0


async def test_pods_of_others_are_not_counted() -> None:
    theirs = msgspec.structs.replace(POD, spec=PodSpec(node_name="n1", scheduler_name="default-scheduler"))
    by_hand = msgspec.structs.replace(POD, metadata=ObjectMeta("p", "ns", "u"))
    for found in (theirs, by_hand):
        assert await started(["Pending", "Running"], found=found) == 0
