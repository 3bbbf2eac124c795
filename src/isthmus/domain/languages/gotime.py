"""Go's way of writing durations, which is Kubernetes' too: `90s`, `1h30m`, `250ms`."""

import re
from typing import Final

from isthmus.errors import Terminal

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class GoTimeError(Terminal):
    """The text is not a Go duration."""


def parse_duration(text: str) -> float:
    """Read a duration and return seconds; `0` may stand without a unit. Negative ones make no sense to us."""
    if text == "0":
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise GoTimeError(f"{text[:40]!r} is not a valid duration", remedy="write 90s, 5m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
