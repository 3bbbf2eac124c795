"""Progress on a terminal. Apart from `render` because rich is slow to import."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from isthmus.local.progress import Step


class LiveProgress:
    """Finished steps scroll up; those under way stay at the bottom with their time, and what is next below."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()
        self._active: dict[int, _LiveStep] = {}
        self._coming: list[str] = []
        self._count = 0
        # Draws for the first time at once, so all the rest must be there.
        self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def plan(self, *titles: str) -> None:
        """Show these as what is next until each begins."""
        with self._lock:
            self._coming = list(titles)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show the step until it ends, then leave a line with its duration."""
        step = _LiveStep(title)
        with self._lock:
            self._count += 1
            number = self._count
            self._active[number] = step
            if title in self._coming:
                self._coming.remove(title)
        mark = ("✓", "green")
        try:
            yield step
        except BaseException:
            mark = ("✗", "red")
            raise
        finally:
            with self._lock:
                del self._active[number]
            self._console.print(Text.assemble(mark, f" {title} ", (f"{step.seconds:.1f} s", "dim")))

    def note(self, text: str) -> None:
        """Leave a line above the live part."""
        self._console.print(Text.assemble(("·", "yellow"), f" {text}"))

    def _draw(self) -> RenderableType:
        with self._lock:
            lines: list[RenderableType] = [step.draw() for step in self._active.values()]
            if self._coming:
                lines.append(Text(f"  next: {', '.join(self._coming)}", style="dim"))
        return Group(*lines)


class _LiveStep:
    def __init__(self, title: str) -> None:
        self._title = title
        self._detail = ""
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def detail(self, text: str) -> None:
        """Show this behind the title."""
        self._detail = text

    def draw(self) -> RenderableType:
        """Draw a line with a turning mark, the title, the time and the detail."""
        busy = f" {self.seconds:.0f} s{f' · {self._detail}' if self._detail else ''}"
        self._spinner.update(text=Text.assemble(self._title, (busy, "dim")))
        return self._spinner
