#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""Elasticity: what a policy would have cost and saved.

simulation  traces of 10,000 jobs, simulated, against (a) a static cluster, (b) slinky's KEDA recipe, (c) Slurm's
            plain power saving

Waiting depends on luck as well: which jobs happen to come together when nodes get free. So five traces are played,
with seeds 1 to 5 of `bench.elastic_trace`, and their means are compared.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import yaml

from bench import elastic_trace
from bench.harness import Figure, Options, figure, main, note
from isthmus.domain.elastic.comparison import KEDA, POLICY, POWER_SAVING, STATIC, Figures, compare
from isthmus.model.elastic import Autoscale

_SEEDS: Final = (1, 2, 3, 4, 5)
_POLICY: Final = Path(__file__).with_name("elastic_policy.yaml")


def policy() -> Autoscale:
    """The policy that is measured: that of the NodeSet in `elastic_policy.yaml`."""
    return msgspec.convert(yaml.safe_load(_POLICY.read_text())["spec"]["autoscale"], Autoscale)


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


if __name__ == "__main__":
    sys.exit(main({"simulation": simulation}, about=__doc__))
