from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.exporter.folding import OTHER, Limits, fold, largest


def test_the_largest_users_stay_and_the_others_are_added_up() -> None:
    rows = [((f"u{number}", "running"), float(number)) for number in range(10)]
    found = fold(("user", "state"), rows, Limits(top=3))
    assert dict(found.rows) == {
        ("u7", "running"): 7,
        ("u8", "running"): 8,
        ("u9", "running"): 9,
        (OTHER, "running"): 21,
    }
    assert found.folded == 7


def test_a_family_within_its_limits_is_left_alone() -> None:
    rows = [((f"p{number}",), 1.0) for number in range(100)]
    assert fold(("partition",), rows, Limits(top=3)) == (rows, 0)


def test_a_family_beyond_its_limit_keeps_states_apart() -> None:
    rows = [((f"p{number}", state), float(number)) for number in range(20) for state in ("idle", "down")]
    found = fold(("partition", "state"), rows, Limits(series=4))
    assert len(found.rows) == 6
    assert {names for names, _ in found.rows if names[0] == OTHER} == {(OTHER, "idle"), (OTHER, "down")}


def test_what_cannot_be_added_up_is_left_out() -> None:
    rows = [((f"a{number}",), 0.5) for number in range(5)]
    found = largest(("account",), rows, Limits(top=2), by={("a1",): 9.0, ("a4",): 8.0})
    assert [names for names, _ in found.rows] == [("a1",), ("a4",)]
    assert found.folded == 3


_NAMES = st.text("abcdefgh", min_size=1, max_size=2)
_ROWS = st.dictionaries(
    st.tuples(_NAMES, _NAMES, st.sampled_from(["idle", "down"])), st.integers(0, 9), max_size=60
)


@given(_ROWS, st.integers(1, 20), st.integers(1, 5))
def test_folding_changes_no_sum_and_keeps_within_limits(
    rows: dict[tuple[str, str, str], int], series: int, top: int
) -> None:
    found = fold(("partition", "user", "state"), rows.items(), Limits(series=series, top=top))
    assert sum(value for _, value in found.rows) == sum(rows.values())
    assert len({names for names, _ in found.rows}) == len(found.rows) <= series + 2
    assert len({user for (_, user, _), _ in found.rows} - {OTHER}) <= top
    for state in ("idle", "down"):
        assert sum(value for names, value in found.rows if names[2] == state) == sum(
            value for names, value in rows.items() if names[2] == state
        )
