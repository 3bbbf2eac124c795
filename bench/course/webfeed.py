"""The page's server with rows of its own making: 20,000 jobs and 5,000 nodes, of which some change each second.

    webfeed.py ADDRESS:PORT JOBS NODES CHANGES

Everything from the rows to the browser is as in `isthmus web`; Slurm and Kubernetes are not asked, so that what is
measured is the page and not they.
"""

import asyncio
import itertools
import sys
import time
from typing import Any, cast

from isthmus.domain.views import rows
from isthmus.domain.web.tables import Tables
from isthmus.kube.config import Config
from isthmus.model.slurm import Job, Node, Number
from isthmus.runtime import loop, server
from isthmus.web.hub import Hub
from isthmus.web.server import Server

_STATES = (("PENDING",), ("RUNNING",))
_REASONS = ("Priority", "Resources", "Dependency", "QOSMaxCpuPerUserLimit")
_PER_BLOCK = 250
_CPUS = 64


def _job(number: int, turn: int) -> Job:
    state = _STATES[(number + turn) % 2]
    return Job(
        number,
        state,
        name=f"train-{number % 300}",
        state_reason=_REASONS[number % 4],
        user_name=f"user{number % 90}",
        account=f"account{number % 12}",
        partition="main",
        qos="normal",
        nodes=f"n{number % 5000:04}" if state[0] == "RUNNING" else "",
        priority=Number.of(1000 + number % 500),
        submit_time=Number.of(time.time() - number),
        start_time=Number.of(time.time() - number / 2),
        time_limit=Number.of(240),
        tres_requested="cpu=8,mem=32G,node=1,gres/gpu=1",
    )


def _node(number: int, turn: int) -> Node:
    return Node(
        f"n{number:04}",
        ("MIXED",),
        cpus=_CPUS,
        alloc_cpus=(number + turn) % _CPUS,
        real_memory=256_000,
        gres="gpu:8",
        gres_used=f"gpu:{(number + turn) % 9}",
        partitions=("main",),
        topology=f"block-{number // _PER_BLOCK:02}",
    )


async def _serve(address: str, jobs: int, nodes: int, changes: int) -> None:
    tables = Tables()

    def put_job(number: int, turn: int = 0) -> None:
        tables.put("jobs", number, rows.job_row(_job(number, turn), now=time.time()), owner="somebody")

    def put_node(number: int, turn: int = 0) -> None:
        tables.put("nodes", f"n{number:04}", rows.node_row(f"n{number:04}", _node(number, turn), None))

    for number in range(1, jobs + 1):
        put_job(number)
    for number in range(nodes):
        put_node(number)
    side = {"ok": True, "read": True, "age": 0.1, "trouble": ""}
    hub = Hub(
        tables,
        settle=lambda: None,
        sample=lambda: None,
        about=lambda: {"name": "bench", "now": time.time(), "slurm": side, "kubernetes": side},
    )
    nobody = cast("Any", None)  # what asks Slurm and Kubernetes is not called
    kube = Config("http://127.0.0.1:9", nobody)
    page = Server(hub, nobody, nobody, nobody, kube=kube, sessions=None, actions=None)
    host, _, port = address.rpartition(":")
    async with server.serve(page.routes(), host=host, port=int(port)), asyncio.TaskGroup() as tasks:
        tasks.create_task(hub.run())
        print("ready", flush=True)
        for turn in itertools.count(1):
            began = time.monotonic()
            for number in range(changes // 5):
                at = turn * (changes // 5) + number
                put_job(at % jobs + 1, turn)
                put_node(at % nodes, turn)
            await asyncio.sleep(max(0.0, 0.4 - (time.monotonic() - began)))


if __name__ == "__main__":
    where, *counts = sys.argv[1:]
    loop.run(_serve(where, *(int(it) for it in counts)))
