"""What happened to jobs of a real Slurm: counters, histograms and the report say what sacct says."""

import asyncio
import sqlite3
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import datetime
from pathlib import Path

import pytest
from aiohttp import web

from isthmus.domain.exporter import catalog, report
from isthmus.domain.exporter.folding import Limits
from isthmus.errors import Retry
from isthmus.exporter.database import FILE
from isthmus.exporter.jobhistory import JobHistory
from isthmus.inspect import report as reports
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from isthmus.slurm.poller import Poller
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.waiting import PATIENCE
from tests.flows.kube.waiting import eventually as until

_SETTINGS = {"JobAcctGatherFrequency": "task=1", "MessageTimeout": "5"}
_OF_ALICE = {"by": "kind", "user": "alice"}
_USES_MEMORY = (
    "head -c 60m /dev/zero | tail -c 50m | sleep 2 & wait; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
)


@pytest.fixture(scope="module", params=VERSIONS)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    with SlurmBed(request.param, nodes=2, settings=_SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.exporter.jobhistory._SAVE_EVERY", 0.2)
    monkeypatch.setattr("isthmus.exporter.jobhistory._ACCOUNTS_EVERY", 0.5)


@asynccontextmanager
async def watching(bed: SlurmBed, directory: Path) -> AsyncIterator[JobHistory]:
    """An exporter's history, from its start until it is told to end."""
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        poller = Poller(client, idle=0.2, refresh=None)
        history = JobHistory(
            poller, directory=directory, limits=Limits(), accounting=Accounting(client.calls), cluster="bed"
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(poller.run()), group.create_task(history.run())]
            await until(lambda: history._begun)
            yield history
            for task in reversed(tasks):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def sbatch(bed: SlurmBed, *words: str, script: str = "true", user: str = "root") -> str:
    return bed.submit(*words, script=script, user=user)


def sacct(bed: SlurmBed) -> list[dict[str, str]]:
    """All runs of all jobs, also those that were requeued."""
    fields = "jobidraw,jobid,submit,start,end,state,elapsedraw"
    lines = bed.command("sacct", "-DXPn", "-S", "00:00", f"--format={fields}", "--array").splitlines()
    return [dict(zip(fields.split(","), line.split("|"), strict=True)) for line in lines]


def sacct_of(bed: SlurmBed, job: str, fields: str) -> list[str]:
    return bed.command("sacct", "-Pn", "--units=K", "-j", job, f"--format={fields}").splitlines()[0].split("|")


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def totals(history: JobHistory) -> Counter[str]:
    """The sums of counters, by family and, for ended jobs, by state."""
    ledger = history._jobs
    found: Counter[str] = Counter()
    for tally in (ledger.submitted, ledger.started, ledger.ended, ledger.requeued):
        for labels, value in tally.rows.items():
            found[".".join([tally.family.name.split("_")[3], *labels[3:]])] += int(value)
    return found


def by_bucket(history: JobHistory) -> list[int]:
    rows = history._jobs.wait.rows.values()
    return [sum(counts) for counts in zip(*(counts for counts, _ in rows), strict=True)]


async def test_counters_and_waits_are_those_of_sacct_across_restarts_of_both(bed: SlurmBed, tmp_path: Path) -> None:
    before = sbatch(bed, script="sleep 600")
    await until(lambda: "RUNNING" in bed.command("squeue", "-ho%T"))
    async with watching(bed, tmp_path) as history:
        assert not totals(history)
        bed.command("scancel", before)
        for _ in range(10):
            sbatch(bed)
        array = sbatch(bed, "--array=1-9:2%2", script="sleep 0.2")
        held = sbatch(bed, "--hold", "--array=5,7")
        bed.command("scancel", held)
        again = sbatch(bed, "--requeue", script="sleep 600")
        await until(lambda: totals(history)["started"] >= 5)
    for _ in range(5):
        sbatch(bed, script="exit 3")
    bed.restart("slurmctld")
    async with watching(bed, tmp_path) as history:
        # A run that is requeued before its record was read is counted from the accounts, but only minutes later.
        await until(lambda: (it := history._jobs._runs.get(again)) and it.started)
        # Held, so that it is not just being started again when it is cancelled.
        bed.scontrol("requeuehold", again)
        await until(lambda: totals(history)["requeued"] == 1)
        bed.command("scancel", again)
        bed.command("sbatch", "--parsable", "--mem=16", ":", "--mem=16", stdin="#!/bin/sh\ntrue\n")
        # Ten, five of the array, two that were cancelled, one that is requeued, five that fail, two components.
        await until(lambda: totals(history)["submitted"] == 25)
        await until(lambda: sum(n for name, n in totals(history).items() if name.startswith("ended")) == 26)
        found, waits = totals(history), by_bucket(history)
    # slurmctld tells slurmdbd in its own time.
    await until(lambda: all(row["end"] != "Unknown" for row in sacct(bed)))
    rows = [row for row in sacct(bed) if row["start"] not in {"None", "Unknown"}]
    started = [row for row in rows if row["jobidraw"] != before]
    assert found["started"] == len(started)
    states = Counter(row["state"].split()[0].lower() for row in rows)
    assert {name: found[f"ended.{name}"] for name in ("completed", "failed")} == {
        "completed": states["completed"],
        "failed": states["failed"],
    }
    assert found["requeued"] == states["requeued"] == 1
    expected = [0] * (len(catalog.JOB_WAIT.buckets) + 1)
    for row in started:
        expected[bisect_left(catalog.JOB_WAIT.buckets, seconds(row["start"]) - seconds(row["submit"]))] += 1
    assert waits == expected
    assert {row["jobid"] for row in started if row["jobid"].startswith(f"{array}_")} == {
        f"{array}_{task}" for task in range(1, 10, 2)
    }


async def test_what_jobs_used_is_reported_as_sacct_has_it(bed: SlurmBed, tmp_path: Path) -> None:
    async with watching(bed, tmp_path) as history:
        job = sbatch(bed, "--mem=200", "--cpus-per-task=2", script=_USES_MEMORY, user="alice")
        app = web.Application()
        app.add_routes(history.routes())
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with asyncio.timeout(PATIENCE):
            while (found := await reports.from_exporter(url, _OF_ALICE)).total.memory_efficiency is None:  # noqa: ASYNC110 - the exporter sends no events
                await asyncio.sleep(0.2)
        with pytest.raises(Retry, match=r"400.*there is no parameter"):
            await reports.from_exporter(url, {"colour": "red"})
        await runner.cleanup()
    (peak,) = sacct_of(bed, f"{job}.batch", "maxrss")
    cpu, elapsed = sacct_of(bed, job, "totalcpu,elapsedraw")
    used = sum(float(part) * unit for part, unit in zip(reversed(cpu.split(":")), (1, 60, 3600), strict=False))
    assert found.total.jobs == 1
    assert found.total.success_rate == 1
    assert found.total.memory_efficiency == pytest.approx(float(peak.rstrip("K")) / (200 * 1024), rel=0.01)
    assert found.total.cpu_efficiency == pytest.approx(used / (2 * int(elapsed)), abs=0.02)
    assert found.total.cpu_hours == pytest.approx(2 * int(elapsed) / 3600)
    assert reports.from_store(tmp_path / "exporter.db", _OF_ALICE).lines == found.lines


async def test_an_exporter_that_is_killed_goes_on_from_its_last_checkpoint(bed: SlurmBed, tmp_path: Path) -> None:
    """Prometheus sees counters fall by what was counted since, and each run is counted once in the end."""
    left = tmp_path / "left"
    left.mkdir()
    async with watching(bed, tmp_path) as history:
        first = [sbatch(bed, user="bob") for _ in range(3)]
        waiting = sbatch(bed, "--hold", user="bob")
        await until(lambda: totals(history) >= Counter({"submitted": 4, "ended.completed": 3}))
        await history.save()
        with closing(sqlite3.connect(tmp_path / FILE)) as now, closing(sqlite3.connect(left / FILE)) as then:
            now.backup(then)
        bed.command("scancel", waiting)
        later = [sbatch(bed, user="bob") for _ in range(2)]
        await until(lambda: totals(history)["ended.completed"] == len(first + later))
        before = totals(history)
    async with watching(bed, left) as history:
        assert totals(history) <= before
        await until(lambda: totals(history) == before)
        await history.save()
        report_ = await history.report(report.parse({"by": "kind", "user": "bob"}, now=time.time()))
        assert report_.total.jobs == len({*first, *later, waiting})


async def test_nodes_that_fail_and_come_back_are_counted_once(bed: SlurmBed, tmp_path: Path) -> None:
    async with watching(bed, tmp_path) as history:
        bed.scontrol("update", "nodename=n1", "state=drain", "reason=a fan is loud")
        await until(lambda: sum(history._nodes.fails.rows.values()) == 1)
    async with watching(bed, tmp_path) as history:
        assert sum(history._nodes.fails.rows.values()) == 1
        bed.scontrol("update", "nodename=n1", "state=resume")
        await until(lambda: ("n1",) in history._nodes.unavailable.rows)
        text = "".join(history.text(history._clock()))
    assert 'slurm_node_fails_total{node_name="n1",state_base="IDLE",state_is_drain="true"' in text
    assert 'slurm_node_unavailability_duration_seconds_count{node_name="n1"} 1' in text


async def test_jobs_that_nobody_saw_are_counted_from_the_accounts(
    bed: SlurmBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld loses its state while the exporter is down, and gives the ids of jobs to others afterwards."""
    async with watching(bed, tmp_path) as history:
        running = sbatch(bed, script="sleep 1.5")
        await until(lambda: totals(history)["started"] == 1)
    others = [sbatch(bed) for _ in range(4)]
    done = {*others, running}
    await until(lambda: done <= {row["jobidraw"] for row in sacct(bed) if row["state"] == "COMPLETED"})
    bed.kill("slurmctld")
    for file in bed.state_directory.glob("job_state*"):
        file.unlink()
    bed.start("slurmctld")
    async with watching(bed, tmp_path) as history:
        with monkeypatch.context() as patch:
            patch.setattr("isthmus.domain.exporter.unseen.SETTLED_AFTER", -60.0)
            await until(lambda: totals(history)["ended.completed"] == 5)
        assert totals(history)["submitted"] == totals(history)["started"] == 5
        reused = sbatch(bed)
        await until(lambda: totals(history)["ended.completed"] == 6)
        assert int(reused) <= int(running)
    async with watching(bed, tmp_path) as history:
        assert totals(history) == {"submitted": 6, "started": 6, "ended.completed": 6}
