"""Keeps families small: the largest series stay, the others are added up under "other"."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from isthmus.domain.exporter.exposition import Row

OTHER: Final = "other"

_BOUNDLESS: Final = frozenset({"account", "license", "qos", "reservation", "user"})
"""Labels whose values are as many as people make: of each, the largest few are kept."""

_KEPT: Final = frozenset({"state", "limit", "le"})
"""Labels with a handful of values that say what is counted: these are never folded."""


class Limits(msgspec.Struct, frozen=True):
    """How many series there may be."""

    series: int = 1000
    """In one family that is not one series for each job or node."""
    top: int = 50
    """Values of a label such as `user` in one family."""


class Folded(NamedTuple):
    """What is left, and how many series were added up."""

    rows: list[Row]
    folded: int


def fold(labels: tuple[str, ...], rows: Iterable[Row], limits: Limits) -> Folded:
    """Add up what is beyond the limits. The sum over all series stays the same."""
    kept = list(rows)
    before = set[tuple[str, ...]]()
    for at, label in enumerate(labels):
        if label in _BOUNDLESS and len({names[at] for names, _ in kept}) > limits.top:
            before |= {names for names, _ in kept}
            kept = _merge(kept, [at], keep=_largest(kept, at, limits.top), at=at)
    if len(kept) > limits.series:
        before |= {names for names, _ in kept}
        foldable = [at for at, label in enumerate(labels) if label not in _KEPT]
        ranked = sorted(kept, key=lambda row: (-row[1], row[0]))
        kept = [*ranked[: limits.series], *_merge(ranked[limits.series :], foldable)]
        kept = _merge(kept, [])
    return Folded(kept, len(before - {names for names, _ in kept}))


def largest(labels: tuple[str, ...], rows: Iterable[Row], limits: Limits, *, by: Mapping[Any, float]) -> Folded:
    """Leave out what is beyond the limits, where adding up has no meaning: the others are the smallest by `by`."""
    everything = list(rows)
    bound = limits.top if not _BOUNDLESS.isdisjoint(labels) else limits.series
    if len(everything) <= bound:
        return Folded(everything, 0)
    ranked = sorted(everything, key=lambda row: (-by.get(row[0], 0.0), row[0]))
    return Folded(ranked[:bound], len(everything) - bound)


def _largest(rows: Iterable[Row], at: int, count: int) -> set[str]:
    totals: defaultdict[str, float] = defaultdict(float)
    for names, value in rows:
        totals[names[at]] += value
    return set(sorted(totals, key=lambda name: (-totals[name], name))[:count])


def _merge(rows: Iterable[Row], places: Collection[int], *, keep: Collection[str] = (), at: int = -1) -> list[Row]:
    """Write "other" into these places, except where the name at `at` is one to keep, and add up what is alike."""
    merged: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for names, value in rows:
        if at >= 0 and names[at] in keep:
            merged[names] += value
        else:
            merged[tuple(OTHER if place in places else name for place, name in enumerate(names))] += value
    return list(merged.items())
