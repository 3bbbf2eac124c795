"""Kubernetes quantities, exactly: `250m`, `1.5Gi`, `1e3`, `.5`.

A quantity is a whole number of billionths, because that is how fine the API server keeps it (it rounds up what is
finer). Python's integers make all arithmetic exact, so sums of requests never drift.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from isthmus.errors import Terminal

ONE: Final = 10**9
"""A quantity of one, in billionths: `parse("1") == ONE`."""


_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE]?)"
)
_DECIMAL: Mapping[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Mapping[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

_LARGEST_BINARY = ((1 << 63) - 1) * ONE
_TOO_LARGE = 10**21 * ONE
"""From here on the API server loses the suffix of round numbers: it makes `1000E` into `1`."""
_MAX_CHARS = 100
"""So many digits, zeros in front not counted, are read; the API server itself sets no limit."""
_MAX_TEXT_CHARS = 4000


@lru_cache(maxsize=8192)
def parse(text: str) -> int:
    """Read a quantity, in billionths."""
    found = _FORM.fullmatch(text) if len(text) <= _MAX_TEXT_CHARS else None
    whole, part = (found["whole"].lstrip("0"), found["part"] or "") if found else ("", "")
    if found is None or not (found["whole"] or part) or len(whole) + len(part) > _MAX_CHARS:
        raise Terminal(f"{text[:_MAX_CHARS]!r} is not a quantity", remedy="write it like 500m, 2 or 1.5Gi")
    suffix, number = found["suffix"], int(f"{whole or '0'}{part}")
    if suffix in _BINARY:
        size = min(_divide_up(number * ONE << _BINARY[suffix], 10 ** len(part)), _LARGEST_BINARY)
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        size = _scale(number, exponent - len(part) + 9)
    if size >= _TOO_LARGE:
        raise Terminal(f"{text!r} is too large for Kubernetes", remedy="stay below 1000E")
    return -size if found["sign"] == "-" else size


@lru_cache(maxsize=8192)
def whole(text: str) -> int:
    """Read a quantity in whole units, rounded up: bytes of memory, devices, pods."""
    return -(-parse(text) // ONE)


@lru_cache(maxsize=8192)
def milli(text: str) -> int:
    """Read a quantity in thousandths, rounded up: CPU."""
    return -(-parse(text) // (ONE // 1000))


def write(billionths: int) -> str:
    """Write a quantity with the largest decimal suffix that needs no fraction."""
    if abs(billionths) >= _TOO_LARGE:
        raise Terminal("a quantity of 1000E or more is too large for Kubernetes")
    if billionths == 0:
        return "0"
    exponent = -9
    while billionths % 1000 == 0:
        billionths //= 1000
        exponent += 3
    return f"{billionths}{_DECIMAL_SUFFIX[exponent]}"


def _scale(number: int, exponent: int) -> int:
    """Multiply by a power of ten, rounding up; whatever is certainly too large comes out just so."""
    if exponent < 0:
        return _divide_up(number, 10 ** min(-exponent, 2 * _MAX_CHARS)) if number else 0
    power: int = 10 ** min(exponent, 2 * _MAX_CHARS)
    return min(number, _TOO_LARGE) * power


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
