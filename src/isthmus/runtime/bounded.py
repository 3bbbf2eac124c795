"""Families whose labels come from users: a namespace, an account. They must not grow without end.

The first label sets of a family get a series each, up to a limit. Each further one is counted under a common
series, in which the leading labels say `other`; the last ones, which have few values, stay as they are:

    namespace="team-7", account="physics", kind="Job"     one of the first 200
    namespace="other",  account="other",   kind="Job"     all later ones of that kind

How many were folded is a metric of its own. A label set never moves, so a gauge may go up and down under it.
"""

from typing import Final, Generic, TypeVar

from prometheus_client import Gauge
from prometheus_client.metrics import MetricWrapperBase

Family = TypeVar("Family", bound=MetricWrapperBase)

MAX_SERIES: Final = 200
OTHER: Final = "other"

_MAX_FOLDED: Final = 10_000
"""At most so many folded label sets are counted separately; the metric does not rise above it."""


class Bounded(Generic[Family]):
    """A family with at most `limit` label sets of its own; of a folded one, the last `kept` labels stay."""

    def __init__(self, family: Family, *, kept: int, folded: Gauge, limit: int = MAX_SERIES) -> None:
        self._family = family
        self._kept = kept
        self._limit = limit
        self._series: dict[tuple[str, ...], Family] = {}
        self._folded: set[int] = set()
        folded.set_function(lambda: len(self._folded))

    def of(self, *values: str) -> Family:
        """Find the series of a label set, its own or the common one."""
        series = self._series.get(values)
        if series is not None:
            return series
        if len(self._series) < self._limit:
            series = self._series[values] = self._family.labels(*values)
            return series
        if len(self._folded) < _MAX_FOLDED:
            self._folded.add(hash(values))
        first = len(values) - self._kept
        return self._family.labels(*(OTHER,) * first, *values[first:])
