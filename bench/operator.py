#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The operator, Slurm on Kubernetes: a whole cluster in real pods, and large NodeSets whose pods are mere objects.

cluster   on the local cluster: from nothing to the first job, one worker more and less, slurmctld killed
creation  a NodeSet of 1,000; what its pods cost, and what they cost at rest
scale_in  500 idle nodes become 100
rollout   a rolling update of 100, a quarter of them away at a time
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import operator_cluster as pods
from bench import operator_ground as ground
from bench.harness import Figure, Options, figure, main, note
from bench.operator_ceiling import ceiling
from bench.operator_ground import Ground, Requests, Watched
from bench.process import Process, by_program
from isthmus.runtime import loop

_WINDOW = 30.0
_COOL = 10.0
"""For so long the operator asks Slurm often, after it has changed something there."""


def cluster(options: Options) -> Iterator[Figure]:
    """Make a cluster of real pods, and change it."""
    del options  # it is no smaller than it has to be
    with pods.cluster() as there:
        told = f"SlurmCluster with {pods.WORKERS} workers and accounting"
        yield _timed(f"{told}: applied to the first srun -N{pods.WORKERS}", "≤ 30 s", lambda: pods.first_job(there))
        pods.settle(there)
        yield _timed("One more worker: idle in Slurm", "≤ 8 s", lambda: pods.one_more(there))
        pods.settle(there)
        yield _timed("One idle worker less: pod and record are gone", "≤ 5 s", lambda: pods.one_less(there))
        yield _timed("slurmctld is killed: next sbatch that succeeds", "≤ 10 s", lambda: pods.outage(there))


def _timed(name: str, bar: str, measure: Callable[[], float]) -> Figure:
    ground.note_load()
    found = figure(name, bar, measure())
    note(f"{name}: {found.text}")
    return found


@dataclass(frozen=True)
class _Creation:
    """How the making of a NodeSet went."""

    pods: float
    settled: float
    requests: float
    states: float
    """How many states of their Slurm nodes pods have shown, on average."""


def creation(options: Options) -> Iterator[Figure]:
    """Make a large NodeSet, and leave it alone."""
    workers, cool, window = (50, 0.0, 2.0) if options.quick else (1_000, _COOL, _WINDOW)
    with ground.ground(workers, quick=options.quick) as there, there.operator() as process:
        made = loop.run(_create(there, process, workers))
        time.sleep(cool)
        rest = ground.Rest.of(process, window)
        memory = process.most_memory
    told = f"NodeSet of {workers:,}"
    yield figure(f"{told}: all pods are there", "≤ 10 s", made.pods)
    yield figure(f"{told}: status is settled", "≤ 15 s", made.settled)
    yield figure(f"{told}: API requests for each pod", "≤ 2", made.requests)
    yield figure(f"{told}: states of Slurm shown on each pod", "≤ 1", made.states)
    yield figure(f"{told} at rest: of one core", "≤ 5 %", rest.share * 100)
    yield figure(f"{told} at rest: API writes", "≤ 0", rest.writes)
    yield figure(f"{told} at rest: calls to Slurm", "≤ 1 /s", rest.calls)
    yield figure(f"{told}: memory at most", "≤ 400 MB", memory / 1e6)


async def _create(there: Ground, process: Process, workers: int) -> _Creation:
    # Not by the processor time that it uses: where the machine is busy, a process that starts uses little.
    await ground.until_quiet(process)
    if there.kwok:
        await ceiling(there, workers)
    async with ground.watching(there) as watched:
        before, processors = Requests.of(process), by_program()
        ground.note_load()
        began = await watched.make(workers)
        made = await watched.until(lambda: len(watched.pods) == workers, what="all pods are there")
        bound = await watched.until(lambda: all(it.bound for it in watched.pods.values()), what="all have nodes")
        note(f"all pods have nodes after {bound - began:.1f} s")
        settled = await watched.until_settled(workers)
        ground.note_processors(processors)
        early = Requests.of(process) - before
        await watched.until(watched.all_shown, what="all pods show the state of their Slurm nodes")
        await ground.until_quiet(process)
        sent = Requests.of(process) - before
        note(f"{sent}; {early.kubernetes:,.0f} API requests of them until the status was settled")
        states = watched.states / workers
    return _Creation(pods=made - began, settled=settled - began, requests=sent.kubernetes / workers, states=states)


def scale_in(options: Options) -> Iterator[Figure]:
    """Take idle nodes away."""
    many, few = (50, 10) if options.quick else (500, 100)
    with ground.ground(many, quick=options.quick) as there, there.operator() as process:
        took = loop.run(_scale_in(there, process, many=many, few=few))
    yield figure(f"{many} → {few} idle nodes: pods, records and status", "≤ 15 s", took)


async def _scale_in(there: Ground, process: Process, *, many: int, few: int) -> float:
    async with ground.watching(there) as watched:
        await _settle(watched, process, many)
        before, processor = Requests.of(process), process.processor
        ground.note_load()
        began = await watched.change(replicas=few)
        left = await watched.until(lambda: len(watched.pods) == few, what=f"{few} pods are left")
        note(f"{few} pods are left after {left - began:.1f} s")
        async with asyncio.TaskGroup() as both:
            settled = both.create_task(watched.until_settled(few))
            records = both.create_task(watched.until_records(few))
        for what, at in (("records are gone", records.result()), ("status is settled", settled.result())):
            note(f"{what} after {at - began:.1f} s")
        _note_cost(process, before, processor, pods=many - few)
    return max(settled.result(), records.result()) - began


def rollout(options: Options) -> Iterator[Figure]:
    """Update a NodeSet."""
    workers = 20 if options.quick else 100
    with ground.ground(workers, quick=options.quick) as there, there.operator() as process:
        took = loop.run(_roll_out(there, process, workers))
    yield figure(f"Rolling update of {workers}, a quarter at a time", "≤ 20 s", took)


async def _roll_out(there: Ground, process: Process, workers: int) -> float:
    async with ground.watching(there) as watched:
        await _settle(watched, process, workers)
        old = {pod.metadata.uid for pod in watched.pods.values()}
        before, processor = Requests.of(process), process.processor
        ground.note_load()
        began = await watched.change(template={"metadata": {"annotations": {"example.com/build": "2"}}})
        await watched.until(
            lambda: (
                len(watched.pods) == workers and old.isdisjoint(it.metadata.uid for it in watched.pods.values())
            ),
            what="all pods are new",
        )
        took = await watched.until_settled(workers) - began
        _note_cost(process, before, processor, pods=workers)
    return took


async def _settle(watched: Watched, process: Process, workers: int) -> None:
    await watched.make(workers)
    await watched.until_settled(workers)
    await ground.until_quiet(process)


def _note_cost(process: Process, before: Requests, processor: float, *, pods: int) -> None:
    sent = Requests.of(process) - before
    note(
        f"{sent.kubernetes / pods:.1f} API requests a pod, {sent.slurm:,.0f} calls to Slurm,"
        f" {process.processor - processor:.1f} s of processor time"
    )


MEASUREMENTS = {"cluster": cluster, "creation": creation, "scale_in": scale_in, "rollout": rollout}

if __name__ == "__main__":
    sys.exit(main(MEASUREMENTS, about=__doc__))
