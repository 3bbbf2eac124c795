"""Watch frames from outside: whatever the bytes and however they are cut, out come events or a clear error."""

import json
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.errors import IsthmusError
from isthmus.kube.errors import Expired, Garbled
from isthmus.kube.watch import Batch, Frames, Lines
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("abcdefghij-.", min_size=1, max_size=10)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    type_ = draw(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]))
    meta: dict[str, Any] = {"resourceVersion": str(draw(st.integers(1, 10**6)))}
    if type_ == "BOOKMARK":
        return {"type": type_, "object": {"kind": "Pod", "metadata": meta, "spec": {"containers": None}}}
    meta |= {"name": draw(names), "namespace": draw(names), "annotations": draw(st.dictionaries(texts, texts))}
    spec = {"nodeName": draw(texts), "containers": [{"name": draw(texts)}]}
    return {"type": type_, "object": {"kind": "Pod", "metadata": meta, "spec": spec}}


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut bytes into pieces, as a network does."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def read(pieces: list[bytes]) -> list[Batch[Pod]]:
    lines = Lines()
    frames = Frames(PODS, version="1")
    return [frames.batch(complete) for piece in pieces if (complete := lines.feed(piece))]


@given(st.data(), st.lists(events(), max_size=6), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_events_survive_any_cutting(
    data: st.DataObject, sent: list[dict[str, Any]], style: tuple[str, str]
) -> None:
    """Also in another style of JSON than the API server's, which takes the slower way of reading."""
    stream = b"".join(json.dumps(event, ensure_ascii=False, separators=style).encode() + b"\n" for event in sent)
    batches = read(data.draw(cuts(stream)))
    changes = [change for batch in batches for change in batch.changes]
    expected = [event for event in sent if event["type"] != "BOOKMARK"]
    assert len(changes) == len(expected)
    for change, event in zip(changes, expected, strict=True):
        meta = event["object"]["metadata"]
        if event["type"] == "DELETED":
            assert change == Key(meta["namespace"], meta["name"])
        else:
            assert isinstance(change, Pod)
            assert change.metadata.key == Key(meta["namespace"], meta["name"])
            assert change.metadata.annotations == meta["annotations"]
            assert change.spec.node_name == event["object"]["spec"]["nodeName"]
    if sent:
        assert batches[-1].version == sent[-1]["object"]["metadata"]["resourceVersion"]


@given(st.data(), st.binary(max_size=200))
@example(None, b'{"type":"ADDED","object":}\n')
@example(None, b'{"type":"MODIFIED","object":{"metadata":{"name":"\xff"}}}\n')
@example(None, b'{"type":"ADDED","object":{"metadata":{"name":"a"}}} \n')
@example(None, b"[[[[[" * 5000 + b"\n")
@example(None, b'{"type":"ADDED","object":' + b'{"a":' * 5000 + b"\n")
@example(None, b'{"type":"ERROR","object":7}\n')
@example(None, b'{"type":"SURPRISE","object":{}}\n')
@example(None, b"\n\n\n")
def test_any_bytes_are_events_or_a_clear_error(data: st.DataObject | None, noise: bytes) -> None:
    pieces = [noise] if data is None else data.draw(cuts(noise))
    with suppress(IsthmusError):
        read(pieces)


@given(st.data(), events())
def test_damaged_events_are_events_or_a_clear_error(data: st.DataObject, event: dict[str, Any]) -> None:
    line = bytearray(msgspec.json.encode(event) + b"\n")
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    with suppress(IsthmusError):
        read([bytes(line)])


def test_an_error_event_is_raised() -> None:
    gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    with pytest.raises(Expired, match="too old"):
        read([gone])


def test_an_object_that_does_not_fit_is_named_and_the_rest_is_read() -> None:
    misfit = b'{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"8"},"spec":{"nodeName":7}}}\n'
    fit = b'{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"9"}}}\n'
    (batch,) = read([misfit + fit])
    assert [key for key, _ in batch.unreadable] == [Key("", "a")]
    assert [pod.metadata.name for pod in batch.changes if isinstance(pod, Pod)] == ["b"]
    assert batch.version == "9"


def test_an_object_is_deleted_even_if_its_last_state_cannot_be_read() -> None:
    misfit = b'{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"8"},"spec":{"nodeName":7}}}\n'
    (batch,) = read([misfit])
    assert batch.changes == [Key("", "a")]


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    lines = Lines(limit=1 << 20)
    piece = b"x" * 10_000

    def feed_for_ever() -> None:
        while True:
            lines.feed(piece)

    tracemalloc.start()
    with pytest.raises(Garbled):
        feed_for_ever()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
