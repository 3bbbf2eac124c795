"""Counters and histograms that never fall, with a bound on their series that holds for good.

The first label sets of a family get a series each, up to a limit. Each further one is added to a common series, in
which labels with user-defined values are "other". A label set never moves from one to the other: a counter would
fall.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from isthmus.domain.exporter.exposition import Family, histogram_text, number
from isthmus.domain.exporter.folding import OTHER

V = TypeVar("V")

Labels = tuple[str, ...]

_FOLDED_LABELS: Final = frozenset({"partition", "account", "qos", "reason"})
"""Labels with as many values as people invent. All others have a handful of values, or one for each node."""

_MAX_FOLDED: Final = 10_000
"""At most so many folded label sets are counted separately."""


class _Bounded(Generic[V]):
    """The rows of a family by their labels."""

    def __init__(self, family: Family, *, limit: int) -> None:
        self.family = family
        self.rows: dict[Labels, V] = {}
        self._limit = limit
        self._folds = tuple(label in _FOLDED_LABELS for label in family.labels)
        self._folded: set[int] = set()
        self._texts: dict[Labels, str] = {}
        """What is written for each row, as far as it stays: a scrape of thousands of rows has no time for more."""

    @property
    def folded(self) -> int:
        """How many label sets are counted under "other"."""
        return len(self._folded)

    def drop(self, first: str) -> None:
        """Forget all rows whose first label has this value, because what it names is gone."""
        for labels in [labels for labels in self.rows if labels[0] == first]:
            del self.rows[labels]
            self._texts.pop(labels, None)

    def _row(self, labels: Labels) -> Labels:
        """Under which labels these are counted."""
        if labels in self.rows or len(self.rows) < self._limit or not any(self._folds):
            return labels
        if len(self._folded) < _MAX_FOLDED:
            self._folded.add(hash(labels))
        return tuple(OTHER if folds else value for value, folds in zip(labels, self._folds, strict=True))


class Tally(_Bounded[float]):
    """A counter."""

    def add(self, labels: Labels, amount: float = 1) -> None:
        if not amount:
            return
        row = self._row(labels)
        self.rows[row] = self.rows.get(row, 0) + amount

    def text(self) -> str:
        texts = self._texts
        for labels in self.rows.keys() - texts.keys():
            texts[labels] = self.family.series(labels)
        lines = "".join([f"{texts[labels]}{number(value)}\n" for labels, value in self.rows.items()])
        return f"{self.family.head}{lines}" if lines else ""

    def save(self) -> "SavedRows":
        return [(labels, [value]) for labels, value in self.rows.items()]

    def load(self, saved: "SavedRows") -> None:
        self._texts.clear()
        self.rows = {labels: values[0] for labels, values in saved if len(labels) == len(self.family.labels)}


class Histogram(_Bounded[tuple[list[int], float]]):
    """Counts by bucket, the last for what is beyond all bounds, and the sum."""

    def observe(self, labels: Labels, value: float) -> None:
        row = self._row(labels)
        counts, total = self.rows.get(row) or ([0] * (len(self.family.buckets) + 1), 0.0)
        # A bucket holds what is less than or equal to its bound.
        counts[bisect_left(self.family.buckets, value)] += 1
        self.rows[row] = counts, total + value
        self._texts.pop(row, None)

    def text(self) -> str:
        head = self.family.head
        for labels in self.rows.keys() - self._texts.keys():
            self._texts[labels] = histogram_text(self.family, {labels: self.rows[labels]}).removeprefix(head)
        return f"{head}{''.join(self._texts.values())}" if self._texts else ""

    def save(self) -> "SavedRows":
        return [(labels, [*counts, total]) for labels, (counts, total) in self.rows.items()]

    def load(self, saved: "SavedRows") -> None:
        """Take what was saved, unless the family had other buckets then."""
        self._texts.clear()
        self.rows = {
            labels: (list(map(int, values[:-1])), values[-1])
            for labels, values in saved
            if len(labels) == len(self.family.labels) and len(values) == len(self.family.buckets) + 2
        }


SavedRows = list[tuple[Labels, list[float]]]
SavedTallies = dict[str, SavedRows]
"""By the name of the family."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SavedTallies).decode


def save(tallies: Iterable[Tally | Histogram]) -> bytes:
    return _encode({tally.family.name: tally.save() for tally in tallies})


def load(tallies: Iterable[Tally | Histogram], text: bytes) -> None:
    """Take over what was saved; raises `msgspec.MsgspecError` if this is something else."""
    saved = _decode(text)
    for tally in tallies:
        tally.load(saved.get(tally.family.name, []))
