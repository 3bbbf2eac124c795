#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The exporter of a Slurm with 10,000 jobs and 5,000 nodes, beside what others ask of the same slurmctld.

scrape   how long a scrape takes, how soon a change is shown, memory, and series without those for each job
load     what slurmctld spends on the exporter, on the calls of Soperator's exporter, and on its own /metrics
"""

import asyncio
import contextlib
import random
import re
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bridge_ground import slurm_client, submit_others
from bench.harness import Figure, Options, figure, main, note
from bench.process import Kind, Process, running
from isthmus.model.slurm import RpcCount
from isthmus.runtime import loop
from isthmus.slurm.client import Client
from tests.bed.slurm import SlurmBed

_KIND = Kind(flags=(), health="monitoring-bind-address", leads=False)
_SCRAPES = 100
_CHANGES = 20
_CHANGES_A_SECOND = 2
_SHOWN_WITHIN = 300.0
_START_WITHIN = 120.0
_LOOK = 0.1
_QUIET = 60.0
_INTERVAL = 30.0
"""At which Soperator's exporter asks, and Prometheus scrapes slurmctld."""

_OWN_METRICS = ("jobs", "nodes", "partitions", "scheduler", "jobs-users-accts")


@contextlib.contextmanager
def _ground(options: Options) -> Iterator[SlurmBed]:
    """Run a Slurm with many nodes without slurmd, and jobs of which half run and half wait."""
    jobs, nodes = (1_000, 500) if options.quick else (10_000, 5_000)
    settings = {
        "MaxNodeCount": "6000",
        "MaxJobCount": str(2 * jobs),
        "MinJobAge": "3600",
        "MetricsType": "metrics/openmetrics",
    }
    with SlurmBed(nodes=0, external_nodes=nodes, accounting=False, settings=settings) as bed:
        note(f"submitting {jobs} jobs …")
        loop.run(_submit(bed, jobs))
        yield bed


async def _submit(bed: SlurmBed, jobs: int) -> None:
    async with slurm_client(bed) as client:
        await submit_others(client, jobs // 2, hold=False)
        await submit_others(client, jobs // 2)
        runs, deadline = 0, time.monotonic() + _START_WITHIN
        while runs < jobs // 2 and time.monotonic() < deadline:
            await asyncio.sleep(1)
            states = await client.job_states(patience=120)
            runs = sum(it.state[:1] == ("RUNNING",) for it in states)
        note(f"{runs} jobs run")


@contextlib.contextmanager
def _exporter(bed: SlurmBed, *flags: str) -> Iterator[Process]:
    def words(place: Path) -> Sequence[str | Path]:
        token = place / "token"
        token.write_text(bed.token(lifetime=7200))
        return ["exporter", f"--slurm-api-server={bed.rest_url}", f"--token-file={token}", *flags]

    with running(words, kind=_KIND) as process:
        yield process


def scrape(options: Options) -> Iterator[Figure]:
    """Scrape, and see changes."""
    with _ground(options) as bed:
        with _exporter(bed) as process:
            times = loop.run(_scrape_while_jobs_change(bed, process))
            slow = statistics.quantiles(times, n=100, method="inclusive")[-1]
            page = _read(f"{process.metrics_url}/metrics")
            note(f"a page of {len(page) / 1e6:.1f} MB, {page.count(b'}'):,} series with labels")
            note(f"a scrape takes {statistics.median(times) * 1000:.0f} ms in the median")
            yield figure("Scrape, 99 times of 100 within", "≤ 150 ms", slow * 1000)
            yield figure("Memory at most", "≤ 200 MB", process.most_memory / 1e6)
        with _exporter(bed, "--per-job-metrics=false") as process:
            delays = loop.run(_see_changes(bed, process))
            note(f"a change is shown after {statistics.median(delays):.2f} s in the median")
            yield figure("Change of a job's state: shown within, at most", "≤ 2 s", max(delays))
            before = _series(process)
            loop.run(_submit_more(bed, 500 if options.quick else 2_000))
            asyncio.run(_until(lambda: _jobs(process) >= before[1] + 500))
            after = _series(process)
            note(f"{before[0]} series for {before[1]:.0f} jobs, {after[0]} for {after[1]:.0f}")
            yield figure(
                "Series that 2,000 more jobs add, without those for each job", "≤ 10 series", after[0] - before[0]
            )


def load(options: Options) -> Iterator[Figure]:
    """Compare what slurmctld spends."""
    with _ground(options) as bed:
        quiet = 20.0 if options.quick else _QUIET
        idle = _spent(bed, lambda: time.sleep(quiet)).times(60.0 / quiet)
        note(f"slurmctld by itself: {idle}")
        changes = _spent(bed, lambda: _change_jobs(bed, quiet), idle=idle).times(60.0 / quiet)
        note(f"for jobs that change, {_CHANGES_A_SECOND} a second: {changes}")
        interval = quiet / 4 if options.quick else _INTERVAL
        with _exporter(bed) as process, _scraped(process, interval):
            process.await_quiet(within=120)
            time.sleep(2 * interval)  # until it knows how often it is scraped
            ours = _spent(bed, lambda: time.sleep(quiet), idle=idle).times(60.0 / quiet)
            note(f"for the exporter: {ours}")
            spent = _spent(bed, lambda: _change_jobs(bed, quiet), idle=idle).times(60.0 / quiet)
            busy = spent.without(changes)
            note(f"for the exporter while jobs change: {busy}")
        calls = ("nodes/", "jobs/", "diag/")
        theirs = _spent(bed, lambda: [_get(bed, path) for path in calls], idle=idle, times=3).times(
            60.0 / _INTERVAL
        )
        note(f"for Soperator's exporter: {theirs}")
        pages = [_own(bed, path) for path in _OWN_METRICS]
        own = _spent(bed, lambda: [_read(page) for page in pages], idle=idle, times=3).times(60.0 / _INTERVAL)
        note(f"for its own metrics: {own}")
        yield figure(
            "Time that slurmctld works on requests, beside Soperator's exporter",
            "≤ 0.1 times",
            ours.work / theirs.work,
        )
        yield figure(
            f"The same while {_CHANGES_A_SECOND} jobs a second change", "≤ 0.1 times", busy.work / theirs.work
        )
        yield figure(
            "Requests to slurmctld, beside Soperator's exporter", "≤ 0.1 times", ours.requests / theirs.requests
        )
        yield figure(
            "Processor time of slurmctld, beside its own metrics", "≤ 0.1 times", ours.processor / own.processor
        )


@dataclass(frozen=True)
class _Spent:
    """What slurmctld spent in a minute: processor time and time of work on requests in seconds, and requests."""

    processor: float
    work: float
    requests: float

    def times(self, factor: float) -> "_Spent":
        return _Spent(self.processor * factor, self.work * factor, self.requests * factor)

    def without(self, other: "_Spent") -> "_Spent":
        return _Spent(
            max(0.0, self.processor - other.processor),
            max(0.0, self.work - other.work),
            max(0.0, self.requests - other.requests),
        )

    def __str__(self) -> str:
        return (
            f"{self.processor * 1000:.0f} ms of processor time, {self.work * 1000:.1f} ms of work on"
            f" {self.requests:.0f} requests a minute"
        )


_NOTHING = _Spent(0.0, 0.0, 0.0)


def _spent(bed: SlurmBed, work: Callable[[], object], *, idle: _Spent = _NOTHING, times: int = 1) -> _Spent:
    """Measure what slurmctld spends on some work, beyond what it spends by itself."""
    before, processor, began = _requests(bed), _processor(bed), time.monotonic()
    for _ in range(times):
        work()
    minutes = (time.monotonic() - began) / 60.0
    used = _processor(bed) - processor
    asked = _difference(_requests(bed), before)
    _note_dearest(asked)
    # Finding out costs two requests: a ping and the question itself.
    spent = _Spent(used, sum(it.total_time for it in asked) / 1e6, sum(it.count for it in asked) - 2)
    return spent.without(idle.times(minutes)).times(1 / times)


@contextlib.contextmanager
def _scraped(process: Process, interval: float) -> Iterator[None]:
    """Scrape at regular times beside everything else, as Prometheus does."""
    over = threading.Event()

    def scrape() -> None:
        while True:
            _read(f"{process.metrics_url}/metrics")
            if over.wait(interval):
                return

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _change_jobs(bed: SlurmBed, seconds: float) -> None:
    """Cancel waiting jobs, so many a second."""

    async def cancel() -> None:
        async with slurm_client(bed) as client:
            waiting = await _waiting(client)
            until = time.monotonic() + seconds
            while time.monotonic() < until and waiting:
                await client.cancel_job(waiting.pop())
                await asyncio.sleep(1 / _CHANGES_A_SECOND)

    loop.run(cancel())


def _processor(bed: SlurmBed) -> float:
    return Process(bed._daemons["slurmctld"].pid, "").processor  # noqa: SLF001 - nobody else needs it


def _requests(bed: SlurmBed) -> dict[str, RpcCount]:
    """Read how many requests of each type slurmctld has worked on, and how long."""

    async def ask() -> dict[str, RpcCount]:
        async with slurm_client(bed) as client:
            await client.server()
            return {it.message_type: it for it in (await client.diagnose()).rpcs_by_message_type}

    return loop.run(ask())


def _difference(after: dict[str, RpcCount], before: dict[str, RpcCount]) -> list[RpcCount]:
    nothing = RpcCount("")
    return [
        RpcCount(kind, it.count - old.count, it.total_time - old.total_time)
        for kind, it in after.items()
        if (old := before.get(kind, nothing)).count < it.count
    ]


def _note_dearest(asked: list[RpcCount]) -> None:
    dearest = sorted(asked, key=lambda it: -it.total_time)[:6]
    note("; ".join(f"{it.count} {it.message_type}: {it.total_time / 1000:.1f} ms" for it in dearest))


def _get(bed: SlurmBed, path: str) -> bytes:
    request = urllib.request.Request(  # noqa: S310 - the bed's own address
        f"{bed.rest_url}/slurm/v0.0.45/{path}", headers={"X-SLURM-USER-TOKEN": bed.token()}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as answer:
        return bytes(answer.read())


def _own(bed: SlurmBed, path: str) -> str:
    return f"http://127.0.0.1:{bed.controller_port}/metrics/{path}"


def _read(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        return bytes(answer.read())


async def _scrape_while_jobs_change(bed: SlurmBed, process: Process) -> list[float]:
    """Scrape over and over, with a job that changes in between, so that no page is the one before."""
    times = []
    async with slurm_client(bed) as client:
        waiting = await _waiting(client)
        for number in range(_SCRAPES):
            if number % 5 == 0:
                await client.cancel_job(waiting.pop())
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            await asyncio.to_thread(_read, f"{process.metrics_url}/metrics")
            times.append(time.perf_counter() - began)
    return times


async def _see_changes(bed: SlurmBed, process: Process) -> list[float]:
    """Cancel jobs one by one, at moments of no pattern, and look until the number of cancelled ones has grown."""
    delays = []
    async with slurm_client(bed) as client:
        waiting = await _waiting(client)
        for _ in range(_CHANGES):
            await asyncio.sleep(random.uniform(0.5, 2.0))  # noqa: S311 - meets every phase of the exporter's round
            before = await asyncio.to_thread(_cancelled, process)
            await client.cancel_job(waiting.pop())
            changed = time.monotonic()
            while await asyncio.to_thread(_cancelled, process) <= before:  # noqa: ASYNC110 - a page sends no events
                await asyncio.sleep(_LOOK)
            delays.append(time.monotonic() - changed)
    return delays


def _cancelled(process: Process) -> int:
    page = _read(f"{process.metrics_url}/metrics")
    return sum(map(int, re.findall(rb'^isthmus_slurm_jobs\{[^\n]*state="cancelled"\} (\d+)$', page, re.MULTILINE)))


async def _waiting(client: Client) -> list[int]:
    states = await client.job_states(patience=120)
    return [int(it.job_id) for it in states if it.state[:1] == ("PENDING",)]


async def _submit_more(bed: SlurmBed, count: int) -> None:
    async with slurm_client(bed) as client:
        await submit_others(client, count)


async def _until(good: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SHOWN_WITHIN):
        while not good():  # noqa: ASYNC110 - a server sends no events
            await asyncio.sleep(1)


def _jobs(process: Process) -> float:
    return process.metric("isthmus_slurm_jobs")


def _series(process: Process) -> tuple[int, float]:
    """Count the series, and the jobs that they show."""
    lines = _read(f"{process.metrics_url}/metrics").decode().splitlines()
    return sum(not line.startswith("#") for line in lines), _jobs(process)


if __name__ == "__main__":
    sys.exit(main({"scrape": scrape, "load": load}, about=__doc__))
