"""Fills and refreshes roots in processes that are killed at their n-th change of a file system.

A kill after some time hits what takes long, and hardly ever the moment between two changes that follow each other
closely; and where it hits depends on the machine. Here the same number is the same moment in every run, and all of
them can be tried.

It is a program of its own, which forks: a process costs milliseconds then, and has no threads to lose in the fork,
as the tests' own process has.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from isthmus.sharedroot import operations, rename

_CHANGES: Final = (
    *(
        "chmod",
        "chown",
        "fchmod",
        "fchown",
        "fsync",
        "ftruncate",
        "link",
        "mkdir",
        "mkfifo",
        "pwrite",
        "removexattr",
    ),
    *("rename", "rmdir", "setxattr", "symlink", "unlink", "utime", "write"),
)


class Killer:
    """Starts the processes. A context manager."""

    def __enter__(self) -> Self:
        argv = [sys.executable, "-m", "tests.bed.killing"]
        self._server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, command: str, root: Path, image: Path, *, until: int) -> bool:
        """Populate or refresh a root until that change, and be killed; False if it came to its end before."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps([command, str(root), str(image), until]) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        assert code in {0, -signal.SIGKILL}, f"{command} ended with {code}"
        return code != 0


def _serve() -> None:
    for line in sys.stdin:
        process = os.fork()
        if not process:
            try:
                _run(*json.loads(line))
            except BaseException:  # noqa: BLE001 - a child must not come back and serve
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(command: str, root: str, image: str, until: int) -> None:
    done = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*words: Any, **more: Any) -> Any:
            nonlocal done
            # The thread of the lock beats with time, and changes the lock alone.
            done += threading.current_thread().name != "lock"
            if done == until:
                if real.__name__ == "write":
                    real(words[0], words[1][: len(words[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **more)

        return change

    for name in _CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    rename._rename_new = counted(rename._rename_new)  # it asks the kernel by itself, without `os`
    act = {"populate": operations.populate, "refresh": operations.refresh}[command]
    act(image, root, image="", now="today", tell=lambda _: None)


if __name__ == "__main__":
    _serve()
