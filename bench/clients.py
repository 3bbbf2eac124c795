#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The clients of Kubernetes and Slurm, against real servers and beside other libraries in the same run.

pods       list and watch 5,000 pods, beside lightkube, kubernetes-asyncio and kr8s; cache 50,000
bindings   5,000 bindings, beside a loop over bare sockets that sends the same
jobs       one of 10,000 Slurm jobs changes: how soon it is seen, and what watching costs
hostlists  100,000 host names, to a host list and back
"""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import bare, compare, workload
from bench.harness import Figure, Options, figure, main, note
from bench.jobs import watch_changes
from bench.stopwatch import Times, measured
from isthmus.domain.languages import hostlist
from isthmus.kube import tls
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.pod import PODS
from isthmus.runtime import loop
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed

_BUSY = "busy"


def pods(options: Options) -> Iterator[Figure]:
    """List, watch and cache pods."""
    count = 500 if options.quick else 5_000
    compare.python()
    with ControlPlaneBed(controllers=False) as bed:
        note(f"making {count} pods …")
        version, size = loop.run(_make_pods(bed.kubeconfig, count))
        note(f"{count} pods of {size:,.0f} bytes, each changed once since version {version}")
        ours, theirs = _side_by_side(bed.kubeconfig, "list", _BUSY)
        fastest = min(times.elapsed for times in theirs)
        yield figure(f"List {count:,} pods: elapsed, beside the fastest other", "≥ 5 times", fastest / ours.elapsed)
        leanest = min(times.processor for times in theirs)
        yield figure(
            f"List {count:,} pods: processor time, beside the leanest other", "≥ 5 times", leanest / ours.processor
        )
        ours, theirs = _side_by_side(bed.kubeconfig, "watch", _BUSY, version, str(count))
        leanest = min(times.processor for times in theirs)
        yield figure(
            f"Watch {count:,} events: processor time, beside the leanest other",
            "≥ 10 times",
            leanest / ours.processor,
        )
        grown = compare.run("memory", _BUSY, "10", kubeconfig=bed.kubeconfig)
        note(f"{grown['pods']:,} pods in caches: {grown['bytes'] / 1e6:,.0f} MB")
        yield figure("50,000 cached pods", "≤ 400 MB", grown["bytes"] / grown["pods"] * 50_000 / 1e6)


async def _make_pods(kubeconfig: Path, count: int) -> tuple[str, float]:
    """Make the pods and change each once; return the version before the changes, and the size of a pod in JSON."""
    async with Client(load(kubeconfig)) as client:
        for namespace in ("default", _BUSY):
            await workload.make_namespace(client, namespace)
        keys = await workload.make_pods(client, _BUSY, count, running=True)
        listing = await client.list(PODS, namespace=_BUSY)
        await workload.relabel(client, keys, "second")
        sample = await client.raw(f"/api/v1/namespaces/{_BUSY}/pods?limit=100", accept="application/json")
        return listing.version, len(sample) / min(count, 100)


def _side_by_side(kubeconfig: Path, *words: str) -> tuple[Times, list[Times]]:
    """Let every library do the same, us first and last, since the machine is not the same from minute to minute."""

    def run(name: str) -> Times:
        times = Times(**compare.run(f"with_{name}", *words, kubeconfig=kubeconfig))
        note(f"{words[0]:6} {name:20} {times.elapsed:7.3f} s elapsed {times.processor:7.3f} s of processor")
        return times

    first = run("isthmus")
    theirs = [run(name) for name in compare.OTHERS]
    last = run("isthmus")
    return Times((first.elapsed + last.elapsed) / 2, (first.processor + last.processor) / 2), theirs


def bindings(options: Options) -> Iterator[Figure]:
    """Bind pods."""
    count = 500 if options.quick else 5_000
    with ControlPlaneBed(controllers=False) as bed:
        ours, bares = loop.run(_bind(bed, count))
    note(f"{count / ours:,.0f} bindings/s, {count / bares:,.0f} over bare sockets")
    yield figure(f"Send {count:,} bindings: rate, beside a loop over bare sockets", "≥ 90 %", bares / ours * 100)


async def _bind(bed: ControlPlaneBed, count: int) -> tuple[float, float]:
    """Bind so many pods each way, in turns of a tenth; return the seconds that either took."""
    parallel = 64
    config = load(bed.kubeconfig)
    context = tls.trust(config.ca)
    if certificate := config.credentials.certificate:
        tls.present(context, certificate)
    ours, bares = 0.0, 0.0
    async with Client(config, parallel=parallel) as client:
        await workload.make_namespace(client, _BUSY)
        keys = await workload.make_pods(client, _BUSY, 2 * count, running=False)
        turn = count // 10
        turns = [keys[start : start + turn] for start in range(0, 2 * count, turn)]
        async with bare.connections(bed.url, context, parallel) as connections:
            for one, other in zip(turns[::2], turns[1::2], strict=True):
                with measured("bindings") as times:
                    await workload.all_of(client.bind(key, "node-1") for key in one)
                ours += times.elapsed
                began = time.perf_counter()
                await bare.bind_all(connections, other, node="node-1")
                bares += time.perf_counter() - began
    return ours, bares


def jobs(options: Options) -> Iterator[Figure]:
    """Watch many Slurm jobs."""
    count, changes = (1_000, 10) if options.quick else (10_000, 50)
    with SlurmBed(nodes=1, accounting=False) as bed:
        note(f"submitting {count} jobs …")
        watched = loop.run(watch_changes(bed, jobs=count, changes=changes))
    inner, outer = statistics.median(watched.delays), max(watched.delays)
    note(f"a change is seen after {inner * 1000:.0f} ms in the median, {outer * 1000:.0f} ms at most")
    slow = statistics.quantiles(watched.delays, n=20, method="inclusive")[-1]
    yield figure(f"One of {count:,} waiting jobs changes: seen, 19 times of 20, within", "≤ 300 ms", slow * 1000)
    yield figure(f"Watching {count:,} waiting jobs: of one core", "≤ 10 %", watched.share * 100)


def hostlists(options: Options) -> Iterator[Figure]:
    """Expand and fold host lists."""
    del options
    # As a site writes them: padded, by racks, with nodes missing here and there.
    racks = ",".join(f"r{rack:03d}n[001-{rack % 90 + 2:03d},{rack % 90 + 4:03d}-101]" for rack in range(1_000))
    expanding, names = min((_timed_expand(racks) for _ in range(5)), key=lambda result: result[0])
    folding, folded = min((_timed_fold(names) for _ in range(5)), key=lambda result: result[0])
    if folded != racks:
        raise RuntimeError("a host list did not come back as it was")
    yield figure(f"Expand a host list of {len(names):,} hosts", "≤ 50 ms", expanding * 1000)
    yield figure(f"Fold {len(names):,} hosts into a host list", "≤ 50 ms", folding * 1000)


def _timed_expand(text: str) -> tuple[float, list[str]]:
    with measured("expand") as times:
        names = hostlist.expand(text)
    return times.processor, names


def _timed_fold(names: list[str]) -> tuple[float, str]:
    with measured("fold") as times:
        text = hostlist.fold(names)
    return times.processor, text


if __name__ == "__main__":
    sys.exit(main({"hostlists": hostlists, "pods": pods, "bindings": bindings, "jobs": jobs}, about=__doc__))
