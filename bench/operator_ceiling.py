"""What the servers could do for an operator that decides nothing: pods are made, and nobody does anything else.

They are the pods that the operator would make, and are bound and run by the same scheduler and kwok. What a figure
has beyond this is the operator's; this is the machine's.
"""

import asyncio
import time

from bench import workload
from bench.harness import note
from bench.operator_ground import NODESET, Ground
from isthmus.domain.manifests import worker
from isthmus.domain.manifests.common import Settings
from isthmus.domain.nodeset.identity import numbered
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.informer import Informer
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import PODS
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
        while sum(it.status.phase == "Running" for it in informer.store.values()) < workers:
            if time.monotonic() - began > _WITHIN:
                raise Terminal(f"{workers} pods did not run within {_WITHIN:.0f} s")
            await asyncio.sleep(0.1)
        note(f"a loop that only makes such pods takes {made:.1f} s; all run after {time.monotonic() - began:.1f} s")
        await kube.delete_all(PODS, namespace=_NAMESPACE, grace=0)
        gone = asyncio.Event()
        informer.store.on_change(lambda *_: None if len(informer.store) else gone.set())
        await asyncio.wait_for(gone.wait(), _WITHIN)
        watching.cancel()


def _template(workers: int) -> worker.Template:
    meta = ObjectMeta(name=NODESET, namespace=_NAMESPACE, uid="ceiling")
    nodeset = NodeSet(metadata=meta, spec=NodeSetSpec(replicas=workers))
    controller = Controller(metadata=meta, spec=ControllerSpec())
    return worker.template(nodeset, controller, settings=Settings(cgroup="none"), contents={})
