"""Runs a command, and meanwhile holds up its processes at random, each for a moment: what fails by that has a race.

    python -m tests.bed.holdups [--seed=1] pytest tests/flows/slurm

A process is held up as by a debugger, every thread of it. Nobody hears of that as of a SIGSTOP, and who is stopped
by a test stays so. If we are killed, the kernel lets all go on.
"""

import argparse
import ctypes
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_AT_ONCE = 4
_LONGEST = 1.0
_PAUSE = 0.2
"""Seconds, in the mean, between one choice and the next."""

_FEW = 12
"""Of so few processes, not each choice holds up one, or the only one there is would hardly run."""

_LOOK_EVERY = 0.01
"""An end, or a signal, must reach somebody else through us while we hold a process up."""

_ALL_KINDS = 0x40000000  # __WALL: threads of others, too
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class _Process(NamedTuple):
    pid: int
    parent: int
    name: str
    state: str


class HoldUps:
    """Processes below this one that are held up, and for how long still."""

    def __init__(self, dice: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._dice = dice
        self._until: dict[int, float] = {}
        self._stopped: dict[int, int] = {}
        """Threads that stand still, with the signal that is to be theirs when they go on."""
        self._next = 0.0

    def hold_up_another(self) -> None:
        """Choose a program, then a process of it, since some programs have far more processes than others."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PAUSE * self._dice.uniform(0, 2)
        running = [it for it in _below(os.getpid()) if it.state in "SR"]
        held_up = {until for until in self._until.values() if until > now}
        if len(held_up) >= _AT_ONCE or self._dice.random() > len(running) / _FEW:
            return
        name = self._dice.choice(sorted({it.name for it in running}))
        chosen = self._dice.choice([it for it in running if it.name == name])
        until = now + self._dice.random() ** 2 * _LONGEST
        for thread in _threads(chosen.pid):
            if thread not in self._until and _ptrace(_SEIZE, thread):
                _ptrace(_INTERRUPT, thread)
                self._until[thread] = until
        self.counts[name] += 1

    def let_go(self) -> None:
        """Let those go on whose time is over and who stand still: others cannot be told."""
        now = time.monotonic()
        for thread in [it for it in self._stopped if self._until.get(it, 0.0) <= now]:
            _ptrace(_DETACH, thread, self._stopped.pop(thread))
            self._until.pop(thread, None)

    def take_note(self, pid: int, status: int) -> None:
        """Hear that a thread stands still, or has ended."""
        if os.WIFSTOPPED(status):
            # Above the signal stands why it was told of: a bare one is about to be delivered.
            self._stopped[pid] = 0 if status >> 16 else os.WSTOPSIG(status)
        else:
            self._until.pop(pid, None)
            self._stopped.pop(pid, None)


def _below(top: int) -> list[_Process]:
    children: dict[int, list[_Process]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (directory / "stat").read_text().partition(" (")[2].rpartition(") ")
            state, parent = rest.split()[:2]
            children.setdefault(int(parent), []).append(_Process(int(directory.name), int(parent), name, state))
    found = list(children.get(top, []))
    for process in found:
        found += children.get(process.pid, [])
    return found


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(it) for it in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names are all we want
    return []


def _ptrace(request: int, thread: int, data: int = 0) -> bool:
    # It may have ended, or be another debugger's.
    return bool(_libc.ptrace(request, thread, None, ctypes.c_void_p(data)) == 0)


def _run(words: list[str], holdups: HoldUps) -> int:
    """Return the exit code of the command."""
    # Whoever has lost its parent comes to us, and stays one of those below.
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = os.posix_spawnp(words[0], words, os.environ)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the command, which hears it by itself
    signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGTERM))
    while True:
        holdups.hold_up_another()
        holdups.let_go()
        pid, status = os.waitpid(-1, os.WNOHANG | _ALL_KINDS)
        if pid == command and not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if pid:
            holdups.take_note(pid, status)
        else:
            time.sleep(_LOOK_EVERY)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1, help="other seeds choose other processes and moments")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("say what to run")
    holdups = HoldUps(random.Random(options.seed))  # noqa: S311 - no secret
    code = _run(options.command, holdups)
    told = ", ".join(f"{name} {count}" for name, count in holdups.counts.most_common())
    sys.stderr.write(f"held up {holdups.counts.total()} times by --seed={options.seed}: {told}\n")
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _main()
