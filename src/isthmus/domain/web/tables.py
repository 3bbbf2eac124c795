"""The rows that are shown now, each written once, and what changed since the last time that somebody asked."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from isthmus.domain.views.rows import JOB_COLUMNS, NODE_COLUMNS, POD_COLUMNS, Row
from isthmus.domain.web.audience import Audience, Table

Key = int | str

COLUMNS: dict[Table, tuple[str, ...]] = {"jobs": JOB_COLUMNS, "pods": POD_COLUMNS, "nodes": NODE_COLUMNS}

_encode = msgspec.json.Encoder().encode


class Written(NamedTuple):
    """A row as JSON, and by whom it is seen."""

    text: bytes
    owner: str


class Change(NamedTuple):
    table: Table
    key: Key
    was: Written | None
    now: Written | None


class Tables:
    """All rows. `put` and `drop` note what really changed; `take` gives that away."""

    def __init__(self) -> None:
        self._rows: dict[Table, dict[Key, Written]] = {"jobs": {}, "pods": {}, "nodes": {}}
        self._changed: dict[tuple[Table, Key], Written | None] = {}
        """What was there when it was last taken."""

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def put(self, table: Table, key: Key, row: Row, *, owner: str = "") -> None:
        rows = self._rows[table]
        was, now = rows.get(key), Written(_encode(row), owner)
        if was != now:
            self._changed.setdefault((table, key), was)
            rows[key] = now

    def drop(self, table: Table, key: Key) -> None:
        was = self._rows[table].pop(key, None)
        if was is not None:
            self._changed.setdefault((table, key), was)

    def take(self) -> list[Change]:
        taken, self._changed = self._changed, {}
        found = (Change(table, key, was, self._rows[table].get(key)) for (table, key), was in taken.items())
        return [it for it in found if it.was != it.now]

    def seen(self, audience: Audience, table: Table) -> Iterator[bytes]:
        return (it.text for it in self._rows[table].values() if audience.sees(table, it.owner))


def snapshot(tables: Tables, audience: Audience, *, head: bytes) -> bytes:
    """Write everything that an audience sees; `head` holds the members that come before the tables."""
    parts = [
        b'"%s":{"columns":%s,"rows":[%s]}'
        % (table.encode(), _encode(columns), b",".join(tables.seen(audience, table)))
        for table, columns in COLUMNS.items()
    ]
    return b"{%s,%s}" % (head, b",".join(parts))


def delta(changes: Iterable[Change], audience: Audience, *, head: bytes) -> bytes | None:
    """Write the changes that an audience sees; None if it sees none of them."""
    put: dict[Table, list[bytes]] = {}
    gone: dict[Table, list[Key]] = {}
    for table, key, was, now in changes:
        if now is not None and audience.sees(table, now.owner):
            put.setdefault(table, []).append(now.text)
        elif was is not None and audience.sees(table, was.owner):
            gone.setdefault(table, []).append(key)
    if not put and not gone:
        return None
    parts = [
        b'"%s":{"put":[%s],"gone":%s}'
        % (table.encode(), b",".join(put.get(table, ())), _encode(gone.get(table, [])))
        for table in COLUMNS
        if table in put or table in gone
    ]
    return b"{%s,%s}" % (head, b",".join(parts))
