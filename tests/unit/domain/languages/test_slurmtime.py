import math

import pytest

from isthmus.domain.languages.slurmtime import TimeError, parse_duration, whole_minutes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 5400),
        ("1:30", 90),
        ("1:30:15", 5415),
        ("2-", 172_800),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-12:30:05", 217_805),
        ("UNLIMITED", math.inf),
        ("unlimited", math.inf),
        ("INFINITE", math.inf),
        ("-1", math.inf),
    ],
)
def test_reads_every_form(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "1:2:3:4", "-2", "1-2-3", "1.5", " 1", "1\n", "9" * 10, "\u0661", "1:", ":1"]
)
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(TimeError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (59, "00:00:59"), (3600, "01:00:00"), (90_061, "1-01:01:01"), (math.inf, "UNLIMITED")],
)
def test_reads_what_slurm_prints(seconds: float, text: str) -> None:
    assert parse_duration(text) == seconds


def test_time_limits_round_up_to_minutes() -> None:
    assert whole_minutes(0) == 0
    assert whole_minutes(1) == 1
    assert whole_minutes(60) == 1
    assert whole_minutes(math.inf) == math.inf
