"""Ends the process at a set time, from outside of everything that Python does.

A leader that was stopped by a debugger, a frozen cgroup or a busy machine wakes up in the middle of its work, and
its next action may be a write in a term that is over; no check in the program comes early enough. The kernel's own
timer does: it runs on while the process stands still, and its signal is acted upon before the process executes one
more instruction. The same holds for a loop that is blocked by a computation.

The handler is libc's `_exit` itself. Python's handlers only run when the interpreter gets round to them, and the
default action does not end a process that is number 1 of its container.
"""

import ctypes
import signal

EXIT_CODE = int(signal.SIGALRM)
"""What a process that was ended by its fuse exits with: `_exit` is called with the number of the signal."""


class Fuse:
    """At most one per process: the timer is the process's `ITIMER_REAL`."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGALRM, ctypes.cast(libc._exit, ctypes.c_void_p))  # noqa: SLF001 - its POSIX name

    def set(self, seconds: float) -> None:
        """End the process after so many seconds, unless the fuse is set again or removed before."""
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))  # Zero would remove it.

    def remove(self) -> None:
        """Let the process live."""
        signal.setitimer(signal.ITIMER_REAL, 0)
