#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The tests themselves: how long `make test` and `make quick` take with warm caches, and how much of it is waiting.

quick  make quick
all    make test; with --last, as it was the last time, without running it again
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Figure, Options, figure, main
from isthmus.errors import Terminal
from tests import rings

_ROOT = Path(__file__).parents[1]

# Together as long as make test may take.
_BARS = {"lint": "≤ 1 min", "unit": "≤ 2 min", "flows": "≤ 10 min", "e2e": "≤ 12 min"}


def _quick(options: Options) -> Iterator[Figure]:
    if not options.last:
        yield figure("make quick", "≤ 5 min", _minutes(_make("quick")))


def _all(options: Options) -> Iterator[Figure]:
    results = rings.last() if options.last else _make("test")
    yield figure("make test", "≤ 25 min", _minutes(results))
    for each in results:
        yield figure(
            f"{each.ring}, {each.tests:,} tests" if each.tests else each.ring, _BARS[each.ring], each.wall_s / 60
        )
        yield figure(f"{each.ring}: processors' time spent waiting", "≤ 50 %", 100 * each.waiting)


def _make(target: str) -> list[rings.Result]:
    done = subprocess.run(["make", target], check=False, cwd=_ROOT, stdout=sys.stderr)
    if done.returncode:
        raise Terminal(f"make {target} failed, see above")
    return rings.last()


def _minutes(results: list[rings.Result]) -> float:
    return sum(it.wall_s for it in results) / 60


if __name__ == "__main__":
    sys.exit(
        main(
            {"quick": _quick, "all": _all},
            about=__doc__ or "",
            flags={"--last": "the figures of the last make test, without running it"},
        )
    )
