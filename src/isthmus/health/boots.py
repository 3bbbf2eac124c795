"""Which boot of the machine this is, as the first process of its PID namespace shows.

Not by /proc/stat: that is about the kernel, which the machines of a local cluster share. The first process of a
real machine begins with its kernel; so this holds for both. It needs the machine's own processes (`hostPID`).
"""

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from isthmus.clock import utc_now
from isthmus.domain.health.reboots import Boot
from isthmus.errors import Terminal

PROC: Final = Path("/proc")
_STARTED: Final = 19
"""The field of the start time, counted from the one behind the name of the program."""


def kernel_clock() -> float:
    """Seconds since the kernel began, those in which it was suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def current(
    proc: Path = PROC, *, now: Callable[[], datetime] = utc_now, kernel: Callable[[], float] = kernel_clock
) -> Boot:
    """Read when the first process of the machine started, and the identity of this boot."""
    try:
        text = (proc / "1" / "stat").read_text()
        ticks = int(text[text.rindex(")") + 2 :].split()[_STARTED])
        running = (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except (OSError, ValueError, IndexError) as error:
        raise Terminal(f"{proc} does not show the machine's first process: {error}") from error
    age = kernel() - ticks / os.sysconf("SC_CLK_TCK")
    return Boot(id=f"{running}/{ticks}", at=now() - timedelta(seconds=age))


def check_namespace() -> None:
    """Refuse to run where a restart of our own container would be taken for a reboot."""
    if os.getpid() == 1:
        raise Terminal(
            "the rebooter does not see the processes of the machine",
            remedy="set hostPID: true in its pod, as a NodeConfigurator does",
        )
