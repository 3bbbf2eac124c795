"""Slurm's way of writing durations: `90`, `1:30:00`, `2-12`, `UNLIMITED`.

Durations are seconds here and "unlimited" is infinity, so that they compare and add without special cases.
"""

import math
import re

from isthmus.errors import Terminal

UNLIMITED = math.inf

_UNLIMITED_WORDS = frozenset({"unlimited", "infinite", "-1"})
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# At most nine digits each: more is not a valid duration, and Slurm's own 32 bits would overflow.
_WITH_DAYS = re.compile(r"(\d{1,9})-(\d{1,9})?(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_WITHOUT_DAYS = re.compile(r"(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)


class TimeError(Terminal):
    """The text is not a valid Slurm duration."""


def parse_duration(text: str) -> float:
    """Read a duration in any of Slurm's forms and return seconds.

    `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-`, `days-hours`, `days-hours:minutes`,
    `days-hours:minutes:seconds`, `UNLIMITED`, `INFINITE` or `-1`.
    """
    if text.lower() in _UNLIMITED_WORDS:
        return UNLIMITED
    if match := _WITH_DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return days * _DAY + hours * _HOUR + minutes * _MINUTE + seconds
    if match := _WITHOUT_DAYS.fullmatch(text):
        first, second, third = match.groups()
        if third is not None:
            return int(first) * _HOUR + int(second) * _MINUTE + int(third)
        return int(first) * _MINUTE + int(second or 0)
    raise TimeError(
        f"{text[:40]!r} is not a valid Slurm duration",
        remedy="write minutes, hours:minutes:seconds, days-hours or UNLIMITED",
    )


def whole_minutes(seconds: float) -> float:
    """Round up to the minutes in which Slurm counts time limits; unlimited stays unlimited."""
    return seconds if seconds == UNLIMITED else math.ceil(seconds / _MINUTE)
