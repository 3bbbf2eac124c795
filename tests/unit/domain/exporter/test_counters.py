from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.exporter.counters import Counters


def _counters(limit: int = 10) -> Counters[str]:
    return Counters(limit=limit, other="other")


def test_a_counter_begins_at_zero_and_adds_what_happens() -> None:
    counters = _counters()
    counters.take({"a": 100})
    assert counters.totals == {"a": 0}
    counters.take({"a": 130, "b": 5})
    assert counters.totals == {"a": 30, "b": 5}


def test_after_midnight_everything_begins_at_zero_even_what_has_outgrown_its_old_value() -> None:
    counters = _counters()
    counters.take({"a": 100, "b": 2})
    counters.take({"a": 7, "b": 3})
    assert counters.totals == {"a": 7, "b": 3}


def test_a_number_that_is_missing_began_anew() -> None:
    counters = _counters()
    counters.take({"a": 4, "b": 4})
    counters.take({"b": 6})
    assert counters.totals == {"a": 0, "b": 6}


def test_what_comes_after_the_limit_is_added_to_the_others_for_good() -> None:
    counters = _counters(limit=2)
    counters.take({"a": 0, "b": 0})
    counters.take({"a": 1, "b": 1, "c": 5, "d": 7})
    counters.take({"a": 1, "b": 1, "c": 6, "d": 7})
    assert counters.totals == {"a": 1, "b": 1, "other": 13}
    assert counters.folded == {"c", "d"}


_STEPS = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 50), max_size=3)), max_size=20
)


@given(_STEPS)
def test_counters_never_fall_and_never_count_twice(steps: list[tuple[bool, dict[str, int]]]) -> None:
    """Play a slurmctld that counts, forgets now and then, and is read after each step."""
    counters, there, happened = _counters(), dict.fromkeys("abc", 0), 0
    counters.take(there)
    for forgets, events in steps:
        before = dict(counters.totals)
        if forgets:
            there = dict.fromkeys("abc", 0)
        for key, count in events.items():
            there[key] += count
            happened += count
        counters.take(there)
        assert all(counters.totals[key] >= value for key, value in before.items())
        assert sum(counters.totals.values()) <= happened
        if not any(forgot for forgot, _ in steps):
            assert sum(counters.totals.values()) == happened
