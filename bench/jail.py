#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""Jobs inside the shared root, beside the same jobs on the same Slurm without the plugin, in turns.

start  one job after the other, from `srun` to its end
steps  1,000 short steps in one allocation

and a change of a ConfigMap, from `kubectl apply` until every node of a whole cluster in pods has it

config  a few changes, one after the other

and filling the root

populate  from the login image onto an empty directory, beside `tar | tar` and a sync, in turns
"""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

from bench import jail_cluster, jail_filling
from bench.harness import Figure, Options, figure, main, note
from tests.bed.jail import OPTIONS, JailBed
from tests.bed.slurm import VERSIONS

# Of steps between two looks at the clock: few enough that a busy moment of the machine meets both sides.
_CHUNK = 25


def start(options: Options) -> Iterator[Figure]:
    """Start jobs."""
    count = 10 if options.quick else 100
    for version in VERSIONS:
        with _Pair(version) as pair:
            without, inside = pair.medians(count, "srun", "--nodelist=n1", "true")
        note(f"Slurm {version}, medians of {count}: {without * 1e3:.1f} ms without, {inside * 1e3:.1f} ms inside")
        name = f"Start a job inside the shared root, Slurm {version}: more than without"
        yield figure(name, "≤ 15 ms", (inside - without) * 1e3)


def steps(options: Options) -> Iterator[Figure]:
    """Run many short steps."""
    count = 100 if options.quick else 1_000
    loop = f"job=$(squeue -ho%i); for step in $(seq {_CHUNK}); do srun --jobid=$job --overlap true; done"
    for version in VERSIONS:
        with _Pair(version) as pair:
            pair.each("salloc", "--no-shell", "--quiet", "--nodelist=n1")
            without, inside = pair.medians(count // _CHUNK, "sh", "-c", loop)
        note(f"Slurm {version}, medians of {_CHUNK} steps: {without:.2f} s without, {inside:.2f} s inside")
        name = f"{count:,} short steps inside the shared root, Slurm {version}: more than without"
        yield figure(name, "≤ 5 %", (inside / without - 1) * 100)


def config(options: Options) -> Iterator[Figure]:
    """Change configuration on the shared root."""
    count = 2 if options.quick else 10
    with jail_cluster.cluster() as ground:
        taken = [jail_cluster.change(ground, str(turn)) for turn in range(1, count + 1)]
    note(f"{count} changes: {min(taken):.1f} to {max(taken):.1f} s")
    yield figure("A configuration change on every node, the slowest", "≤ 10 s", max(taken))


def populate(options: Options) -> Iterator[Figure]:
    """Fill a root."""
    rounds = 1 if options.quick else 3
    by_tar, by_us = jail_filling.medians(rounds)
    note(f"medians of {rounds}: {by_tar:.1f} s by tar, {by_us:.1f} s by us, with everything read back")
    yield figure("Fill a shared root from the login image: speed of `tar | tar`", "≥ 70 %", by_tar / by_us * 100)


class _Pair:
    """Two Slurms that differ in the plugin alone."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._without, self._inside = (
                stack.enter_context(JailBed(self._version, nodes=1, options=chosen)) for chosen in (None, OPTIONS)
            )
            self._beds = [self._without, self._inside]
            for bed, where in ((self._without, "/outside"), (self._inside, "/.isthmus/ready")):
                bed.command("srun", "test", "-e", where)  # each is what it is said to be
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def each(self, *command: str) -> dict[JailBed, float]:
        """Run a command on both, now the one first and now the other; the seconds that each took."""
        self._beds.reverse()
        return {bed: _timed(bed, *command) for bed in self._beds}

    def medians(self, times: int, *command: str) -> tuple[float, float]:
        """Run a command so many times on both, in turns: the seconds without the plugin, and with it.

        Medians, because a shared machine pauses now on the one side and now on the other.
        """
        without, inside = self._without, self._inside
        self.each(*command)  # all that is only done once is done
        rounds = [self.each(*command) for _ in range(times)]
        return statistics.median(each[without] for each in rounds), statistics.median(
            each[inside] for each in rounds
        )


def _timed(bed: JailBed, *command: str) -> float:
    begun = time.perf_counter()
    bed.command(*command, user="alice", timeout=120)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main({"start": start, "steps": steps, "config": config, "populate": populate}, about=__doc__))
