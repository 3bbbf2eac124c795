"""How long a piece of code took, by the clock and by the processor, and on request where in it the time went."""

import cProfile
import os
import pstats
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PROFILE = "ISTHMUS_BENCH_PROFILE"
"""Set by `--profile` in the environment of a benchmark and its children. The times then count for little."""

_LINES = 10


@dataclass
class Times:
    """Seconds, known when the block that they were taken of has ended."""

    elapsed: float = 0.0
    processor: float = 0.0


@contextmanager
def measured(what: str) -> Iterator[Times]:
    """Take the times of a block of this process."""
    times = Times()
    profile = cProfile.Profile() if os.environ.get(PROFILE) else None
    if profile:
        profile.enable()
    elapsed, processor = time.perf_counter(), time.process_time()
    try:
        yield times
    finally:
        times.processor = time.process_time() - processor
        times.elapsed = time.perf_counter() - elapsed
        if profile:
            profile.disable()
            print(f"--- {what}", file=sys.stderr)
            pstats.Stats(profile, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(_LINES)
