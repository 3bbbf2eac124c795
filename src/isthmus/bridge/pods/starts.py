"""Counts pods whose containers begin to run. Every replica sees that, and only the one that leads counts it."""

import asyncio

from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import podrules
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.runtime.metrics import PodMetrics


class PodStarts:
    """A worker that does nothing but let changes of the cache be counted while it runs."""

    def __init__(self, world: World, metrics: PodMetrics) -> None:
        self._world = world
        self._metrics = metrics
        self._counts = False
        self._drained = asyncio.Event()
        world.pods.on_change(self._pod_changed)

    async def run(self) -> None:
        """Count until drained or cancelled."""
        self._counts = True
        try:
            await self._drained.wait()
        finally:
            self._counts = False

    def drain(self) -> None:
        self._drained.set()

    def _pod_changed(self, _key: Key, before: Pod | None, after: Pod | None) -> None:
        # A pod that is new to the cache and runs began to do so before we looked.
        if not self._counts or before is None or after is None or _has_started(before) or not _has_started(after):
            return
        job_id = podrules.claimed_job(after)
        if job_id is not None and self._world.ours(after):
            self._metrics.started.of(*self._world.metric_labels(after, job_id)).inc()


def _has_started(pod: Pod) -> bool:
    """Whether its containers run or ran. Of one that failed nobody knows: a kubelet may have refused it."""
    return pod.status.phase in {"Running", "Succeeded"}
