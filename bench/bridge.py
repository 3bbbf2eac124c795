#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The bridge, Kubernetes on Slurm: one process, a real API server, a real slurmctld, nodes that are mere objects.

burst         1,000 pods at once, beside the stock scheduler and beside what the servers could do; calls per pod
idle          one pod at a time
cancelled     jobs are cancelled in Slurm: how soon their pods are told to go
scale         what a pod costs with 5,000 nodes, beside 50
registration  2,000 nodes become known to Slurm
waiting       5,000 pods wait behind a full cluster
cordon        10,000 pods wait, and a node is cordoned and uncordoned
crowd         the bridge starts beside 50,000 and 100,000 jobs of others
memory        20,000 pods and 5,000 nodes
"""

import asyncio
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench import bridge_ground as ground
from bench import workload
from bench.bridge_ceiling import ceiling
from bench.bridge_process import bridge
from bench.harness import Figure, Options, figure, main, note
from bench.process import Process
from isthmus import names
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.slurm import JobRequest
from isthmus.runtime import loop
from isthmus.slurm.client import Client as SlurmClient
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed

_ROUNDS = 2
_SETTLED_WITHIN = 300.0
_SLOWEST = 0.1
"""Seconds that a pod may take to get its job where thousands are made at once."""
_WINDOW = 30.0
_MINUTE = 60.0
_COOL = 5.0
"""For so long at most the bridge asks often about jobs that it has just submitted."""


@dataclass
class _Burst:
    """How a burst went."""

    rate: float = 0.0
    slurm_calls: float = 0.0
    writes: float = 0.0
    processor: float = 0.0


def burst(options: Options) -> Iterator[Figure]:
    """Place many pods at once, each way in turns: the machine is not the same from minute to minute."""
    pods, nodes, rounds = (100, 50, 1) if options.quick else (1_000, 500, _ROUNDS)
    rates: defaultdict[str, list[float]] = defaultdict(list)
    ours: list[_Burst] = []
    with ground.control_plane(nodes) as plane:
        for _ in range(rounds):
            with ground.slurm(nodes) as slurm:
                rates["ceiling"].append(loop.run(_ceiling(plane, slurm, pods=pods, nodes=nodes)))
            with ground.slurm(nodes) as slurm, bridge(plane, slurm) as process:
                process.await_quiet()
                ours.append(loop.run(_burst(plane, slurm, process, pods=pods)))
                rates["bridge"].append(ours[-1].rate)
            with ground.stock_scheduler(plane):
                rates["stock"].append(loop.run(_stock(plane, pods=pods)))
    for who, found in rates.items():
        note(f"{who:8} {', '.join(f'{rate:,.0f}' for rate in found)} pods/s")
    note(f"a pod costs the bridge {statistics.mean(it.processor for it in ours) * 1000:.2f} ms of processor time")
    mean = {who: statistics.mean(found) for who, found in rates.items()}
    told = f"Burst of {pods:,} pods on {nodes} nodes"
    yield figure(f"{told}: of the servers' ceiling", "≥ 85 %", mean["bridge"] / mean["ceiling"] * 100)
    yield figure(f"{told}: rate, beside the stock scheduler", "≥ 0.85 times", mean["bridge"] / mean["stock"])
    yield figure("Calls to Slurm for each pod", "≤ 1.3", statistics.mean(it.slurm_calls for it in ours))
    yield figure("Writes to the API for each pod", "≤ 1", statistics.mean(it.writes for it in ours))


async def _ceiling(plane: ControlPlaneBed, slurm: SlurmBed, *, pods: int, nodes: int) -> float:
    async with ground.slurm_client(slurm) as client, ground.load_on(plane) as load:
        return await ceiling(load, client, pods=pods, nodes=nodes)


async def _stock(plane: ControlPlaneBed, *, pods: int) -> float:
    async with ground.load_on(plane) as load:
        keys = await load.create(pods, scheduler=ground.STOCK)
        await load.until_bound(keys)
        return load.rate(keys)


async def _burst(plane: ControlPlaneBed, slurm: SlurmBed, process: Process, *, pods: int) -> _Burst:
    async with ground.slurm_client(slurm) as client, ground.load_on(plane) as load:
        calls, writes, processor = (
            await ground.slurm_calls(client),
            await ground.writes(load.client),
            process.processor,
        )
        keys = await load.create(pods)
        await load.until_bound(keys)
        return _Burst(
            rate=load.rate(keys),
            processor=(process.processor - processor) / pods,
            # One of them is ours.
            slurm_calls=(await ground.slurm_calls(client) - calls - 1) / pods,
            writes=(await ground.writes(load.client) - writes) / pods,
        )


def idle(options: Options) -> Iterator[Figure]:
    """Place one pod after the other."""
    count, nodes = (5, 50) if options.quick else (25, 500)
    with ground.control_plane(nodes) as plane, ground.slurm(nodes) as slurm, bridge(plane, slurm) as process:
        process.await_quiet()
        delays = loop.run(_one_by_one(plane, count))
    note(f"the slowest of {count} took {max(delays):.2f} s")
    yield figure("One pod on an idle cluster: created to bound, median", "≤ 0.3 s", statistics.median(delays))


async def _one_by_one(plane: ControlPlaneBed, count: int) -> list[float]:
    delays = []
    async with ground.load_on(plane) as load:
        for _ in range(count):
            (key,) = await load.create(1)
            await load.until_bound([key])
            delays.append(load.bound[key] - load.created[key])
            await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311 - meets every phase of the poller's round
    return delays


def cancelled(options: Options) -> Iterator[Figure]:
    """Cancel jobs behind the bridge's back."""
    pods, nodes, cancels = (100, 50, 20) if options.quick else (1_000, 500, 150)
    with ground.control_plane(nodes) as plane, ground.slurm(nodes) as slurm, bridge(plane, slurm) as process:
        delays = loop.run(_cancel(plane, slurm, process, pods=pods, cancels=cancels))
    note(f"the median is {statistics.median(delays):.2f} s")
    slow = statistics.quantiles(delays, n=100, method="inclusive")[-1]
    yield figure(f"One of {pods:,} jobs is cancelled: its pod told to go, 99 of 100 within", "≤ 2 s", slow)


async def _cancel(
    plane: ControlPlaneBed, slurm: SlurmBed, process: Process, *, pods: int, cancels: int
) -> list[float]:
    async with ground.slurm_client(slurm) as client, ground.load_on(plane) as load:
        keys = await load.create(pods)
        await load.until_bound(keys)
        await asyncio.to_thread(process.await_quiet)
        chosen = random.sample(keys, cancels)
        ended = {}
        for key in chosen:
            pod = load.pods.get(key)
            if pod is None:
                raise Terminal(f"pod {key} is gone, although its job was not cancelled yet")
            await client.cancel_job(int(pod.metadata.labels[names.JOB_ID_LABEL]))
            ended[key] = time.perf_counter()
            await asyncio.sleep(random.uniform(0.0, 0.2))  # noqa: S311 - meets every phase of the poller's round
        await load.until(lambda: all(key in load.leaving for key in chosen), what="pods are told to go")
        return [load.leaving[key] - ended[key] for key in chosen]


def scale(options: Options) -> Iterator[Figure]:
    """Compare a large cluster with a small one."""
    few, many, pods = (20, 200, 50) if options.quick else (50, 5_000, 200)
    found: dict[int, _Burst] = {}
    ceilings: dict[int, float] = {}
    for nodes in (few, many):
        with ground.control_plane(nodes) as plane:
            with ground.slurm(nodes) as slurm:
                ceilings[nodes] = loop.run(_ceiling(plane, slurm, pods=pods, nodes=nodes))
            with ground.slurm(nodes) as slurm, bridge(plane, slurm) as process:
                process.await_quiet()
                found[nodes] = loop.run(_burst(plane, slurm, process, pods=pods))
        note(
            f"{nodes:5,} nodes: {found[nodes].processor * 1000:.2f} ms of processor time a pod,"
            f" {found[nodes].rate:,.0f} pods/s where the servers' ceiling is {ceilings[nodes]:,.0f}"
        )
    told = f"with {many:,} nodes, beside {few}"
    cost = found[many].processor / found[few].processor
    yield figure(f"What a pod costs {told}", "≤ 1.2 times", cost)
    yield figure(f"Burst of {pods} pods {told}: rate", "≥ 0.85 times", found[many].rate / found[few].rate)
    note(f"the servers' ceiling {told}: {ceilings[many] / ceilings[few]:.2f} times the rate")


def registration(options: Options) -> Iterator[Figure]:
    """Register nodes."""
    nodes = 200 if options.quick else 2_000
    with ground.control_plane(nodes, external=True) as plane, ground.slurm(0) as slurm:
        began = time.monotonic()
        with bridge(plane, slurm) as process:
            while process.metric(names.NODE_ACTIONS.name, 'action="register"') < nodes:
                if time.monotonic() - began > _SETTLED_WITHIN:
                    raise Terminal("the nodes were not registered in time")
                time.sleep(0.1)
            took = time.monotonic() - began
        known = loop.run(_registered(slurm))
    if known != nodes:
        raise Terminal(f"{known} of {nodes} nodes are in Slurm, although all were registered")
    yield figure(f"{nodes:,} nodes registered in Slurm, from the start of the bridge", "≤ 30 s", took)


async def _registered(slurm: SlurmBed) -> int:
    async with ground.slurm_client(slurm) as client:
        listing = await client.nodes()
        return sum(1 for node in listing.nodes if node.extra) if listing else 0


def waiting(options: Options) -> Iterator[Figure]:
    """Let pods wait."""
    pods, nodes, window = (200, 50, 5.0) if options.quick else (5_000, 500, _WINDOW)
    with ground.control_plane(nodes) as plane, ground.slurm(nodes) as slurm, bridge(plane, slurm) as process:
        share, calls = loop.run(_wait(plane, slurm, process, pods=pods, nodes=nodes, window=window))
    yield figure(f"{pods:,} pods wait behind a full cluster: of one core", "≤ 5 %", share * 100)
    yield figure(f"{pods:,} pods wait behind a full cluster: calls to Slurm", "≤ 5 /s", calls)


async def _pending(client: SlurmClient) -> int:
    return sum("PENDING" in job.state for job in await client.job_states())


async def _make_them_wait(
    load: ground.Load, client: SlurmClient, *, pods: int, nodes: int
) -> tuple[list[Key], int]:
    """Fill the cluster with one job, and make pods that wait behind it; return them and the job."""
    everything = JobRequest(
        name="everything",
        flags=("EXTERNAL_JOB",),
        environment=("A=b",),
        current_working_directory="/tmp",  # noqa: S108 - of the bed
        minimum_nodes=nodes,
        shared=("none",),
        immediate=True,
    )
    filler = (await client.submit(everything, key="everything")).job_id
    began, within = time.monotonic(), max(_SETTLED_WITHIN, pods * _SLOWEST)
    keys = await load.create(pods)
    while await _pending(client) < pods:
        await asyncio.sleep(1)
        if time.monotonic() - began > within:
            raise Terminal("the pods have no jobs")
    note(f"all have jobs after {time.monotonic() - began:.0f} s")
    return keys, filler


async def _wait(
    plane: ControlPlaneBed, slurm: SlurmBed, process: Process, *, pods: int, nodes: int, window: float
) -> tuple[float, float]:
    async with ground.slurm_client(slurm) as client, ground.load_on(plane) as load:
        keys, _ = await _make_them_wait(load, client, pods=pods, nodes=nodes)
        # Not until all know why they wait: that takes minutes, and telling them is part of what waiting costs.
        await asyncio.sleep(_COOL)
        await asyncio.to_thread(process.await_quiet)
        calls, writes, processor = (
            await ground.slurm_calls(client),
            await ground.writes(load.client),
            process.processor,
        )
        began = time.monotonic()
        await asyncio.sleep(window)
        elapsed = time.monotonic() - began
        if load.bound:
            raise Terminal(f"the cluster was not full: {len(load.bound)} of {len(keys)} pods got nodes")
        told = (await ground.writes(load.client) - writes) / elapsed
        note(f"{told:.1f} writes to the API a second meanwhile; {len(load.told):,} pods know why they wait")
        return (
            (process.processor - processor) / elapsed,
            (await ground.slurm_calls(client) - calls - 1) / elapsed,
        )


def cordon(options: Options) -> Iterator[Figure]:
    """Cordon a node, free the cluster, and uncordon the node."""
    pods, nodes = (1_000, 50) if options.quick else (10_000, 500)
    with (
        ground.control_plane(nodes) as plane,
        ground.slurm(nodes, jobs=2 * pods) as slurm,
        bridge(plane, slurm) as process,
    ):
        writes = loop.run(_cordon(plane, slurm, process, pods=pods, nodes=nodes))
    yield figure(f"{pods:,} pods wait, a node is cordoned and uncordoned: writes to Slurm", "≤ 50", writes)


async def _cordon(plane: ControlPlaneBed, slurm: SlurmBed, process: Process, *, pods: int, nodes: int) -> int:
    shut = "e1"
    async with ground.slurm_client(slurm) as client, ground.load_on(plane) as load:
        _, filler = await _make_them_wait(load, client, pods=pods, nodes=nodes)
        await asyncio.sleep(_COOL)
        await asyncio.to_thread(process.await_quiet)

        def on_it() -> int:
            return sum(1 for key in load.bound if (pod := load.pods.get(key)) and pod.spec.node_name == shut)

        before = await ground.slurm_writes(client)
        await load.client.merge_patch(NODES, shut, {"spec": {"unschedulable": True}})
        began = time.monotonic()
        while "DRAIN" not in (await client.node(shut)).state:
            await asyncio.sleep(0.05)
            if time.monotonic() - began > _SETTLED_WITHIN:
                raise Terminal("the node was not drained")
        note(f"drained after {time.monotonic() - began:.1f} s")
        await asyncio.to_thread(process.await_quiet)
        await client.cancel_job(filler)
        fit = (nodes - 1) * ground.CPUS_PER_NODE
        await load.until(
            lambda: len(load.bound) >= min(pods, fit), what="pods get the other nodes", within=_SETTLED_WITHIN
        )
        if on_it():
            raise Terminal(f"{on_it()} pods got the cordoned node")
        await load.client.merge_patch(NODES, shut, {"spec": {"unschedulable": None}})
        if pods > fit:
            await load.until(lambda: on_it() > 0, what="pods get the uncordoned node", within=_SETTLED_WITHIN)
        # One of them, the end of the job that filled the cluster, is ours.
        writes = await ground.slurm_writes(client) - before - 1
        note(f"{writes} writes to Slurm, {len(load.bound):,} pods have nodes")
        return writes


def crowd(options: Options) -> Iterator[Figure]:
    """Start where others have many jobs."""
    for jobs in (5_000,) if options.quick else (50_000, 100_000):
        with ground.control_plane(4) as plane, ground.slurm(4, jobs=jobs + 1_000) as slurm:
            loop.run(_crowd(slurm, jobs))
            began = time.monotonic()
            with bridge(plane, slurm) as process:
                loop.run(_one_by_one(plane, 1))
                took = time.monotonic() - began
                most = _memory_in_the_end(process)
        yield figure(f"Start beside {jobs:,} jobs: until the first pod has its node", "≤ 20 s", took)
        yield figure(f"Start beside {jobs:,} jobs: memory at most", "≤ 350 MB", most / 1e6)


def _memory_in_the_end(process: Process) -> int:
    """Wait until it holds no more than a minute ago: it goes on reading jobs after its first pod."""
    before = 0
    while (most := process.most_memory) > before:
        before = most
        time.sleep(_MINUTE)
    return most


async def _crowd(slurm: SlurmBed, jobs: int) -> None:
    began = time.monotonic()
    async with ground.slurm_client(slurm) as client:
        await ground.submit_others(client, jobs)
        while (await client.diagnose()).jobs_pending < jobs:  # noqa: ASYNC110 - slurmctld counts twice a minute
            await asyncio.sleep(1)
    note(f"{jobs:,} jobs are there after {time.monotonic() - began:.0f} s")


def memory(options: Options) -> Iterator[Figure]:
    """Fill the caches."""
    pods, nodes = (2_000, 500) if options.quick else (20_000, 5_000)
    with ground.control_plane(nodes) as plane, ground.slurm(nodes) as slurm:
        loop.run(_make_others(plane, pods=pods, nodes=nodes))
        with bridge(plane, slurm) as process:
            process.await_quiet()
            started = process.most_memory
            loop.run(_burst(plane, slurm, process, pods=pods // 100))
            most = process.most_memory
    note(f"{started / 1e6:,.0f} MB after the start")
    yield figure(f"Memory at most, with {pods:,} pods and {nodes:,} nodes", "≤ 500 MB", most / 1e6)


async def _make_others(plane: ControlPlaneBed, *, pods: int, nodes: int) -> None:
    async with Client(load(plane.kubeconfig)) as client:
        await workload.make_namespace(client, "others")
        await workload.make_pods(client, "others", pods, running=False, nodes=nodes)


MEASUREMENTS = {
    "burst": burst,
    "idle": idle,
    "cancelled": cancelled,
    "scale": scale,
    "registration": registration,
    "waiting": waiting,
    "cordon": cordon,
    "crowd": crowd,
    "memory": memory,
}

if __name__ == "__main__":
    sys.exit(main(MEASUREMENTS, about=__doc__))
