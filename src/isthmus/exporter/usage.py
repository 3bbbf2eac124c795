"""What finished jobs asked for and used: a row for each run, bounded by age and by size.

`counted` says whether the counters know the run. What only slurmdbd told is not counted yet.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from isthmus.domain.exporter.jobrun import JobRun
from isthmus.domain.exporter.report import COLUMNS, Query, Usage

_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(JobRun))
_KEY: Final = ("job_id", "submit")
_USED: Final = ("cpu_seconds", "max_memory")
_TOLD_BY_ACCOUNTS: Final = ("eligible", "start", "end", "elapsed", "state", "nodes", "exit_code", *_USED)
_TOLD_BY_RECORDS: Final = tuple(name for name in _FIELDS if name not in {*_KEY, *_USED, "user"})

_UNTOLD_FOR: Final = 86400.0
"""So many seconds after its end a run may still learn from slurmdbd what it used."""

_PRUNED_AT_ONCE: Final = 5000


def _columns(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _upsert(names: Iterable[str], *, counted: int) -> str:
    """Write a row, or of one that is there these columns."""
    changes = [f'"{name}" = excluded."{name}"' for name in names]
    # slurmctld may know a user's id alone, and slurmdbd may have no name for one who is not in its accounts.
    changes.append(
        """"user" = CASE WHEN excluded."user" GLOB '*[^0-9]*' THEN excluded."user" ELSE runs."user" END"""
    )
    if counted:
        changes.append("counted = 1")
    marks = ", ".join("?" * len(_FIELDS))
    # Only names of our own fields are put into these texts.
    return (
        f"INSERT INTO runs ({_columns(_FIELDS)}, counted) VALUES ({marks}, {counted})"  # noqa: S608 - see above
        f" ON CONFLICT ({_columns(_KEY)}) DO UPDATE SET {', '.join(changes)}"
    )


SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS runs (
    {_columns(_FIELDS)}, counted INTEGER NOT NULL, PRIMARY KEY ({_columns(_KEY)})
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_by_end ON runs ("end");
CREATE INDEX IF NOT EXISTS runs_uncounted ON runs (counted) WHERE counted = 0;
"""

_WRITE: Final = _upsert(_TOLD_BY_RECORDS, counted=1)
_MERGE: Final = _upsert(_TOLD_BY_ACCOUNTS, counted=0)


def write(connection: sqlite3.Connection, runs: Iterable[JobRun]) -> None:
    """Write runs that are counted."""
    connection.executemany(_WRITE, map(msgspec.structs.astuple, runs))


def mark_counted(connection: sqlite3.Connection, runs: Iterable[JobRun]) -> None:
    connection.executemany("UPDATE runs SET counted = 1 WHERE job_id = ? AND submit = ?", [run.key for run in runs])


def merge(connection: sqlite3.Connection, runs: Iterable[JobRun]) -> None:
    """Write the data of accounting about runs."""
    connection.executemany(_MERGE, map(msgspec.structs.astuple, runs))


def uncounted(connection: sqlite3.Connection) -> list[tuple[JobRun, bool]]:
    """Read the runs that only accounting knows, and whether there is a later one of the same job."""
    later = "EXISTS (SELECT 1 FROM runs AS other WHERE other.job_id = runs.job_id AND other.submit > runs.submit)"
    rows = connection.execute(f"SELECT {_columns(_FIELDS)}, {later} FROM runs WHERE counted = 0")  # noqa: S608 - own names
    return [(JobRun(**dict(zip(_FIELDS, row, strict=False))), bool(row[-1])) for row in rows]


def oldest_untold(connection: sqlite3.Connection, *, now: float) -> float | None:
    """When the oldest run ended whose usage slurmdbd has not reported."""
    row = connection.execute(
        'SELECT min("end") FROM runs WHERE cpu_seconds IS NULL AND start > 0 AND "end" > ?', [now - _UNTOLD_FOR]
    )
    found: float | None = row.fetchone()[0]
    return found


def prune(connection: sqlite3.Connection, *, before: float, max_bytes: int) -> int:
    """Delete what ended before a time, and the oldest until the rest fits; return how many rows."""
    deleted = connection.execute('DELETE FROM runs WHERE "end" < ?', [before]).rowcount
    while _size(connection) > max_bytes:
        oldest = 'SELECT job_id, submit FROM runs ORDER BY "end" LIMIT ?'
        gone = connection.execute(f"DELETE FROM runs WHERE (job_id, submit) IN ({oldest})", [_PRUNED_AT_ONCE])  # noqa: S608 - a constant
        if not gone.rowcount:
            break
        deleted += gone.rowcount
    return deleted


def _size(connection: sqlite3.Connection) -> int:
    """How many bytes are in use: a file does not shrink by itself."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def select(connection: sqlite3.Connection, query: Query) -> Iterator[Usage]:
    """Read what a report needs of the runs that it is about."""
    filters = {"user": query.user, "account": query.account, "partition": query.partition, "kind": query.kind}
    chosen = {name: value for name, value in filters.items() if value}
    where = "".join(f' AND "{name}" = ?' for name in chosen)
    text = f'SELECT {_columns(COLUMNS)} FROM runs WHERE "end" >= ? AND "end" < ?{where}'  # noqa: S608 - own names
    for row in connection.execute(text, [query.since, query.until, *chosen.values()]):
        yield Usage(*row)
