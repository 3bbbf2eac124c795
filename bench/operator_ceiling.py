"""What the servers could do for an operator that decides nothing: pods are made, and nobody does anything else.

They are the pods that the operator would make, and are bound and run by the same scheduler and kwok. What a figure
has beyond this is the operator's; this is the machine's.
"""

import asyncio
import time
from collections.abc import Callable, Collection

from bench import workload
from bench.harness import note
from bench.operator_ground import NODESET, Ground
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.informer import Informer
from isthmus.kube.store import Store
from isthmus.model.autoscaler import ManagedMeta
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import Controller, ControllerSpec, NodeSet, NodeSetSpec

_NAMESPACE = "ceiling"
_AT_ONCE = 48
_WITHIN = 120.0


async def ceiling(there: Ground, workers: int) -> None:
    """Make so many pods, wait until all run, say how long that took, and remove them."""
    async with Client(load(there.plane.kubeconfig)) as kube, asyncio.TaskGroup() as tasks:
        await workload.make_namespace(kube, _NAMESPACE)
        informer = Informer(kube, PODS, namespace=_NAMESPACE)
        watching = tasks.create_task(informer.run())
        await informer.synced.wait()
        gate = asyncio.Semaphore(_AT_ONCE)
        template = _template(workers)

        async def one(ordinal: int) -> None:
            async with gate:
                await kube.create(PODS, template.fill(numbered(template.nodeset, ordinal)))

        began = time.monotonic()
        async with asyncio.TaskGroup() as making:
            for ordinal in range(workers):
                making.create_task(one(ordinal))
        made = time.monotonic() - began
        bound = await _until(informer.store, lambda pods: len(pods) == workers and all(it.bound for it in pods))
        run = await _until(informer.store, lambda pods: all(it.status.phase == "Running" for it in pods))
        note(
            f"the servers alone: such pods are made in {made:.1f} s, have nodes after {bound - began:.1f} s"
            f" and run after {run - began:.1f} s"
        )
        await kube.delete_all(PODS, namespace=_NAMESPACE, grace=0)
        await _until(informer.store, lambda pods: not pods)
        watching.cancel()


async def _until(store: Store[Pod], done: Callable[[Collection[Pod]], bool]) -> float:
    """Wait until what the watch told makes this true; return when."""
    news = asyncio.Event()
    store.on_change(lambda *_: news.set())
    async with asyncio.timeout(_WITHIN):
        while not done(tuple(store.values())):
            news.clear()
            await news.wait()
    return time.monotonic()


def _template(workers: int) -> worker.Template:
    meta = ManagedMeta(name=NODESET, namespace=_NAMESPACE, uid="ceiling")
    nodeset = NodeSet(metadata=meta, spec=NodeSetSpec(replicas=workers))
    controller = Controller(metadata=meta, spec=ControllerSpec())
    return worker.template(nodeset, controller, settings=Settings(cgroup="none"), contents={})
