"""Slurm's way of writing many host names in one line: `rack[0-3]n[01-16],login`.

Expanding and folding agree with `scontrol show hostnames` and `scontrol show hostlist`, down to the order of hosts
and the zero padding. Where Slurm is lenient towards nonsense (`n[5-]`, `n[ 7]`, a stray bracket), we are not: a
host list that means something else than its author thought costs a user a node. Work and memory are bounded
before anything is expanded, so `n[0-999999999]` is an error and not an outage.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, product
from math import prod
from typing import NamedTuple

from isthmus.errors import Terminal

LIMIT = 1 << 18
"""Hosts in one list, unless the caller says otherwise: four times as many as a Slurm cluster can have nodes."""

_MAX_DIGITS = 18
"""Slurm keeps the number of a host in 64 bits; what is longer is part of the name to us, and broken in Slurm."""

_MAX_QUOTED = 60
_DIGITS = "0123456789"
_SEPARATORS = re.compile(r"[\t\n ,]+")
_TOKEN = re.compile(r"(?:[^\t\n ,\[\]]|\[[^\[\]]*\])+")
_BRACKET = ("[", "]")
_INSIDE_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(rf"([0-9]{{1,{_MAX_DIGITS}}})(?:-([0-9]{{1,{_MAX_DIGITS}}}))?", re.ASCII)


class HostListError(Terminal):
    """The text is not a host list, or one that is too long."""


class _Range(NamedTuple):
    """The numbers `low` to `high`, each written with at least `width` digits."""

    low: int
    high: int
    width: int

    @property
    def size(self) -> int:
        return self.high - self.low + 1


def expand(hosts: str, *, limit: int = LIMIT) -> list[str]:
    """Every host of a host list, in Slurm's order, repeated as often as the list repeats it."""
    names: list[str] = []
    for token in _tokens(hosts):
        if "[" not in token:
            names.append(token)
        else:
            names.extend(_expand_token(token, limit=limit - len(names)))
        if len(names) > limit:
            raise _too_many(limit)
    return names


def fold(names: Iterable[str]) -> str:
    """Write host names as one host list, in the order given; repeated names stay repeated.

    Only neighbours are joined, as in Slurm, so sort by `natural_key` first where order carries no meaning.
    """
    folded: list[str] = []
    prefix: str | None = None  # of the open bracket; None while the last host had no number
    ranges: list[str] = []
    # The run under way is first … last, written with `width` digits; the name `expected` would go on with it.
    first, last, width, template = "", 0, 0, ""
    expected: str | None = None
    for name in names:
        if name == expected:
            last += 1
            expected = template % (last + 1)
            continue
        if prefix is not None:
            ranges.append(_run(first, last, width=width))
        stem = name.rstrip(_DIGITS)
        digits = name[len(stem) :]
        if not digits or len(digits) > _MAX_DIGITS:
            _close(folded, prefix, ranges)
            folded.append(name)
            prefix, expected = None, None
            continue
        if stem != prefix:
            _close(folded, prefix, ranges)
            prefix = stem
        first, last = digits, int(digits)
        width = len(digits) if digits[0] == "0" else 1
        template = f"{stem.replace('%', '%%')}%0{width}d"
        expected = template % (last + 1)
    if prefix is not None:
        ranges.append(_run(first, last, width=width))
    _close(folded, prefix, ranges)
    return ",".join(folded)


def same_hosts(one: str, other: str) -> bool:
    """Whether two host lists name the same hosts, whatever the order and however often."""
    return one == other or set(expand(one)) == set(expand(other))


def natural_key(name: str) -> tuple[str, int, int]:
    """Sort hosts the way people count: n2 before n10, and n099 before n100."""
    stem = name.rstrip(_DIGITS)
    digits = name[len(stem) :]
    if not digits or len(digits) > _MAX_DIGITS:
        return (name, -1, 0)
    return (stem, int(digits), len(digits))


def _tokens(hosts: str) -> Iterator[str]:
    if "{" in hosts:
        raise HostListError(
            f"the host list {_quoted(hosts)} contains a function such as block{{…}} or switch{{…}}",
            remedy="only slurmctld can expand it: list the hosts",
        )
    position, end = 0, len(hosts)
    while position < end:
        if separator := _SEPARATORS.match(hosts, position):
            position = separator.end()
            continue
        token = _TOKEN.match(hosts, position)
        position = token.end() if token else position
        if token is None or hosts[position : position + 1] in _BRACKET:
            raise HostListError(
                f"the host list {_quoted(hosts)} has an unmatched bracket at character {position + 1}",
                remedy="write ranges as n[1-4,7]",
            )
        yield token.group()


def _expand_token(token: str, *, limit: int) -> Iterator[str]:
    # Odd entries are the insides of brackets, even ones the text around them.
    parts = _INSIDE_BRACKETS.split(token)
    texts, groups = parts[::2], [_ranges(inside, token=token) for inside in parts[1::2]]
    if prod(sum(span.size for span in group) for group in groups) > limit:
        raise _too_many(limit, token)
    *outer, inner = groups
    suffix = texts.pop()
    # The last bracket counts fastest; of those before it, Slurm lets the first count fastest.
    choices = product(*(list(_numbered("", group, "")) for group in reversed(outer)))
    prefixes = (
        "".join(chain.from_iterable(zip(texts, (*reversed(chosen), ""), strict=True))) for chosen in choices
    )
    return chain.from_iterable(_numbered(prefix, inner, suffix) for prefix in prefixes)


def _numbered(prefix: str, ranges: Iterable[_Range], suffix: str) -> Iterator[str]:
    # `%` mapped over a range formats at the speed of C, which is what makes 100,000 hosts cheap.
    before, after = prefix.replace("%", "%%"), suffix.replace("%", "%%")
    return chain.from_iterable(
        map(f"{before}%0{span.width}d{after}".__mod__, range(span.low, span.high + 1)) for span in ranges
    )


def _ranges(inside: str, *, token: str) -> list[_Range]:
    ranges = []
    for text in inside.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise HostListError(
                f"[{text}] in the host list {_quoted(token)} is not a valid range",
                remedy="write ranges as n[1-4,7]",
            )
        low = match[1]
        span = _Range(int(low), int(match[2] or low), len(low))
        if span.low > span.high:
            raise HostListError(f"[{text}] in the host list {_quoted(token)} is a reversed range")
        ranges.append(span)
    return ranges


def _run(first: str, last: int, *, width: int) -> str:
    low = int(first)
    return first if low == last else f"{first}-{last:0{width}d}"


def _close(folded: list[str], prefix: str | None, ranges: list[str]) -> None:
    if prefix is None:
        return
    inside = ",".join(ranges)
    folded.append(f"{prefix}[{inside}]" if len(ranges) > 1 or "-" in inside else f"{prefix}{inside}")
    ranges.clear()


def _too_many(limit: int, token: str = "") -> HostListError:
    where = f" ({_quoted(token)})" if token else ""
    return HostListError(f"the host list{where} names more than {limit} hosts", remedy="name fewer hosts")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")
