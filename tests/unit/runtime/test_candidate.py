"""Single rules of the election, where the simulation in tests/properties seldom goes."""

import pytest

from isthmus.errors import Terminal
from isthmus.runtime.candidate import Candidate, Claim, Read, Record, Rest, Terms

TERMS = Terms()


def lease(holder: str, version: str, *, duration: float = 15, transitions: int = 0) -> Record:
    return Record(holder, duration, transitions, version)


def leader() -> Candidate:
    """Lead since second 0."""
    candidate = Candidate("me", TERMS)
    candidate.saw(None, 0.0)
    candidate.stored(lease("me", "1"), started=0.0, now=0.1)
    return candidate


def test_a_newcomer_reads_and_creates_what_is_not_there() -> None:
    candidate = Candidate("me", TERMS)
    assert candidate.plan(0.0) == Read()
    candidate.saw(None, 0.1)
    assert candidate.plan(0.1) == Claim(version=None, holder="me", transitions=0, taken_over=True)
    candidate.stored(lease("me", "1"), started=0.1, now=0.5)
    assert candidate.leads_until == 0.1 + TERMS.deadline
    assert candidate.plan(0.5) == Rest(0.1 + TERMS.interval)
    assert candidate.plan(3.0) == Claim(version="1", holder="me", transitions=0, taken_over=False)


def test_a_follower_waits_for_the_longer_of_the_two_durations() -> None:
    candidate = Candidate("me", TERMS)
    candidate.saw(lease("other", "7", duration=40, transitions=3), 0.0)
    assert candidate.plan(16.0) == Read()
    candidate.saw(lease("other", "7", duration=40, transitions=3), 40.0)
    assert candidate.plan(40.0) == Claim(version="7", holder="me", transitions=4, taken_over=True)


def test_a_lease_that_was_given_back_is_claimed_at_once() -> None:
    candidate = Candidate("me", TERMS)
    candidate.saw(lease("", "7"), 0.0)
    assert candidate.plan(0.0) == Claim(version="7", holder="me", transitions=1, taken_over=True)


def test_a_leader_stops_at_once_when_it_sees_that_another_holds_the_lease() -> None:
    candidate = leader()
    candidate.refused(2.0)
    assert candidate.plan(2.0) == Read()
    assert candidate.leads(2.0), "a refusal alone may be due to somebody who added a label"
    candidate.saw(lease("thief", "2"), 2.1)
    assert not candidate.leads(2.1)
    assert candidate.resign(2.1) is None


def test_whoever_holds_a_lease_in_waiting_does_not_give_it_back() -> None:
    candidate = Candidate("me", TERMS)
    candidate.saw(lease("other", "1"), 0.0)
    candidate.saw(None, 1.0)
    candidate.stored(lease("me", "2"), started=1.0, now=1.1)
    assert not candidate.leads(1.1)
    assert candidate.resign(1.2) is None


def test_a_leader_that_resigns_frees_the_version_that_it_knows() -> None:
    candidate = leader()
    assert candidate.resign(1.0) == Claim(version="1", holder="", transitions=0, taken_over=False)
    assert not candidate.leads(1.0)


@pytest.mark.parametrize("terms", [(15, 15.0, 2.0), (15, 10.0, 10.0), (0, 0.0, 0.0), (10, 15.0, 2.0)], ids=str)
def test_terms_that_make_no_sense_are_refused(terms: tuple[int, float, float]) -> None:
    with pytest.raises(Terminal, match="interval < deadline < duration"):
        Terms(*terms)
