"""A second is a second here: the clock is the test's."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.exporter.rhythm import LEAD, LEAST, MOST, Rhythm

FRESH = LEAD + 0.2
TINY = 1e-6


def play(scrapes: Sequence[tuple[float, str]], *, until: float) -> list[float]:
    """Look as the exporter does, woken by scrapes that bring the next look forward; return when."""
    rhythm, looks, left = Rhythm(0.0), [0.0], sorted(scrapes, reverse=True)
    while (due := rhythm.next_look(looks[-1])) < until:
        if left and left[-1][0] <= due:
            now, who = left.pop()
            rhythm.scraped(who, now)
            due = rhythm.next_look(looks[-1])
            if due > now:
                continue
            due = now
        looks.append(due)
    return looks


def ages(scrapes: Sequence[float], looks: Sequence[float]) -> list[float]:
    """How old what is shown is at each scrape."""
    return [at - max(look for look in looks if look <= at) for at in scrapes]


def test_a_regular_scrape_is_expected_and_costs_one_look() -> None:
    scrapes = [10.0 + 30 * number for number in range(20)]
    looks = play([(at, "prometheus") for at in scrapes], until=600.0)
    assert max(ages(scrapes[2:], looks)) <= FRESH + TINY
    later = [it for it in looks if it > scrapes[1]]
    assert len(later) <= (600 - scrapes[1]) / 30 + 1


def test_who_scrapes_once_a_minute_sees_fresh_values_too() -> None:
    scrapes = [5.0 + 60 * number for number in range(10)]
    looks = play([(at, "prometheus") for at in scrapes], until=600.0)
    assert max(ages(scrapes[2:], looks)) <= FRESH + TINY
    assert max(b - a for a, b in pairwise(looks)) <= MOST + TINY


def test_who_scrapes_all_the_time_has_a_look_each_second() -> None:
    scrapes = [100.0 + number / 10 for number in range(200)]
    looks = play([(at, "somebody") for at in scrapes], until=120.0)
    assert max(ages(scrapes[20:], looks)) <= LEAST + 0.1
    assert min(b - a for a, b in pairwise(looks)) >= LEAST - TINY


def test_two_that_take_turns_are_both_served() -> None:
    first, second = ([start + 30 * number for number in range(10)] for start in (7.0, 19.0))
    looks = play([*((it, "a") for it in first), *((it, "b") for it in second)], until=300.0)
    assert max(ages([*first[2:], *second[2:]], looks)) <= FRESH + TINY


def test_a_scrape_that_is_missing_changes_nothing_and_one_that_went_is_forgotten() -> None:
    scrapes = [10.0 + 30 * number for number in range(20) if number not in {8, 12}]
    looks = play([(at, "prometheus") for at in scrapes], until=2000.0)
    assert max(ages(scrapes[2:], looks)) <= FRESH + TINY
    late = [it for it in looks if it > 1000]
    assert {round(b - a) for a, b in pairwise(late)} == {MOST}


def test_at_the_start_it_is_looked_often_until_somebody_has_a_rhythm() -> None:
    looks = play([], until=200.0)
    assert len([it for it in looks if it <= 150]) == 151
    assert len([it for it in looks if it > 150]) <= 1 + 50 / MOST


@given(st.lists(st.tuples(st.floats(0, 1000), st.sampled_from("abcdefghijklmnopqrstuvwxyz")), max_size=60))
def test_whatever_comes_looks_are_neither_too_many_nor_too_few(scrapes: list[tuple[float, str]]) -> None:
    looks = play(scrapes, until=1000.0)
    between = [b - a for a, b in pairwise(looks)]
    assert all(LEAST - TINY <= it <= MOST + TINY for it in between), between


@given(st.floats(2.0, 120.0), st.floats(0.0, 50.0))
def test_a_rhythm_of_any_kind_is_learnt(gap: float, start: float) -> None:
    scrapes = [start + gap * number for number in range(12)]
    looks = play([(at, "prometheus") for at in scrapes], until=scrapes[-1] + 1)
    assert max(ages(scrapes[2:], looks)) <= FRESH + TINY


def test_looks_come_earlier_where_there_is_much_to_read_and_later_again() -> None:
    rhythm = Rhythm(0.0)

    def lead_at(now: float, *, too_early: bool) -> float:
        rhythm.scraped("prometheus", now, too_early=too_early)
        return now + 30.0 - rhythm.next_look(now)

    leads = [lead_at(1000.0 + 30 * number, too_early=number < 4) for number in range(80)]
    assert leads[4] > 3 * LEAD
    assert leads[-1] == pytest.approx(LEAD)
    late = [lead_at(4000.0 + 30 * number, too_early=True) for number in range(20)]
    assert max(late[2:]) <= 10.0 + TINY
