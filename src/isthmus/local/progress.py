"""How long work tells what it is doing, to a person or to a log, without knowing which of the two listens."""

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

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Begin a step, which ends with the `with` block, well or with the block's exception."""

    def note(self, text: str) -> None:
        """Say something that belongs to no step: a warning, a hint."""


class _PlainStep:
    def detail(self, text: str) -> None:
        """Plain output has no line that could be written over, so details are left out."""


class PlainProgress:
    """A line when a step ends, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Print the step with its duration when it is over."""
        began = time.monotonic()
        try:
            yield _PlainStep()
        except BaseException:
            self._print(f"✗ {title} ({time.monotonic() - began:.1f} s)")
            raise
        self._print(f"✓ {title} ({time.monotonic() - began:.1f} s)")

    def note(self, text: str) -> None:
        """Print the note."""
        self._print(f"· {text}")

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._stream, flush=True)
