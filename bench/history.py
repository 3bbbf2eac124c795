#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""What the exporter counts of 5,000 jobs that wait, start and end, beside what sacct says of them.

waits    the histogram of wait times
"""

import asyncio
import math
import statistics
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from bench import workload
from bench.bridge_ground import slurm_client, submit_others
from bench.harness import Figure, Options, figure, main, note
from bench.process import Kind, Process, running
from isthmus.domain.exporter import catalog
from isthmus.runtime import loop
from tests.bed.slurm import SlurmBed

_KIND = Kind(flags=(), health="monitoring-bind-address", leads=False)
_ENDED_AT_ONCE = 8
_SHOWN_WITHIN = 300.0
_BUCKETS = catalog.JOB_WAIT.buckets


def waits(options: Options) -> Iterator[Figure]:
    """Let jobs wait, start and end, and compare."""
    jobs = 500 if options.quick else 5_000
    settings = {"MaxJobCount": str(2 * jobs), "MinJobAge": "3600"}
    with SlurmBed(nodes=0, external_nodes=jobs // 20, settings=settings) as bed:

        def words(place: Path) -> Sequence[str | Path]:
            (place / "token").write_text(bed.token(lifetime=7200))
            api, token = f"--slurm-api-server={bed.rest_url}", f"--token-file={place / 'token'}"
            return ["exporter", api, token, "--per-job-metrics=false"]

        with running(words, kind=_KIND) as process:
            loop.run(_run_through(bed, process, jobs))
            counts = _counts(process)
        known = _known(bed)
    note(f"{len(known)} jobs waited up to {known[-1]} s, in the median {statistics.median(known):.0f} s")
    yield figure("Jobs in the histogram of waits, beside sacct", "≤ 0 more or less", abs(counts[-1] - len(known)))
    for part in (0.5, 0.95):
        ours = next(at for at, count in enumerate(counts) if count >= part * counts[-1])
        theirs = bisect_left(_BUCKETS, known[math.ceil(part * len(known)) - 1])
        yield figure(f"Wait of {part:.0%} of the jobs, beside sacct", "≤ 1 buckets apart", abs(ours - theirs))


async def _run_through(bed: SlurmBed, process: Process, count: int) -> None:
    """Submit jobs, and end those that run until none is left: each makes room for one that waits."""
    gate = asyncio.Semaphore(_ENDED_AT_ONCE)
    async with slurm_client(bed) as client:

        async def end(job_id: int) -> None:
            async with gate:
                await client.cancel_job(job_id)

        await submit_others(client, count, hold=False)
        left = count
        while left:
            states = {int(it.job_id): it.state[:1] for it in await client.job_states(patience=120)}
            runs = [job_id for job_id, state in states.items() if state == ("RUNNING",)]
            left = len(runs) + sum(state == ("PENDING",) for state in states.values())
            await workload.all_of(end(job_id) for job_id in runs)
            await asyncio.sleep(1)
    async with asyncio.timeout(_SHOWN_WITHIN):
        while process.metric(catalog.JOBS_ENDED.name) < count:  # noqa: ASYNC110 - a page sends no events
            await asyncio.sleep(1)


def _counts(process: Process) -> list[int]:
    """Read the buckets, each with what is in those before it."""
    counts = [0] * (len(_BUCKETS) + 1)
    for series, value in process.series(f"{catalog.JOB_WAIT.name}_bucket").items():
        bound = series.partition('le="')[2].partition('"')[0]
        counts[bisect_left(_BUCKETS, float(bound))] += int(value)
    return counts


def _known(bed: SlurmBed) -> list[int]:
    rows = bed.command("sacct", "-DXPn", "-S", "00:00", "--format=submit,start", timeout=300).splitlines()
    times = [row.split("|") for row in rows if "None" not in row and "Unknown" not in row]
    moments = [(datetime.fromisoformat(submit), datetime.fromisoformat(start)) for submit, start in times]
    return sorted(int((start - submit).total_seconds()) for submit, start in moments)


if __name__ == "__main__":
    sys.exit(main({"waits": waits}, about=__doc__))
