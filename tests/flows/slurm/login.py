"""A login node: Slurm's commands on the path, as an ordinary user, and no Kubernetes."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bed.slurm import SlurmBed

ISTHMUS = Path(sys.executable).with_name("isthmus")
_COMMANDS = ("squeue", "scontrol", "sbatch", "sh")
"""The shell, too: files of jobs are those of the bed."""

_WITHIN = 120
"""Seconds."""

_ENTER = """\
#!/bin/sh
exec nsenter --target={pid} --mount --uts --ipc --pid -- setpriv --reuid={user} --regid={user} --clear-groups -- \\
    sh -c 'cd /tmp; exec "$@"' sh {name} "$@"
"""


class LoginNode:
    """Runs `isthmus` where Slurm's commands are those of a bed."""

    def __init__(self, bed: SlurmBed, directory: Path, *, user: str = "alice") -> None:
        self.bed = bed
        commands = directory / "bin"
        commands.mkdir()
        for name in _COMMANDS:
            script = commands / name
            script.write_text(_ENTER.format(pid=bed.pid, user=user, name=name))
            script.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "KUBE"))}
        self.environment = kept | {"HOME": str(directory), "PATH": f"{commands}:{os.environ['PATH']}"}

    def isthmus(
        self, *words: str, env: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ISTHMUS, *words],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            env=self.environment | dict(env or {}),
            timeout=120,
        )

    @contextmanager
    def terminal(self, *words: str, env: Mapping[str, str] | None = None) -> "Iterator[Terminal]":
        """Run it in a terminal of 30 lines."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        environment = self.environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | dict(env or {})
        process = subprocess.Popen(
            [ISTHMUS, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


class Terminal:
    """The other side of a pseudo terminal: what a person would type and see."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process, self._descriptor = process, descriptor
        self.seen = b""

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, text: str) -> None:
        """Read on until this was shown after all that was waited for before."""
        deadline = time.monotonic() + _WITHIN
        unread = b""
        while text.encode() not in unread:
            piece = self._read()
            # A screen that is drawn again and again never ends by itself.
            if not piece or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} did not appear:\n{_printable(unread[-8000:])}")
            unread += piece

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self._process.wait(timeout=60)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._descriptor], [], [], _WITHIN)
        try:
            piece = os.read(self._descriptor, 65536) if ready else b""
        except OSError:  # the program has closed its side
            piece = b""
        self.seen += piece
        return piece


def _printable(shown: bytes) -> str:
    return shown.decode(errors="replace").replace("\x1b", "␛")
