"""A snapshot and its changes make the same picture for each audience, and show nothing of others."""

import json

from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.web.audience import EVERYBODY, Audience
from isthmus.domain.web.frames import Ring, frame
from isthmus.domain.web.tables import Tables, delta, snapshot

OWNERS = ("alice", "bob")
AUDIENCES = (
    EVERYBODY,
    Audience(slurm_user="alice", namespaces=frozenset({"bob"})),
    Audience(nodes=True, all_pods=True),
    Audience(),
)
writes = st.tuples(
    st.sampled_from(["jobs", "pods", "nodes"]),
    st.integers(0, 4),
    st.none() | st.tuples(st.text(max_size=5), st.sampled_from(OWNERS)),
)


def _rows(text: bytes) -> dict[str, dict[int, str]]:
    found = json.loads(text)
    return {table: {row[0]: row[1] for row in found[table]["rows"]} for table in ("jobs", "pods", "nodes")}


@given(st.lists(st.lists(writes, max_size=6), max_size=6), st.sampled_from(AUDIENCES))
def test_a_snapshot_and_its_changes_are_what_a_later_snapshot_shows(
    rounds: list[list[tuple[str, int, tuple[str, str] | None]]], audience: Audience
) -> None:
    tables = Tables()
    seen = _rows(snapshot(tables, audience, head=b'"v":1'))
    for writing in rounds:
        for table, key, value in writing:
            if value is None:
                tables.drop(table, key)  # type: ignore[arg-type]  # one of the three
            else:
                tables.put(table, key, [key, value[0]], owner=value[1])  # type: ignore[arg-type]  # likewise
        text = delta(tables.take(), audience, head=b'"v":2')
        for table, change in json.loads(text or b"{}").items():
            if table != "v":
                seen[table].update({row[0]: row[1] for row in change["put"]})
                for key in change["gone"]:
                    seen[table].pop(key, None)
        assert seen == _rows(snapshot(tables, audience, head=b'"v":2'))


def test_what_becomes_somebody_elses_leaves_the_picture() -> None:
    tables, alice = Tables(), Audience(slurm_user="alice")
    tables.put("jobs", 1, [1, "mine"], owner="alice")
    tables.take()
    tables.put("jobs", 1, [1, "secret"], owner="bob")
    text = delta(tables.take(), alice, head=b'"v":2')
    assert text is not None
    assert json.loads(text)["jobs"] == {"put": [], "gone": [1]}
    tables.put("jobs", 1, [1, "more secret"], owner="bob")
    assert delta(tables.take(), alice, head=b'"v":3') is None


def test_what_changes_and_changes_back_is_no_change() -> None:
    tables = Tables()
    tables.put("nodes", "n1", ["n1", "idle"])
    tables.take()
    tables.put("nodes", "n1", ["n1", "down"])
    tables.put("nodes", "n1", ["n1", "idle"])
    assert tables.take() == []
    tables.drop("nodes", "n1")
    tables.put("nodes", "n1", ["n1", "idle"])
    assert tables.take() == []


def test_nobody_without_rights_sees_jobs_without_a_user() -> None:
    assert not Audience().sees("jobs", "")
    assert not Audience().sees("pods", "")


def test_a_name_with_line_breaks_does_not_end_an_event() -> None:
    tables = Tables()
    tables.put("jobs", 1, [1, "a\n\nevent: resync\ndata: {}\n\n"])
    text = delta(tables.take(), EVERYBODY, head=b'"v":2')
    assert text is not None
    assert frame("delta", text).count(b"\n") == 3


class TestRing:
    def test_it_gives_what_came_after_a_version(self) -> None:
        ring = Ring()
        for version in range(2, 6):
            ring.add(version, b"%d" % version)
        assert ring.since(3, latest=5) == [b"4", b"5"]
        assert ring.since(5, latest=5) == []
        assert ring.since(1, latest=5) == [b"2", b"3", b"4", b"5"]

    def test_a_viewer_who_was_away_for_too_long_begins_anew(self) -> None:
        ring = Ring(max_frames=2)
        for version in range(2, 6):
            ring.add(version, b"x")
        assert ring.since(3, latest=5) == [b"x", b"x"]
        assert ring.since(2, latest=5) is None

    def test_its_size_is_bounded(self) -> None:
        ring = Ring(max_bytes=10)
        ring.add(2, b"x" * 6)
        ring.add(3, b"x" * 6)
        assert ring.since(1, latest=3) is None
        assert ring.since(2, latest=3) == [b"x" * 6]

    def test_a_version_from_the_future_is_of_another_server(self) -> None:
        ring = Ring()
        ring.add(2, b"x")
        assert ring.since(9, latest=2) is None
