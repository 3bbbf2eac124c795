"""Progress of long operations, for a terminal or a log."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO


class Step(Protocol):
    """One piece of work under way."""

    def detail(self, text: str) -> None:
        """Say what the step is busy with at the moment."""


class Progress(Protocol):
    """Takes steps from any thread; several may be under way at once."""

    def plan(self, *titles: str) -> None:
        """Say which steps will come, in their order."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Begin a step, which ends with the `with` block, well or with the block's exception."""

    def note(self, text: str) -> None:
        """Say something that belongs to no step: a warning, a hint."""


class PlainProgress:
    """A line when a step begins and one when it ends, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def plan(self, *titles: str) -> None:
        """A log is read afterwards: what is to come is said when it comes."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Print the step as it begins, and again with its duration."""
        self._print(f"… {title}")
        began = time.monotonic()
        try:
            yield _Silent()
        except BaseException:
            self._print(f"✗ {title} ({time.monotonic() - began:.1f} s)")
            raise
        self._print(f"✓ {title} ({time.monotonic() - began:.1f} s)")

    def note(self, text: str) -> None:
        self._print(f"· {text}")

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._stream, flush=True)


class _Silent:
    def detail(self, text: str) -> None:
        """A log has no line that could be written over, so details are left out."""
