"""The scheduler together with the pod controller, as they run in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from isthmus.bridge.pods.sync import PodSync
from isthmus.kube.recorder import Recorder
from tests.flows.bridge.conftest import Bridge


@asynccontextmanager
async def whole(bridge: Bridge) -> AsyncIterator[Bridge]:
    """Run the pod controller beside a scheduler, in its world."""
    recorder = Recorder(bridge.world.kube, controller="slurm-bridge", instance="pods")
    sync = PodSync(bridge.world, recorder, bridge.metrics)
    tasks = [asyncio.ensure_future(run) for run in (*(it.run() for it in sync.workers), recorder.run())]
    try:
        yield bridge
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
