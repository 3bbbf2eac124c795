"""A process of ours as its users run it, seen from outside: what it costs, what it counts, when it is ready."""

import os
import pstats
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.stopwatch import PROFILE
from isthmus import names
from isthmus.errors import Terminal

_ISTHMUS = Path(sys.executable).with_name("isthmus")
_PROFILED = Path(__file__).parent / "course" / "profiled.py"
_READY_WITHIN = 120.0
_ENDED_WITHIN = 30.0
_QUIET_WITHIN = 60.0
_QUIET = 0.15
"""Of a core: below this a process has done what there was to do when it started."""

_LINES = 30


@dataclass(frozen=True)
class Process:
    """A running process."""

    pid: int
    metrics_url: str

    @property
    def processor(self) -> float:
        """The seconds of processor time that it has used."""
        return _processor(Path(f"/proc/{self.pid}/stat").read_text())

    @property
    def most_memory(self) -> int:
        """The most bytes that it ever held."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def metric(self, name: str, *labels: str) -> float:
        """Add up the series of a metric that have all of these labels, such as `action="register"`."""
        return sum(value for series, value in self.series(name).items() if all(label in series for label in labels))

    def series(self, name: str) -> Mapping[str, float]:
        """Read the series of a metric, with their labels as they are written."""
        found = {}
        for line in _read(f"{self.metrics_url}/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name:
                found[series] = float(value)
        return found

    def await_quiet(self, *, within: float = _QUIET_WITHIN) -> None:
        """Wait until it has nothing to do, or until it is plain that this is what doing nothing costs."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            began = self.processor
            time.sleep(1)
            if self.processor - began < _QUIET:
                return


def by_program() -> dict[str, float]:
    """The seconds of processor time that each program has used that this benchmark runs, itself included."""
    used: defaultdict[str, float] = defaultdict(float)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            text = path.read_text()
            name, (_, parent, *_) = text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2].split()
            if os.getpid() in {int(parent), int(path.parent.name)}:
                used["this benchmark" if int(path.parent.name) == os.getpid() else name] += _processor(text)
    return dict(used)


def _processor(stat: str) -> float:
    numbers = stat.rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Kind:
    """What not all processes have in common."""

    flags: tuple[str, ...] = ("--webhook-bind-address=0",)
    health: str = "health-probe-bind-address"
    leads: bool = True


@contextmanager
def running(words: Callable[[Path], Sequence[str | Path]], *, kind: Kind = Kind()) -> Iterator[Process]:  # noqa: B008 - frozen
    """Run `isthmus` with such words and flags; the block begins when it leads and has read everything.

    `words` are made from a directory in which they may put files.
    """
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as directory:
        place = Path(directory)
        profile = place / "profile" if os.environ.get(PROFILE) else None
        process, health, metrics = _start(words(place), place / "log", profile, kind)
        found = Process(process.pid, metrics)
        try:

            def at_work() -> bool:
                return _is_ready(health) and (not kind.leads or found.metric(names.LEADING.name) == 1)

            _await(process, at_work, place / "log")
            yield found
        finally:
            # Its lease is given back by an orderly end; the next one would have to wait for it otherwise.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_ENDED_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if profile:
            pstats.Stats(str(profile), stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(_LINES)


def _start(
    words: Sequence[str | Path], log_file: Path, profile: Path | None, kind: Kind
) -> tuple[subprocess.Popen[bytes], str, str]:
    health, metrics = _free_port(), _free_port()
    program = [sys.executable, _PROFILED, profile] if profile else [_ISTHMUS]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [
                *program,
                *words,
                *kind.flags,
                f"--{kind.health}=127.0.0.1:{health}",
                f"--metrics-bind-address=127.0.0.1:{metrics}",
            ],
            env={name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return process, f"http://127.0.0.1:{health}", f"http://127.0.0.1:{metrics}"


def _await(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise Terminal(f"the process did not get ready; the end of its log:\n{tail}")
        time.sleep(0.05)


def _is_ready(health: str) -> bool:
    try:
        return bool(_read(f"{health}/readyz"))
    except OSError:
        return False


def _read(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
