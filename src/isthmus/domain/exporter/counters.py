"""True counters from numbers that slurmctld sets to zero at midnight, when it is restarted, and on request.

A counter here begins at 0 when the exporter starts and never falls. So a restart of either side is no jump: what
happened while nobody looked is missing, and nothing is counted twice.
"""

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Counters(Generic[KeyT]):
    """Counters of one source, which sets all of them to zero at once."""

    def __init__(self, *, limit: int, other: KeyT) -> None:
        """Keep at most `limit` counters apart; what comes later is added to `other`, for good."""
        self.totals: dict[KeyT, float] = {}
        self._limit: Final = limit
        self._other: Final = other
        self._last: dict[KeyT, float] | None = None
        self.folded: set[KeyT] = set()

    def take(self, reading: Mapping[KeyT, float]) -> None:
        """Take note of what the source says now."""
        last, self._last = self._last, dict(reading)
        if last is None:
            for key in reading:
                self._add(key, 0)
            return
        # If one number fell, all begin at zero: one that has outgrown its old value since would be told by nothing.
        anew = any(reading.get(key, 0) < value for key, value in last.items())
        for key, value in reading.items():
            self._add(key, value if anew else value - last.get(key, 0))

    def _add(self, key: KeyT, amount: float) -> None:
        if key not in self.totals and len(self.totals) >= self._limit:
            self.folded.add(key)
            key = self._other
        self.totals[key] = self.totals.get(key, 0) + amount
