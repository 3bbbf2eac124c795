"""What the exporter knows and has counted, in its file, so that a restart is neither a jump nor a reset.

Everything is of one moment: counters, what is known of each job, and the runs that are written to the usage store.
Whoever is killed goes on from the last checkpoint, and counts again what happened since, once. Prometheus sees
counters fall by what was counted in the last seconds, and takes that for a reset.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from isthmus.domain.exporter import tallies
from isthmus.domain.exporter.jobledger import JobLedger
from isthmus.domain.exporter.jobrun import JobRun
from isthmus.domain.exporter.nodeledger import NodeLedger
from isthmus.exporter import usage

SCHEMA: Final = "CREATE TABLE IF NOT EXISTS checkpoint (part TEXT PRIMARY KEY, content BLOB NOT NULL);"


class Checkpoint(msgspec.Struct, frozen=True):
    tallies: bytes
    jobs: bytes
    nodes: bytes
    accounts: bytes
    """Until when slurmdbd has been asked, in seconds since 1970."""


def take(jobs: JobLedger, nodes: NodeLedger, *, asked_until: float) -> Checkpoint:
    counted = tallies.save((*jobs.tallies, *nodes.tallies))
    return Checkpoint(counted, jobs.save(), nodes.save(), msgspec.json.encode(asked_until))


def restore(checkpoint: Checkpoint, jobs: JobLedger, nodes: NodeLedger) -> float:
    """Continue from a checkpoint; return until when slurmdbd was read; raises `msgspec.MsgspecError`."""
    jobs.load(checkpoint.jobs)
    nodes.load(checkpoint.nodes)
    tallies.load((*jobs.tallies, *nodes.tallies), checkpoint.tallies)
    return msgspec.json.decode(checkpoint.accounts, type=float)


def write(
    connection: sqlite3.Connection, checkpoint: Checkpoint, *, ended: Iterable[JobRun], settled: Iterable[JobRun]
) -> None:
    usage.write(connection, ended)
    usage.mark_counted(connection, settled)
    parts = msgspec.structs.asdict(checkpoint)
    connection.executemany("INSERT OR REPLACE INTO checkpoint VALUES (?, ?)", parts.items())


def read(connection: sqlite3.Connection) -> Checkpoint | None:
    parts = dict(connection.execute("SELECT part, content FROM checkpoint"))
    fields = Checkpoint.__struct_fields__
    return Checkpoint(*(parts[name] for name in fields)) if parts.keys() >= set(fields) else None
