"""What is sent is written once for all, and nobody who reads slowly is waited for."""

import asyncio
import gzip
import json

import pytest

from isthmus.domain.web.audience import EVERYBODY, Audience
from isthmus.domain.web.tables import Tables
from isthmus.web.hub import RESYNC, Hub, Viewer

SIDE = {"ok": True, "read": True}


class Socket:
    """Takes bytes, as a transport whose other end reads nothing until it is told to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.unread = 0
        self.closing = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)
        self.unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closing

    @property
    def events(self) -> list[str]:
        return [
            line.removeprefix("event: ") for it in self.sent for line in it.decode().split("\n") if "event:" in line
        ]


def hub(tables: Tables) -> Hub:
    return Hub(
        tables,
        settle=lambda: None,
        sample=lambda: None,
        about=lambda: {"slurm": SIDE, "kubernetes": SIDE},
    )


async def test_all_viewers_of_an_audience_get_the_same_bytes() -> None:
    tables = Tables()
    it = hub(tables)
    sockets = [Socket() for _ in range(3)]
    feed = it.feed(EVERYBODY)
    feed.viewers |= {Viewer(socket) for socket in sockets}
    tables.put("jobs", 1, [1, "a"], owner="alice")
    it.flush()
    assert all(socket.sent[0] is sockets[0].sent[0] for socket in sockets)
    size, _, rest = sockets[0].sent[0].partition(b"\r\n")
    assert len(rest) == int(size, 16) + 2
    assert b'"put":[[1,"a"]]' in rest


async def test_a_snapshot_goes_with_the_changes_after_it() -> None:
    tables = Tables()
    it = hub(tables)
    tables.put("jobs", 1, [1, "a"])
    feed = it.feed(EVERYBODY)
    found = json.loads(gzip.decompress(await feed.snapshot(it.about)))
    assert found["jobs"]["rows"] == [[1, "a"]]
    tables.put("jobs", 2, [2, "b"])
    it.flush()
    again = json.loads(gzip.decompress(await feed.snapshot(it.about)))
    assert again["v"] == found["v"]  # within two seconds it is the same
    (missed,) = feed.missed(found["epoch"], found["v"])
    assert b'[[2,"b"]]' in missed
    assert feed.missed("another process", found["v"]) == [RESYNC]
    assert feed.missed(found["epoch"], 0) == [RESYNC]


async def test_who_reads_slowly_begins_anew_and_holds_up_nobody() -> None:
    tables = Tables()
    it = hub(tables)
    slow, quick = Socket(), Socket()
    behind = Viewer(slow, max_unsent=100)
    it.feed(EVERYBODY).viewers |= {behind, Viewer(quick)}
    for number in range(9):
        tables.put("jobs", number, [number, "x" * 50])
        it.flush()
        quick.unread = 0
    assert len(quick.sent) == 9
    assert behind.is_behind
    assert len(slow.sent) < 3
    seen = slow.events.count("delta")
    slow.unread = 0
    tables.put("jobs", 1, [1, "after a gap"])
    it.flush()
    assert slow.events[-1] == "resync"
    assert slow.events.count("delta") == seen
    slow.unread = 0
    tables.put("jobs", 1, [1, "new"])
    it.flush()
    assert slow.events[-1] == "delta"


async def test_who_left_is_noticed() -> None:
    tables = Tables()
    it = hub(tables)
    socket = Socket()
    viewer = Viewer(socket)
    it.feed(EVERYBODY).viewers.add(viewer)
    socket.closing = True
    tables.put("jobs", 1, [1])
    it.flush()
    assert viewer.gone.is_set()
    assert socket.sent == []


async def test_an_audience_is_not_sent_what_it_does_not_see() -> None:
    tables = Tables()
    it = hub(tables)
    socket = Socket()
    it.feed(Audience(slurm_user="alice")).viewers.add(Viewer(socket))
    tables.put("jobs", 1, [1], owner="bob")
    it.flush()
    assert socket.sent == []


async def test_loss_of_contact_is_told_at_once_and_the_end_closes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.web.hub.BEAT", 3600.0)
    tables, side = Tables(), dict(SIDE)
    it = Hub(
        tables, settle=lambda: None, sample=lambda: None, about=lambda: {"slurm": dict(side), "kubernetes": SIDE}
    )
    socket = Socket()
    viewer = Viewer(socket)
    it.feed(EVERYBODY).viewers.add(viewer)
    running = asyncio.ensure_future(it.run())

    async def beats(count: int) -> None:
        async with asyncio.timeout(60):
            while socket.events.count("beat") < count:  # noqa: ASYNC110 - the condition is the socket's
                await asyncio.sleep(0.01)

    await beats(1)
    side["ok"] = False
    await beats(2)
    assert b'"ok":false' in socket.sent[-1]
    it.drain()
    await running
    assert viewer.gone.is_set()
