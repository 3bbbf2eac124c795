"""Kubernetes quantities, exactly: `250m`, `1.5Gi`, `1e3`, `.5`.

A quantity is a whole number of billionths, because that is how fine the API server keeps it (it rounds up what is
finer). Python's integers make all arithmetic exact, so sums of requests never drift. `canonical` writes a quantity
as the API server does, so that what we send is what it keeps and comparing text with text is right.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from isthmus.errors import Terminal

ONE: Final = 10**9
"""A quantity of one, in billionths: `parse("1") == ONE`."""


class Style(Enum):
    """How a quantity was written, which is how it is written again."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE]?)"
)
_DECIMAL: Mapping[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Mapping[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}

_LARGEST_BINARY = ((1 << 63) - 1) * ONE
_TOO_LARGE = 10**21 * ONE
"""From here on the API server loses the suffix of round numbers: it makes `1000E` into `1`."""
_MAX_CHARS = 100
"""So many digits, zeros in front not counted, are read; the API server itself sets no limit."""
_LONGEST_TEXT = 4000
_FINEST = -9

_DECIMAL_DIGITS = 18
_BINARY_DIGITS = 14
"""Up to so many digits the API server reads a number by a short cut, which decides whether it keeps its text."""


@lru_cache(maxsize=8192)
def parse(text: str) -> int:
    """Read a quantity, in billionths."""
    return _Read(text).billionths


@lru_cache(maxsize=8192)
def whole(text: str) -> int:
    """Read a quantity in whole units, rounded up: bytes of memory, devices, pods."""
    return -(-parse(text) // ONE)


@lru_cache(maxsize=8192)
def milli(text: str) -> int:
    """Read a quantity in thousandths, rounded up: CPU."""
    return -(-parse(text) // (ONE // 1000))


def canonical(text: str) -> str:
    """Write a quantity as the API server would return it."""
    read = _Read(text)
    return text if read.kept else write(read.billionths, read.style)


def write(billionths: int, style: Style = Style.DECIMAL) -> str:
    """Write a quantity with the largest suffix that needs no fraction.

    A binary quantity that is less than 1 Ki or not whole is written in decimal, as the API server does.
    """
    if abs(billionths) >= _TOO_LARGE:
        raise Terminal("a quantity of 1000E or more is too large for Kubernetes")
    if billionths == 0:
        return "0"
    if style is Style.BINARY and abs(billionths) >= 1024 * ONE and billionths % ONE == 0:
        number, exponent = _factor(billionths // ONE, 1024)
        return f"{number}{_BINARY_SUFFIX.get(10 * exponent, '')}"
    number, exponent = _factor(billionths, 1000)
    exponent = 3 * exponent - 9
    if style is Style.EXPONENT:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"


def _factor(number: int, base: int) -> tuple[int, int]:
    times = 0
    while number % base == 0:
        number //= base
        times += 1
    return number, times


class _Read:
    """A quantity as read: its value, its style, and whether the API server keeps its text as it is."""

    __slots__ = ("billionths", "kept", "style")

    def __init__(self, text: str) -> None:
        found = _FORM.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
        whole, part = (found["whole"].lstrip("0"), found["part"] or "") if found else ("", "")
        if found is None or not (found["whole"] or part) or len(whole) + len(part) > _MAX_CHARS:
            raise Terminal(f"{text[:_MAX_CHARS]!r} is not a quantity", remedy="write it like 500m, 2 or 1.5Gi")
        suffix, digits = found["suffix"], f"{whole or '0'}{part}"
        if suffix in _BINARY:
            self.style = Style.BINARY
            exponent = _BINARY[suffix]
            size = min(_divide_up(int(digits) * ONE << exponent, 10 ** len(part)), _LARGEST_BINARY)
            plain = not part and len(digits) + exponent * 3 // 10 <= _BINARY_DIGITS and int(digits) % 8 != 0
        else:
            self.style = Style.DECIMAL if suffix in _DECIMAL else Style.EXPONENT
            exponent = (_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])) - len(part)
            size = _scale(int(digits), exponent + 9)
            plain = len(digits) <= _DECIMAL_DIGITS and exponent >= _FINEST and exponent % 3 == 0
        # The API server takes a text of this form for canonical and leaves it alone, "+1" and "007" included.
        self.kept = plain and not digits.startswith("0") and not digits.endswith("000")
        if size >= _TOO_LARGE:
            raise Terminal(f"{text!r} is too large for Kubernetes", remedy="stay below 1000E")
        self.billionths = -size if found["sign"] == "-" else size


def _scale(number: int, exponent: int) -> int:
    """Multiply by a power of ten, rounding up; whatever is certainly too large comes out just so."""
    if exponent < 0:
        return _divide_up(number, 10 ** min(-exponent, 2 * _MAX_CHARS)) if number else 0
    power: int = 10 ** min(exponent, 2 * _MAX_CHARS)
    return min(number, _TOO_LARGE) * power


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
