"""What the servers could do for a bridge that decides nothing: jobs are submitted and pods bound, both at once.

The calls are those of the bridge, with bodies of the same size, over as many connections. But nobody waits for
Slurm before a pod is bound, nor watches anything.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count

from bench.bridge_ground import Load
from isthmus import names
from isthmus.domain.bridge import jobspec, marker
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.kube.podshape import shape_of
from isthmus.model.pod import Pod
from isthmus.model.slurm import JobRequest
from isthmus.slurm.client import Client as SlurmClient
from tests.bed.slurm_conf import PARTITION

_WORKERS = 32
"""As many as the scheduler has."""

_DEFAULTS = Defaults(partition=PARTITION, exclusive=False)


async def ceiling(load: Load, slurm: SlurmClient, *, pods: int, nodes: int) -> float:
    """Return the pods per second, from the first one made until all are bound and have jobs."""
    numbers = count(1)

    async def submit(pod: Pod) -> None:
        uid = pod.metadata.uid
        await slurm.submit_once(_request(pod), key=f"bench:{uid}:0")

    async def bind(pod: Pod) -> None:
        number = next(numbers)
        node, job_id = f"e{number % nodes + 1}", str(number)
        await load.client.bind(
            pod.metadata.key,
            node,
            uid=pod.metadata.uid,
            labels={names.JOB_ID_LABEL: job_id},
            annotations={
                names.POD_NODE_ANNOTATION: node,
                names.POD_JOB_ANNOTATION: job_id,
                names.POD_SLURM_NODE_ANNOTATION: node,
            },
        )

    to_submit: asyncio.Queue[Pod] = asyncio.Queue()
    to_bind: asyncio.Queue[Pod] = asyncio.Queue()

    def made(pod: Pod) -> None:
        to_submit.put_nowait(pod)
        to_bind.put_nowait(pod)

    async with asyncio.TaskGroup() as group:
        workers = [
            group.create_task(_work(queue, do))
            for queue, do in ((to_submit, submit), (to_bind, bind))
            for _ in range(_WORKERS)
        ]
        keys = await load.create(pods, then=made)
        await to_submit.join()
        submitted = time.perf_counter()
        bound = await load.until_bound(keys)
        for worker in workers:
            worker.cancel()
    return pods / (max(submitted, bound) - min(load.created[key] for key in keys))


async def _work(queue: asyncio.Queue[Pod], do: Callable[[Pod], Awaitable[None]]) -> None:
    while True:
        await do(await queue.get())
        queue.task_done()


def _request(pod: Pod) -> JobRequest:
    group = group_of(pod)
    marked = marker.mark(group, pod.metadata.uid, [pod], cluster="bench" * 7)
    return jobspec.request(
        name=pod.metadata.name,
        comment=marker.comment([pod]),
        admin_comment=marker.write(marked),
        shapes=[shape_of(pod)],
        options=JobOptions(),
        defaults=_DEFAULTS,
    )
