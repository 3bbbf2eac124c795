"""How many jobs, nodes and pods were in which state over the last days, in few numbers.

A sample is taken every ten seconds. Each level keeps fewer samples of a longer time: an hour of ten seconds, a day
of minutes, a fortnight of quarters of an hour. A sample of a longer time is the last one within it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

LEVELS: Final = ((10, 360), (60, 1440), (900, 1344))
"""Seconds between two samples, and how many are kept."""

SERIES: Final = (
    "running",
    "waiting",
    "podsRunning",
    "podsWaiting",
    "nodesBusy",
    "nodesIdle",
    "nodesOut",
    "cpus",
    "cpusUsed",
    "gpus",
    "gpusUsed",
)

Sample = tuple[int, ...]


class History:
    """Samples of `SERIES`, at three resolutions."""

    def __init__(self) -> None:
        self._levels: list[deque[tuple[int, Sample]]] = [deque(maxlen=count) for _, count in LEVELS]

    def add(self, now: float, sample: Sample) -> None:
        for (seconds, _), kept in zip(LEVELS, self._levels, strict=True):
            at = int(now) // seconds * seconds
            if kept and kept[-1][0] == at:
                kept[-1] = (at, sample)
            else:
                kept.append((at, sample))

    def columns(self, level: int) -> Sequence[Sequence[int]]:
        """Times first, then a column for each series."""
        kept = self._levels[level]
        times = [at for at, _ in kept]
        return [times, *([sample[i] for _, sample in kept] for i in range(len(SERIES)))]
