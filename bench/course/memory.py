"""How much a process grows by pods in its caches: `memory.py NAMESPACE TIMES`.

Caches the pods of the namespace so many times over, each time in a store of its own with an index of its own.
Nothing is shared between them: every object is decoded from its own bytes.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path

import uvloop

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.informer import Informer
from isthmus.model.pod import PODS, Pod


async def cache(namespace: str, times: int) -> dict[str, float]:
    """Fill the stores; return how many pods they hold and the memory that this took."""
    async with Client(load()) as client, asyncio.TaskGroup() as group:
        await client.list(PODS, namespace="default")
        before = _resident()
        informers: list[Informer[Pod]] = []
        runs = []
        for _ in range(times):
            informer = Informer(
                client, PODS, indexes={"node": lambda pod: (pod.spec.node_name,)}, namespace=namespace
            )
            informers.append(informer)
            runs.append(group.create_task(informer.run()))
            await informer.synced.wait()
        gc.collect()
        grown = _resident() - before
        for run in runs:
            run.cancel()
    return {"pods": sum(len(informer.store) for informer in informers), "bytes": grown}


def _resident() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(uvloop.run(cache(sys.argv[1], int(sys.argv[2])))))
