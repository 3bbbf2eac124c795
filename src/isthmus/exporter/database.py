"""One SQLite file, the one thread that uses it, and what becomes of a file that cannot be read.

Counters and the usage of jobs are written in one transaction, so that one never knows of a job that the other does
not. A file that is damaged, or not ours, is moved aside and a new one begun: what is in memory is written there at
the next save.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog

from isthmus.errors import Retry

T = TypeVar("T")

FILE: Final = "exporter.db"
_APPLICATION: Final = 0x49535448  # "ISTH"
_VERSION: Final = 1
_UNREADABLE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCK_PATIENCE: Final = 10.0

log = structlog.get_logger()


class NotOurs(sqlite3.DatabaseError):
    """The file is a database of something else, or of a newer exporter."""


class Database:
    def __init__(self, directory: Path | None, schema: str) -> None:
        """Without a directory, everything is in memory and ends with the process."""
        self.path = directory / FILE if directory else None
        self._schema = schema
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="exporter-database")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in one transaction, in the thread; raises `Retry` if the file cannot be used now."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            try:
                return self._attempt(work)
            except sqlite3.Error as error:
                if not _is_unreadable(error):
                    raise
                self._move_aside(error)
            return self._attempt(work)
        except (sqlite3.Error, OSError) as error:
            raise Retry(
                f"the data of the exporter cannot be used: {self.path}: {error}",
                remedy="check --data-dir: its owner, and the space that is left",
            ) from error

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._open()
        with self._connection as transaction:
            return work(transaction)

    def _open(self) -> sqlite3.Connection:
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path or ":memory:", timeout=_LOCK_PATIENCE)
        try:
            self._prepare(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        has_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if has_tables and (application, version) != (_APPLICATION, _VERSION):
            raise NotOurs("it is the file of another program or version")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(self._schema)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _move_aside(self, error: sqlite3.Error) -> None:
        self._close()
        if self.path is None:
            return
        aside = self.path.with_suffix(".unreadable")
        log.error(
            "began a new file, since this one cannot be read",
            file=str(self.path),
            kept=str(aside),
            error=str(error),
        )
        self.path.replace(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_unreadable(error: sqlite3.Error) -> bool:
    return isinstance(error, NotOurs) or getattr(error, "sqlite_errorcode", None) in _UNREADABLE
