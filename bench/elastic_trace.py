"""A week of a shared cluster as a trace of jobs: seeded, so the same for everybody.

    .venv/bin/python -m bench.elastic_trace --seed 1 > trace.swf

What people do to a cluster: single-node jobs by day, in bursts (an array, a parameter sweep), jobs on several nodes
now and then, large ones in the evening that run through the night, quiet nights and weekends. Time limits are round
numbers, two to five times what jobs need.
"""

import argparse
import math
import random
import sys
from typing import Final

from isthmus.domain.elastic.traces import Job, Trace, write_swf

NODES: Final = 64
JOBS: Final = 10_000
START: Final = 1_767_571_200.0
"""Midnight of Monday, 5 January 2026, UTC."""

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_LIMITS: Final = tuple(it * _HOUR for it in (0.25, 0.5, 1, 2, 4, 8, 12, 24))

_ACTIVITY: Final = (
    *(0.15, 0.1, 0.1, 0.1, 0.1, 0.15, 0.3, 0.6, 1.0, 1.4, 1.6, 1.5),
    *(1.2, 1.5, 1.7, 1.6, 1.4, 1.1, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2),
)
"""Of a working day, by the hour; 1 is the mean of its waking part."""
_WEEKEND: Final = 0.25


def make(seed: int, *, jobs: int = JOBS, nodes: int = NODES) -> Trace:
    """Make a trace of so many jobs, over a week for ten thousand."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    days = max(1, round(7 * jobs / JOBS))
    made: list[Job] = []
    while len(made) < jobs:
        at = _moment(chance, days)
        kind = chance.random()
        if kind < 0.05:  # an array or a sweep
            count, middle = chance.randint(20, 80), chance.choice((3, 6, 10, 20)) * 60.0
            made += [_job(chance, at + place * 0.2, 1, middle, spread=0.4) for place in range(count)]
        elif kind < 0.80:
            made.append(_job(chance, at, 1, 10 * 60.0, spread=1.2))
        elif kind < 0.98:
            made.append(_job(chance, at, chance.choice((2, 2, 4, 4, 8)), 12 * 60.0, spread=1.0))
        else:  # handed in before people go home
            evening = at - at % _DAY + chance.uniform(16, 20) * _HOUR
            made.append(_job(chance, evening, chance.choice((16, 16, 24, 32)), 1.0 * _HOUR, spread=0.5))
    chosen = sorted(made[:jobs], key=lambda it: it.submit)
    named = [Job(str(place), it.submit, it.nodes, it.runtime, it.limit) for place, it in enumerate(chosen, 1)]
    return Trace(tuple(named), nodes=nodes)


def _moment(chance: random.Random, days: int) -> float:
    while True:
        day, hour = chance.randrange(days), chance.uniform(0, 24)
        weight = _ACTIVITY[int(hour)] * (_WEEKEND if day % 7 in {5, 6} else 1.0)
        if chance.random() * max(_ACTIVITY) < weight:
            return START + day * _DAY + hour * _HOUR


def _job(chance: random.Random, submit: float, nodes: int, median: float, *, spread: float) -> Job:
    runtime = min(max(chance.lognormvariate(math.log(median), spread), 10.0), _LIMITS[-1])
    asked = runtime * chance.uniform(1.5, 5.0)
    limit = next((it for it in _LIMITS if it >= asked), _LIMITS[-1])
    return Job("", round(submit), nodes, round(runtime), limit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    sys.stdout.write(write_swf(make(given.seed, jobs=given.jobs)))
