"""Durations as Go writes them."""

import pytest

from isthmus.domain.languages.gotime import GoTimeError, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0", 0),
        ("0s", 0),
        ("1m1ms", 60.001),
        ("3µs", 3e-6),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "90", "1d", "-5m", "5 m", "m", "1.m", "1h ", "٣s", "9" * 40 + "s"])
def test_others_are_not(text: str) -> None:
    with pytest.raises(GoTimeError, match="not a valid duration"):
        parse_duration(text)
