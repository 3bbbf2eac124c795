"""The lock of a shared root: one run at a time, on any machine.

flock decides on one machine, and on network file systems that pass it on. Some do not, and then two machines hold
it at once. So the holder also writes its name, and touches the file again and again; a run that gets the lock while
another machine's name is in it watches for a while whether that one is alive.
"""

import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from isthmus.errors import Retry

_LOCK: Final = "lock"
_BEAT: Final = 2.0
_SILENCE: Final = 7.0
_NAME_PAUSE: Final = 0.05
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock. Empty when nobody does."""

    host: str = ""
    process: int = 0
    doing: str = ""
    since: str = ""
    token: str = ""

    def __str__(self) -> str:
        if not self.token:
            return "an unidentified process"
        return f"{self.doing}, process {self.process} on {self.host}, since {self.since}"


@contextmanager
def held(
    directory: int,
    *,
    doing: str,
    since: str,
    host: str = "",
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Callable[[], None]]:
    """Hold the lock in an open directory. Gives a function that raises Retry once another run took it over."""
    us = Holder(host or socket.gethostname(), os.getpid(), doing, since, secrets.token_hex(8))
    descriptor = os.open(_LOCK, _OPEN, 0o600, dir_fd=directory)
    try:
        _take(descriptor, pause)
        _await_silence(directory, us, pause)
        _write(descriptor, us)
        lost, done = threading.Event(), threading.Event()

        def check() -> None:
            if lost.is_set():
                raise Retry(
                    "another run took over the root, because this one stalled for too long", remedy="start again"
                )

        def beat() -> None:
            while not done.wait(_BEAT):
                try:
                    if _look(directory)[0].token != us.token:
                        lost.set()
                        return
                    os.utime(descriptor)
                except OSError:
                    continue  # the storage is away: the work waits, too, until it is back

        beating = threading.Thread(target=beat, name="lock", daemon=True)
        beating.start()
        try:
            yield check
        finally:
            done.set()
            beating.join()
            if not lost.is_set():
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(directory: int) -> Holder | None:
    """Who holds the lock; None if nobody does."""
    try:
        descriptor = os.open(_LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def _take(descriptor: int, pause: Callable[[float], object]) -> None:
    """Take the lock, or return its holder. A name is written after taking it, and removed before releasing it."""
    waited = 0.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = _holder(descriptor)
            if other.token or waited >= _SILENCE:
                raise _busy(other) from error
        else:
            return
        pause(_NAME_PAUSE)
        waited += _NAME_PAUSE


def _await_silence(directory: int, us: Holder, pause: Callable[[float], object]) -> None:
    """Watch whether another machine, which we cannot see by the lock, still works; one that is silent is dead."""
    other, first = _look(directory)
    waited = 0.0
    while other.token and other.host != us.host and waited < _SILENCE:
        pause(0.5)
        waited += 0.5
        other, now = _look(directory)
        if other.token and now != first:
            raise _busy(other)


def _busy(other: Holder) -> Retry:
    return Retry(f"the root is in use by another run: {other}", remedy="wait until it has finished")


def _look(directory: int) -> tuple[Holder, int]:
    """Read who holds the lock, and since when. Opened again, so network file systems ask the server."""
    descriptor = os.open(_LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        return _holder(descriptor), os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return Holder()


def _write(descriptor: int, us: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(us), 0)
    os.fsync(descriptor)
