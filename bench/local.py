#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The local cluster, the test beds and the command line: how long until one can work, and what idling costs.

help           isthmus --help
control_plane  the tests' control plane, from nothing to ready
slurm          the tests' Slurm with accounting, likewise
cluster        isthmus up with three workers, what it costs while nothing happens, and isthmus down
cold           make demo from a fresh clone with empty caches; only with --cold, since it takes a quarter of an hour

Everything but the last is measured warm: what can be built once has been built.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Figure, Options, figure, main, note
from isthmus.errors import Terminal
from isthmus.local import cgroups, lifecycle, state
from isthmus.local.delegation import group_of
from isthmus.local.progress import PlainProgress
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import VERSIONS, SlurmBed

_ROOT = Path(__file__).parent.parent
_NAME = "bench"
_CGROUPS = Path("/sys/fs/cgroup")
_DEMO = "demo"
_WORKERS = 3
_ROUNDS = 3

_QUIET_WITHIN = 90.0
_GLANCE = 5.0
_WINDOW = 30.0


def command_line(options: Options) -> Iterator[Figure]:
    """Ask for help."""
    del options
    program = Path(sys.executable).parent / "isthmus"
    times = [_seconds_of([program, "--help"]) for _ in range(2 * _ROUNDS)]
    yield figure("isthmus --help", "≤ 0.2 s", statistics.median(times))


def control_plane(options: Options) -> Iterator[Figure]:
    """Start control planes."""
    del options
    times = [_seconds_to_enter(ControlPlaneBed()) for _ in range(_ROUNDS)]
    yield figure("Test bed: a control plane", "≤ 6 s", statistics.median(times))


def slurm(options: Options) -> Iterator[Figure]:
    """Start Slurms."""
    del options
    for version in VERSIONS:
        with SlurmBed(version):
            note(f"Slurm {version} and its database are in the cache")
        times = [_seconds_to_enter(SlurmBed(version)) for _ in range(_ROUNDS)]
        yield figure(f"Test bed: Slurm {version} with accounting", "≤ 4 s", statistics.median(times))


def cluster(options: Options) -> Iterator[Figure]:
    """Bring a cluster up, let it idle, take it down."""
    with _no_cluster_left(_NAME):
        _up()  # fills the caches
        _down()
        began = time.monotonic()
        _up()
        yield figure(f"isthmus up, {_WORKERS} workers, warm, until DNS answers", "≤ 20 s", time.monotonic() - began)
        window = _WINDOW / 10 if options.quick else _WINDOW
        _await_quiet()
        share = _share(window)
        memory = sum(used.memory for used in _by_program().values())
        if options.profile:
            _show_consumers(window)
        yield figure(f"Idle cluster with {_WORKERS} workers: memory", "≤ 1.8 GiB", memory / 2**30)
        yield figure(f"Idle cluster with {_WORKERS} workers: of one core", "≤ 20 %", share * 100)
        began = time.monotonic()
        _down()
        yield figure("isthmus down", "≤ 5 s", time.monotonic() - began)


def cold(options: Options) -> Iterator[Figure]:
    """Run the demo as on a machine that has never seen it."""
    if not options.cold:
        return
    if _DEMO in state.names():
        raise Terminal(f"the demo would remove your cluster {_DEMO!r}", remedy=f"isthmus down --name {_DEMO}")
    with tempfile.TemporaryDirectory(prefix="isthmus-cold-") as directory, _no_cluster_left(_DEMO):
        clone, caches = Path(directory, "clone"), Path(directory, "caches")
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", _ROOT, clone], check=True)
        began = time.monotonic()
        subprocess.run(["make", "demo"], check=True, cwd=clone, env=_clean_environment(caches), stdout=sys.stderr)
        yield figure("make demo, from empty caches", "≤ 18 min", (time.monotonic() - began) / 60)


def _clean_environment(caches: Path) -> dict[str, str]:
    """The environment without what would lend the clone something of ours."""
    ours = ("ISTHMUS_", "PYTHONPATH", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "XDG_CACHE_HOME": str(caches)}


def _seconds_of(argv: list[str | Path]) -> float:
    began = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _seconds_to_enter(bed: AbstractContextManager[object]) -> float:
    began = time.monotonic()
    with bed:
        return time.monotonic() - began


def _up() -> None:
    given = os.environ.get("ISTHMUS_BINARIES")
    lifecycle.up(
        _NAME, workers=_WORKERS, publish=(), given=Path(given) if given else None, progress=PlainProgress()
    )


def _down() -> None:
    lifecycle.down(_NAME, PlainProgress())


@contextmanager
def _no_cluster_left(name: str) -> Iterator[None]:
    """Remove the cluster of this name when the block ends, and even if we are killed before."""
    if name in state.names():
        lifecycle.down(name, PlainProgress())
    guard = subprocess.Popen([_ROOT / "scripts" / "guard", str(os.getpid()), name], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(guard.pid, signal.SIGTERM)
        guard.wait()
        if name in state.names() or cgroups.exists(group_of(name)):
            lifecycle.down(name, PlainProgress())


def _await_quiet() -> None:
    """Wait until the cluster uses no less processor time than a moment before, for a minute and a half at most."""
    deadline = time.monotonic() + _QUIET_WITHIN
    last, share = float("inf"), _share(_GLANCE)
    while share < 0.9 * last and time.monotonic() < deadline:
        last, share = share, _share(_GLANCE)


def _share(window: float) -> float:
    """The share of one core that the cluster takes over the window."""
    began, (_, before) = time.monotonic(), _usage(group_of(_NAME))
    time.sleep(window)
    _, after = _usage(group_of(_NAME))
    return (after - before) / (time.monotonic() - began)


def _usage(path: str) -> tuple[int, float]:
    """Memory in bytes and processor time in seconds that a control group has used."""
    if (_CGROUPS / path / "memory.current").exists():
        memory = int((_CGROUPS / path / "memory.current").read_text())
        cpu = next(
            int(line.split()[1])
            for line in (_CGROUPS / path / "cpu.stat").read_text().splitlines()
            if line.startswith("usage_usec")
        )
        return memory, cpu / 1e6
    stat = (_CGROUPS / "memory" / path / "memory.stat").read_text().splitlines()
    numbers = {name: int(value) for name, value in (line.split() for line in stat)}
    cpu = int((_CGROUPS / "cpuacct" / path / "cpuacct.usage").read_text())
    return numbers["total_rss"] + numbers.get("total_shmem", 0), cpu / 1e9


def _show_consumers(window: float) -> None:
    """Say which programs use the memory and the processor."""
    before = _by_program()
    time.sleep(window)
    after = _by_program()
    for name, used in sorted(after.items(), key=lambda item: -item[1].memory):
        share = (used.seconds - before[name].seconds) / window
        note(f"{name:24} {used.memory / 2**20:6.0f} MiB  {share * 100:5.1f} % of a core")


@dataclass
class _Used:
    """What the processes of a program hold and have used."""

    memory: int = 0
    seconds: float = 0.0


def _by_program() -> dict[str, _Used]:
    """Look at every process of the cluster. Memory that several share is counted once, in equal parts."""
    found: defaultdict[str, _Used] = defaultdict(_Used)
    for pid in cgroups.processes(group_of(_NAME)):
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()
            numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has just ended
        used = found[Path(program).name]
        used.memory += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
        used.seconds += (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")
    return found


MEASUREMENTS = {
    "help": command_line,
    "control_plane": control_plane,
    "slurm": slurm,
    "cluster": cluster,
    "cold": cold,
}

if __name__ == "__main__":
    sys.exit(main(MEASUREMENTS, about=__doc__, flags={"--cold": "also run make demo from empty caches"}))
