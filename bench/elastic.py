#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""Elasticity: what a policy would have cost and saved, and what it costs to decide.

first       on the local cluster, with real pods: a job at zero nodes until its first process runs
decision    one decision about 2,000 nodes that are off, starting, idle and busy, half of which have to change
queue       5,000 jobs that wait for 2,000 nodes that may not start, until a hundred of these may: what a look at
            Slurm costs the operator, with all that follows from it
gang        500 nodes that are off, and one job for all of them: until their pods are there
rest        2,000 announced nodes that are off, and no job
simulation  traces of 10,000 jobs, simulated, against (a) a static cluster, (b) slinky's KEDA recipe, (c) Slurm's
            plain power saving

Waiting depends on luck as well: which jobs happen to come together when nodes get free. So five traces are played,
with seeds 1 to 5 of `bench.elastic_trace`, and their means are compared.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml

from bench import elastic_trace
from bench import operator_cluster as pods
from bench import operator_ground as ground
from bench.harness import Figure, Options, figure, main, note
from bench.process import Process, by_program
from isthmus import names
from isthmus.domain.elastic.comparison import KEDA, POLICY, POWER_SAVING, STATIC, Figures, compare
from isthmus.domain.elastic.decision import PodState, PowerView, Slot, decide
from isthmus.domain.elastic.policy import effective
from isthmus.errors import Terminal
from isthmus.model.elastic import Autoscale
from isthmus.model.slurm import Node, Number
from isthmus.runtime import loop

_SEEDS: Final = (1, 2, 3, 4, 5)
_ROUNDS: Final = 9
_ARRAY: Final = 1_000
"""Jobs in an array: Slurm takes no more in one."""

_KINDS: Final[tuple[tuple[tuple[str, ...], PodState], ...]] = (
    (("IDLE", "POWERED_DOWN"), "none"),
    (("ALLOCATED", "POWERING_UP"), "pending"),
    (("IDLE",), "ready"),
    (("ALLOCATED",), "ready"),
)
_POLICY: Final = Path(__file__).with_name("elastic_policy.yaml")


def policy() -> Autoscale:
    """The policy that is measured: that of the NodeSet in `elastic_policy.yaml`."""
    return msgspec.convert(yaml.safe_load(_POLICY.read_text())["spec"]["autoscale"], Autoscale)


def first(options: Options) -> Iterator[Figure]:
    """Start jobs while no node is on."""
    del options  # it is no smaller than it has to be
    with pods.cluster() as there:
        pods.first_job(there)
        pods.announce(there)
        for nodes, told, bar in ((1, "one node", "≤ 10 s"), (2, "two nodes", "≤ 12 s")):
            yield figure(
                f"A job on {told} from zero: submitted to first process", bar, pods.from_zero(there, nodes)
            )
            pods.await_off(there)


def decision(options: Options) -> Iterator[Figure]:
    size = 200 if options.quick else 2_000
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    busy = Number(set=True, number=now.timestamp() - 30)
    slots = [_slot(ordinal, *_KINDS[ordinal % len(_KINDS)], last_busy=busy) for ordinal in range(size)]
    on = frozenset(it.ordinal for it in slots if it.phase in {"on", "starting"})
    limits = effective(Autoscale(max=size // 4, warm=size // 20, idle_time="10s"), size=size, now=now)
    view = PowerView(slots=tuple(slots), active=on, written=on, limits=limits, now=now, idle_in_slurm=600.0)
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        found = decide(view)
        times.append(1000 * (time.process_time() - began))
        view = msgspec.structs.replace(view, states=found.states)
    note(", ".join(f"{it.verb} {len(it.names)}" for it in found.requests))
    yield figure(f"Decision about {size:,} nodes: processor time, median", "≤ 200 ms", statistics.median(times))


def _slot(ordinal: int, states: tuple[str, ...], pod: PodState, *, last_busy: Number) -> Slot:
    name = f"w-{ordinal}"
    record = Node(name=name, state=(*states, "CLOUD"), last_busy=last_busy)
    return Slot(ordinal=ordinal, name=name, record=record, pod=pod, placed=pod != "none")


def queue(options: Options) -> Iterator[Figure]:
    size, arrays, started = (200, 1, 20) if options.quick else (2_000, 5, 100)
    with ground.ground(size, quick=True, elastic=True) as there, there.operator() as process:
        found = loop.run(_let_some_start(there, process, size, arrays, started))
    told = f"{arrays * _ARRAY:,} jobs wait for {size:,} nodes"
    note(f"{found.looks:.0f} looks at Slurm until {started} nodes have their pods")
    yield figure(f"{told}: processor time for a look, a decision and its pods", "≤ 200 ms", found.processor_ms)
    yield figure(f"{told}: calls to Slurm for each look", "≤ 2", found.calls)


class _Looks(msgspec.Struct, frozen=True):
    looks: float
    processor_ms: float
    """For each of them, on average."""
    calls: float


async def _let_some_start(there: ground.Ground, process: Process, size: int, arrays: int, started: int) -> _Looks:
    async with ground.watching(there) as watched:
        await _announce(watched, process, size)
        await watched.change(autoscale={"max": 0})
        await ground.until_quiet(process)
        for _ in range(arrays):
            there.slurm.submit(f"--array=1-{_ARRAY}", "--exclusive")
        await ground.until_quiet(process)
        if watched.pods.values():
            raise Terminal(f"nodes were started though none may: {watched.story()}")
        ground.note_load()
        before, looks, processor = ground.Requests.of(process), _looks(process), process.processor
        await watched.change(autoscale={"max": started})
        await watched.until(lambda: len(watched.pods) == started, what=f"{started} pods are there")
        used, looks = process.processor - processor, _looks(process) - looks
        sent = ground.Requests.of(process) - before
        note(str(sent))
        return _Looks(looks=looks, processor_ms=1000 * used / looks, calls=sent.slurm / looks)


def _looks(process: Process) -> float:
    """How often the operator has read the nodes of Slurm: it reads nothing else there."""
    return process.metric(names.CLIENT_REQUESTS.name, ground.OF_SLURM, 'method="GET"')


def gang(options: Options) -> Iterator[Figure]:
    """Submit a job for all nodes."""
    size = 50 if options.quick else 500
    with ground.ground(size, quick=options.quick, elastic=True) as there, there.operator() as process:
        took = loop.run(_bring_up(there, process, size))
    yield figure(f"{size} nodes from zero as one gang: submitted to all pods there", "≤ 20 s", took)


async def _bring_up(there: ground.Ground, process: Process, size: int) -> float:
    async with ground.watching(there) as watched:
        await _announce(watched, process, size)
        before, processors = ground.Requests.of(process), by_program()
        ground.note_load()
        began = time.monotonic()
        there.slurm.submit(f"--nodes={size}")
        first = await watched.until(lambda: len(watched.pods) > 0, what="the first pod")
        made = await watched.until(lambda: len(watched.pods) == size, what="all pods are there")
        note(f"the first pod after {first - began:.1f} s; {ground.Requests.of(process) - before}")
        ground.note_processors(processors)
    return made - began


async def _announce(watched: ground.Watched, process: Process, size: int) -> None:
    await watched.make(size, **ground.ELASTIC)
    await watched.until(watched.ready, what="all nodes are announced")
    await ground.until_quiet(process)


def rest(options: Options) -> Iterator[Figure]:
    """Announce many nodes, and leave them alone."""
    size, window = (200, 4.0) if options.quick else (2_000, 30.0)
    with ground.ground(size, quick=True, elastic=True) as there, there.operator() as process:
        loop.run(_only_announce(there, process, size))
        found = ground.Rest.of(process, window)
    told = f"{size:,} announced nodes at rest"
    yield figure(f"{told}: of one core", "≤ 2 %", found.share * 100)
    yield figure(f"{told}: calls to Slurm", "≤ 1 /s", found.calls)
    yield figure(f"{told}: API writes", "≤ 0", found.writes)


async def _only_announce(there: ground.Ground, process: Process, size: int) -> None:
    async with ground.watching(there) as watched:
        await _announce(watched, process, size)


def simulation(options: Options) -> Iterator[Figure]:
    jobs = elastic_trace.JOBS // (10 if options.quick else 1)
    found: dict[str, list[Figures]] = {}
    times = []
    for seed in _SEEDS:
        trace = elastic_trace.make(seed, jobs=jobs)
        began = time.process_time()
        for name, (one, _) in compare(trace, policy(), size=elastic_trace.NODES).items():
            found.setdefault(name, []).append(one)
        times.append(time.process_time() - began)
    waits = {name: statistics.mean(it.wait.mean for it in each) for name, each in found.items()}
    hours = {name: statistics.mean(it.node_hours for it in each) for name, each in found.items()}
    # A way that leaves jobs undone is not cheaper for it.
    costs = {name: statistics.mean(it.node_hours / it.busy_hours for it in each) for name, each in found.items()}
    for name, each in found.items():
        seeds = ", ".join(f"{it.wait.mean:.0f}" for it in each)
        stuck = sum(it.unstarted for it in each)
        boot = statistics.mean(it.boot.mean for it in each)
        note(f"{name}: {hours[name]:,.0f} node-hours, {costs[name]:.3f} for each hour of jobs")
        note(f"  wait {waits[name]:.0f} s (by seed: {seeds}), of which {boot:.0f} s for nodes to start")
        note(f"  {stuck} jobs never started")
    what = f"{jobs:,}-job trace, simulated"
    yield figure(f"{what}: mean wait beside (a) static", "≤ 110 %", 100 * waits[POLICY] / waits[STATIC])
    yield figure(f"{what}: node-hours beside (a) static", "≤ 60 %", 100 * costs[POLICY] / costs[STATIC])
    for letter, other in (("b", KEDA), ("c", POWER_SAVING)):
        yield figure(f"{what}: mean wait beside ({letter}) {other}", "≤ 100 %", 100 * waits[POLICY] / waits[other])
        yield figure(f"{what}: node-hours beside ({letter}) {other}", "≤ 100 %", 100 * costs[POLICY] / costs[other])
    yield figure(f"{what}: processor time for all four ways", "≤ 15 s", statistics.mean(times))


MEASUREMENTS = {
    "first": first,
    "decision": decision,
    "queue": queue,
    "gang": gang,
    "rest": rest,
    "simulation": simulation,
}

if __name__ == "__main__":
    sys.exit(main(MEASUREMENTS, about=__doc__))
