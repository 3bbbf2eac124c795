"""Conditions of a status."""

from datetime import UTC, datetime, timedelta

from isthmus.domain.kube.conditions import holds, merged, no, summary, yes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    before = merged((), [yes("Ready", "A", "one")], generation=1, now=NOON)
    (now,) = merged(before, [yes("Ready", "B", "two")], generation=2, now=LATER)
    assert now.last_transition_time == NOON
    assert (now.reason, now.message, now.observed_generation) == ("B", "two", 2)


def test_a_condition_that_turns_gets_a_new_time() -> None:
    before = merged((), [yes("Ready", "A")], generation=1, now=NOON)
    (now,) = merged(before, [no("Ready", "B")], generation=1, now=LATER)
    assert now.last_transition_time == LATER


def test_what_is_no_longer_told_goes_and_the_order_is_always_the_same() -> None:
    before = merged((), [yes("Old", "A")], generation=1, now=NOON)
    now = merged(before, [yes("Ready", "A"), no("Degraded", "A")], generation=1, now=NOON)
    assert [it.type for it in now] == ["Degraded", "Ready"]


def test_a_summary_tells_well_from_waiting_and_wrong() -> None:
    def told(**words: str) -> dict[str, str]:
        return {it.type: it.status for it in summary(settled="3 of 3 are ready", **words)}

    assert told() == {"Ready": "True", "Progressing": "False", "Degraded": "False"}
    assert told(missing="2 of 3 are ready") == {"Ready": "False", "Progressing": "True", "Degraded": "False"}
    assert told(wrong="no such image") == {"Ready": "False", "Progressing": "False", "Degraded": "True"}
    assert holds(summary(settled="yes"), "Ready")
    assert not holds((), "Ready")
