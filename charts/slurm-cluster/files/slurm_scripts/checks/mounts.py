#!/usr/bin/env python3
"""Fails when a file system went read-only by itself, is stale or does not answer: mounts.py SECONDS [PATH...].

Each is asked in a process of its own: one that waits for a dead server for ever is left behind. With paths, only
file systems mounted there and below count.
"""

import contextlib
import errno
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Without a disk or a server behind them, or always read-only.
# fmt: off
PSEUDO = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cramfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "erofs", "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "proc",
    "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tmpfs", "tracefs",
})
# fmt: on
BROKEN = frozenset(
    {errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV}
)
MOST = 128
STEP_S = 0.01


class Mount(NamedTuple):
    path: str
    type: str
    rw: bool
    """As it was mounted here."""
    server_rw: bool
    """As the file system itself is: the kernel makes it read-only after errors."""


def read(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        here, there = left.split(), right.split()
        path = re.sub(r"\\([0-7]{3})", lambda it: chr(int(it[1], 8)), here[4])
        yield Mount(path, there[0], "rw" in here[5].split(","), "rw" in there[2].split(","))


def ask(path: str) -> int:
    """Look at a file system, in a child; its number says how that went."""
    child = os.fork()
    if child:
        return child
    code = 0
    try:
        # A child keeps nothing open that its parent's parent waits for.
        os.closerange(0, 16)
        os.statvfs(path)
        Path(path).stat()
    except OSError as error:
        code = error.errno if error.errno in BROKEN else 0
    finally:
        os._exit(code)


def is_blocked(child: int) -> bool:
    """Whether a process waits in the kernel. One that could run, and is not let, says nothing of a file system."""
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] in {"D", "S"}
    except OSError:
        return False


def broken(mounts: list[Mount], seconds: float) -> dict[str, str]:
    """Which file systems are broken, and how."""
    asked = {ask(it.path): it.path for it in mounts}
    blocked = dict.fromkeys(asked, 0.0)
    found: dict[str, str] = {}
    step = 0.0
    while asked:
        for child, path in list(asked.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del asked[child]
                if code := os.waitstatus_to_exitcode(status):
                    found[path] = "is stale" if code == errno.ESTALE else f"fails: {os.strerror(code)}"
                continue
            blocked[child] += step if is_blocked(child) else 0.0
            if blocked[child] >= seconds:
                del asked[child]
                found[path] = f"does not answer within {seconds:g} s"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        began = time.monotonic()
        time.sleep(STEP_S)
        # On a busy machine this process is held up, too, and has not seen what happened meanwhile.
        step = min(time.monotonic() - began, 2 * STEP_S)
    return found


def main(seconds: float, below: list[str]) -> int:
    table = Path(os.environ.get("CHECKS_ROOT", "/"), "proc/self/mountinfo").read_text(errors="surrogateescape")
    # The same path twice: the last one hides the others.
    mounts = {it.path: it for it in read(table) if it.type not in PSEUDO}
    chosen = [it for it in mounts.values() if not below or any(f"{it.path}/".startswith(f"{at}/") for at in below)][
        :MOST
    ]
    found = {it.path: "became read-only" for it in chosen if it.rw and not it.server_rw}
    found |= broken([it for it in chosen if it.path not in found], seconds)
    if not found:
        return 0
    path, how = min(found.items())
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    tell(f"{path} ({mounts[path].type}) {how}{more}")
    return 1


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(float(sys.argv[1]), sys.argv[2:])
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
