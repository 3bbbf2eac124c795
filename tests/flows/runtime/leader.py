"""A process that takes part in an election and says when it works; started by `test_election`.

Arguments: kubeconfig, namespace, and what is special about its work: `blocking` to hold up its own event loop,
`after PID` to print 0 if that process is alive when it begins.
"""

import asyncio
import sys
import time
from pathlib import Path

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.meta import Key
from isthmus.runtime import fuse, logs
from isthmus.runtime.election import Election, clock
from isthmus.runtime.loop import run
from isthmus.runtime.metrics import Metrics
from tests.flows.runtime.test_election import APART


def has_ended(process: str) -> bool:
    """Whether a process is dead, or has been sent the signal of its fuse, after which it does nothing more.

    The signal is pending until the process gets to run, and blocked from then on, while the process ends.
    """
    try:
        status = Path("/proc", process, "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    fields = dict(line.split(":", 1) for line in status.splitlines())
    burnt = (int(fields["ShdPnd"], 16) | int(fields["SigBlk"], 16)) & 1 << fuse.EXIT_CODE - 1
    return fields["State"].split()[0] in "ZX" or bool(burnt)


async def main(kubeconfig: str, namespace: str, manner: str = "", *processes: str) -> None:
    async def work() -> None:
        while True:
            print(clock() if all(map(has_ended, processes)) else 0, flush=True)  # noqa: T201 - the test reads it
            await asyncio.sleep(0.005)
            if manner == "blocking":
                time.sleep(60)  # noqa: ASYNC251 - that is the point

    logs.configure(level="error")
    async with Client(load(Path(kubeconfig))) as client:
        await Election(client, Key(namespace, "leader"), metrics=Metrics(), fuse=fuse.Fuse(), terms=APART).run(work)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
