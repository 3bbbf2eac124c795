"""The text format of Prometheus, version 0.0.4.

prometheus_client builds an object per sample, which takes a second for 100,000 of them. Here a series is a text
that is written once, when its object changes, and a scrape joins texts.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MAX_LABEL_CHARS: Final = 256
"""Longer label values are cut: a job's comment or a path may have kilobytes."""

Row = tuple[tuple[str, ...], float]
"""The values of the labels, in the order of the family, and the value."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(msgspec.Struct, frozen=True):
    """A metric: its name, type, labels, and the sentence that `/metrics` and the reference print beside it."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram: upper bounds in ascending order, without infinity."""

    @property
    def head(self) -> str:
        text = self.help.replace("\\", r"\\").replace("\n", r"\n")
        # Some names of others end like those of counters or histograms: promtool allows that where no type is told.
        kind = "untyped" if self.kind == "gauge" and self.name.endswith(("_total", "_count")) else self.kind
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {kind}\n"

    def series(self, values: Iterable[str], *, suffix: str = "", le: str = "") -> str:
        """Write the part of a line before its value."""
        pairs = [f'{label}="{escaped(value)}"' for label, value in zip(self.labels, values, strict=True)]
        if le:
            pairs.append(f'le="{le}"')
        return f"{self.name}{suffix}{{{','.join(pairs)}}} " if pairs else f"{self.name}{suffix} "

    def line(self, values: Iterable[str], value: float) -> str:
        return f"{self.series(values)}{number(value)}\n"

    def text(self, rows: Iterable[Row]) -> str:
        """Write the whole family; nothing if it has no rows, since a lone header says nothing."""
        lines = "".join([self.line(values, value) for values, value in rows])
        return f"{self.head}{lines}" if lines else ""


def gauge(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "gauge", help_, labels)


def counter(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "counter", help_, labels)


def histogram(name: str, help_: str, *labels: str, buckets: tuple[float, ...]) -> Family:
    return Family(name, "histogram", help_, labels, buckets)


def escaped(value: str) -> str:
    """Write a label value; a long one is cut."""
    if len(value) > MAX_LABEL_CHARS:
        value = value[: MAX_LABEL_CHARS - 1] + "…"
    # A lone surrogate cannot be encoded, and Prometheus refuses the whole scrape for one byte that is not UTF-8.
    return value.encode("utf-8", "replace").decode().translate(_ESCAPES)


def number(value: float) -> str:
    """Write a value as Prometheus reads it; whole numbers without a point."""
    if value != value:  # noqa: PLR0124 - NaN is the one number that differs from itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def histogram_text(family: Family, rows: Mapping[tuple[str, ...], tuple[list[int], float]]) -> str:
    """Write a histogram: for each set of labels the counts by bucket (the last beyond all bounds) and the sum."""
    if not rows:
        return ""
    bounds = [*map(number, family.buckets), "+Inf"]
    lines = [family.head]
    for values, (counts, total) in rows.items():
        running = 0
        for bound, count in zip(bounds, counts, strict=True):
            running += count
            lines.append(f"{family.series(values, suffix='_bucket', le=bound)}{running}\n")
        lines.append(f"{family.series(values, suffix='_sum')}{number(total)}\n")
        lines.append(f"{family.series(values, suffix='_count')}{running}\n")
    return "".join(lines)
