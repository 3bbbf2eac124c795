import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobledger import JobLedger
from isthmus.domain.exporter.jobrun import JobRun
from isthmus.domain.exporter.nodeledger import NodeLedger
from isthmus.domain.exporter.report import Query
from isthmus.errors import Retry
from isthmus.exporter import checkpoint, usage
from isthmus.exporter.database import Database

EVERYTHING = Query(since=0, until=1e12)


def run(job_id: int = 1, **changes: Any) -> JobRun:
    usual = JobRun(job_id=job_id, submit=100, user="alice", state="completed", start=110, end=200 + job_id, cpus=1)
    return msgspec.structs.replace(usual, **changes)


def open_in(directory: Path | None) -> Database:
    return Database(directory, usage.SCHEMA + checkpoint.SCHEMA)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = open_in(tmp_path)
    yield made
    await made.close()


def states(connection: sqlite3.Connection) -> list[tuple[int, str, float | None]]:
    rows = connection.execute("SELECT job_id, state, cpu_seconds FROM runs ORDER BY job_id")
    return [(job_id, state, used) for job_id, state, used in rows]


async def test_what_was_used_comes_later_and_stays(database: Database) -> None:
    await database.run(lambda it: usage.write(it, [run(kind="pod", namespace="team")]))
    await database.run(lambda it: usage.merge(it, [run(cpu_seconds=7.5, max_memory=9)]))
    await database.run(lambda it: usage.write(it, [run(kind="pod", namespace="team")]))
    assert await database.run(states) == [(1, "completed", 7.5)]
    found = await database.run(lambda it: list(usage.select(it, EVERYTHING)))
    assert [(it.kind, it.namespace, it.max_memory) for it in found] == [("pod", "team", 9)]
    assert await database.run(usage.uncounted) == []


async def test_a_run_that_only_the_accounts_know_waits_to_be_counted(database: Database) -> None:
    later = run(submit=500, state="failed")
    await database.run(lambda it: usage.merge(it, [run(state="requeued"), later]))
    assert [(it.state, again) for it, again in await database.run(usage.uncounted)] == [
        ("requeued", True),
        ("failed", False),
    ]
    await database.run(lambda it: usage.mark_counted(it, [later]))
    assert [it.state for it, _ in await database.run(usage.uncounted)] == ["requeued"]


async def test_the_oldest_go_first_by_age_and_by_size(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.exporter.usage._PRUNED_AT_ONCE", 500)
    await database.run(lambda it: usage.write(it, [run(job_id, job_name="x" * 200) for job_id in range(4000)]))
    assert await database.run(lambda it: usage.prune(it, before=1200, max_bytes=10**9)) == 1000
    size = await database.run(usage._size)
    deleted = await database.run(lambda it: usage.prune(it, before=0, max_bytes=size // 2))
    left = [job_id for job_id, _, _ in await database.run(states)]
    assert deleted
    assert left == list(range(1000 + deleted, 4000))
    assert await database.run(usage._size) <= size // 2


async def test_a_report_takes_only_what_it_is_about(database: Database) -> None:
    runs = [run(1), run(2, user="bob"), run(3, end=5000), run(4, kind="pod")]
    await database.run(lambda it: usage.write(it, runs))
    query = Query(since=0, until=1000, user="alice", kind="slurm")
    assert len(await database.run(lambda it: list(usage.select(it, query)))) == 1


async def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    jobs, nodes = JobLedger(Limits()), NodeLedger(Limits())
    jobs.since = 123.0
    jobs.submitted.add(("main", "physics", "normal"), 7)
    jobs.wait.observe(("main", "physics", "normal"), 61)
    taken = checkpoint.take(jobs, nodes, asked_until=77.0)
    first = open_in(tmp_path)
    await first.run(lambda it: checkpoint.write(it, taken, ended=[run()], settled=[]))
    await first.close()
    second, again = open_in(tmp_path), JobLedger(Limits())
    saved = await second.run(checkpoint.read)
    assert saved is not None
    assert checkpoint.restore(saved, again, NodeLedger(Limits())) == 77.0
    assert (again.since, again.submitted.rows, again.wait.rows) == (123.0, jobs.submitted.rows, jobs.wait.rows)
    assert await second.run(states) == [(1, "completed", None)]
    await second.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name)")


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE runs (name); PRAGMA application_id = 0x49535448; PRAGMA user_version = 9"
        )


def _torn(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA application_id = 0x49535448; PRAGMA user_version = 1; {usage.SCHEMA}")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [_garbage, _foreign, _newer, _torn])
async def test_a_file_that_cannot_be_read_is_kept_aside(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    file = tmp_path / "exporter.db"
    spoil(file)
    database = open_in(tmp_path)
    await database.run(lambda it: usage.write(it, [run()]))
    assert await database.run(states) == [(1, "completed", None)]
    await database.close()
    assert file.with_suffix(".unreadable").stat().st_size


async def test_a_directory_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "exporter.db").mkdir()
    database = open_in(tmp_path)
    with pytest.raises(Retry, match="the data of the exporter cannot be used"):
        await database.run(usage.uncounted)
    await database.close()


async def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    database = open_in(tmp_path / "file" / "data")
    with pytest.raises(Retry, match="the data of the exporter cannot be used"):
        await database.run(usage.uncounted)
    await database.close()


async def test_without_a_directory_everything_is_in_memory() -> None:
    database = open_in(None)
    await database.run(lambda it: usage.write(it, [run()]))
    assert await database.run(states) == [(1, "completed", None)]
    await database.close()


async def test_the_accounts_name_users_whom_slurmctld_knows_by_their_ids(database: Database) -> None:
    def users(connection: sqlite3.Connection) -> list[str]:
        usage.write(connection, [run(1, user="1000"), run(2, user="bob"), run(3, user="1000")])
        usage.merge(connection, [run(1, user="alice"), run(2, user=""), run(3, user="")])
        usage.write(connection, [run(1, user="1000")])
        return [row[0] for row in connection.execute('SELECT "user" FROM runs ORDER BY job_id')]

    assert await database.run(users) == ["alice", "bob", "1000"]
