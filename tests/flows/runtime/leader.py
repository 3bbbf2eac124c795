"""A process that takes part in an election and says when it works; started by `test_election`.

Arguments: kubeconfig, namespace, and what its work is: `calm`, or `blocking` to hold up its own event loop.
"""

import asyncio
import sys
import time
from pathlib import Path

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.meta import Key
from isthmus.runtime import logs
from isthmus.runtime.election import Election, clock
from isthmus.runtime.fuse import Fuse
from isthmus.runtime.loop import run
from isthmus.runtime.metrics import Metrics
from tests.flows.runtime.test_election import SHORT


async def main(kubeconfig: str, namespace: str, manner: str) -> None:
    async def work() -> None:
        while True:
            print(clock(), flush=True)  # noqa: T201 - the test reads it
            await asyncio.sleep(0.005)
            if manner == "blocking":
                time.sleep(60)  # noqa: ASYNC251 - that is the point

    logs.configure(level="error")
    async with Client(load(Path(kubeconfig))) as client:
        await Election(client, Key(namespace, "leader"), metrics=Metrics(), fuse=Fuse(), terms=SHORT).run(work)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
