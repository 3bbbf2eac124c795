"""The history of jobs with a poller that is filled by hand; tests/flows/exporter has a real Slurm."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.report import Query
from isthmus.exporter.jobhistory import JobHistory
from isthmus.model.slurm import Job, Node, Number
from isthmus.slurm.poller import Poller
from tests.flows.kube.waiting import eventually
from tests.unit.slurm.test_poller import quiet_poller


def job(job_id: int, *states: str, **changes: Any) -> Job:
    began: dict[str, Any] = {"nodes": "n1", "start_time": Number.of(1010)} if states[0] != "PENDING" else {}
    over: dict[str, Any] = {"end_time": Number.of(1070)} if states[0] not in {"PENDING", "RUNNING"} else {}
    return Job(
        job_id=job_id,
        job_state=states,
        user_name="alice",
        submit_time=Number.of(1000),
        tres_allocated="cpu=2,mem=1G",
        **began | over | changes,
    )


def poller_of(*jobs: Job) -> Poller:
    """A poller that has read everything."""
    poller = quiet_poller()
    poller._unread.all_read()
    for event in poller._read_once.values():
        event.set()
    for each in jobs:
        poller.jobs.put(each.job_id, each)
    return poller


@asynccontextmanager
async def watching(poller: Poller, directory: Path | None) -> AsyncIterator[JobHistory]:
    history = JobHistory(poller, directory=directory, limits=Limits(), accounting=None, clock=lambda: 1100.0)
    task = asyncio.get_running_loop().create_task(history.run())
    await eventually(lambda: history._begun)
    try:
        yield history
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def shown(history: JobHistory) -> dict[str, float]:
    lines = "".join(history.text(1100.0)).splitlines()
    return {
        line.split("{")[0].removeprefix("isthmus_slurm_"): float(line.split()[-1])
        for line in lines
        if not line.startswith("#") and "_bucket" not in line
    }


async def test_what_happens_after_the_start_counts_and_the_rest_does_not() -> None:
    poller = poller_of(job(1, "RUNNING"), job(2, "COMPLETED"))
    async with watching(poller, None) as history:
        assert shown(history) == {}
        poller.jobs.put(1, job(1, "COMPLETED"))
        poller.jobs.put(3, job(3, "PENDING"))
        found = shown(history)
    assert (found["jobs_ended_total"], found["jobs_submitted_total"]) == (1, 1)
    assert "jobs_started_total" not in found


async def test_a_restart_goes_on_with_what_was_counted_and_what_happened_meanwhile(tmp_path: Path) -> None:
    poller = poller_of(job(1, "RUNNING"))
    async with watching(poller, tmp_path) as history:
        poller.jobs.put(2, job(2, "RUNNING"))
        poller.jobs.put(4, job(4, "RUNNING"))
    poller = poller_of(job(1, "COMPLETED"), job(2, "COMPLETED"), job(3, "FAILED"), job(4, "RUNNING"))
    async with watching(poller, tmp_path) as history:
        found = shown(history)
    assert {name: found[f"jobs_{name}_total"] for name in ("submitted", "started")} == {
        "submitted": 3,
        "started": 3,
    }
    assert sum(history._jobs.ended.rows.values()) == 3
    assert found["job_wait_seconds_count"] == found["job_run_seconds_count"] == 3
    async with watching(poller, tmp_path) as history:
        assert shown(history) == found


async def test_the_report_has_each_run_once(tmp_path: Path) -> None:
    poller = poller_of()
    async with watching(poller, tmp_path) as history:
        poller.jobs.put(1, job(1, "COMPLETED"))
        await history.save()
        poller.jobs.drop(1)
        poller.jobs.put(1, job(1, "COMPLETED"))
        await history.save()
        found = await history.report(Query(since=0, until=2000))
    assert [(line.group, line.jobs) for line in found.lines] == [("alice", 1)]
    assert found.total.cpu_hours == pytest.approx(1 / 30)


async def test_losing_contact_changes_nothing_and_lets_no_time_pass(tmp_path: Path) -> None:
    poller = poller_of(job(1, "RUNNING"))
    poller.nodes.put("n1", Node(name="n1", state=("IDLE",), gres="gpu:2"))
    assert not poller.contact.in_touch
    async with watching(poller, tmp_path) as history:
        list(history.text(1100.0))
        list(history.text(1160.0))
        assert shown(history) == {}


async def test_counters_that_were_saved_are_shown_before_slurm_answers(tmp_path: Path) -> None:
    poller = poller_of()
    async with watching(poller, tmp_path):
        poller.jobs.put(1, job(1, "COMPLETED"))
    away = quiet_poller()
    history = JobHistory(away, directory=tmp_path, limits=Limits(), accounting=None)
    task = asyncio.get_running_loop().create_task(history.run())
    await eventually(lambda: history._restored)
    assert shown(history)["jobs_ended_total"] == 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_what_cannot_be_understood_lets_counters_begin_at_zero(tmp_path: Path) -> None:
    poller = poller_of()
    async with watching(poller, tmp_path) as history:
        poller.jobs.put(1, job(1, "COMPLETED"))
        await history.save()
        await history._database.run(
            lambda it: it.execute("UPDATE checkpoint SET content = '[]' WHERE part = 'nodes'")
        )
        history._begun = False  # so that the end does not save again
    async with watching(poller_of(), tmp_path) as history:
        assert shown(history) == {}
