"""A terminal for `isthmus top`: keys in, lines out. What they mean is decided in `domain.views.screen`.

Reading both worlds takes seconds where a server is slow, so a thread does it: keys are answered at once. What was
read last stays on the screen while nothing newer comes, with its age and the reason.
"""

import curses
import locale
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from isthmus.domain.views import screen
from isthmus.domain.views.screen import Intent, Line, Screen, Table, Tone
from isthmus.errors import IsthmusError, Terminal

Look = Callable[[], tuple[str, list[str], dict[str, Table]]]
Explain = Callable[[Intent, str], tuple[str, ...]]
"""What is shown of a job, pod or node: why it waits, or its log."""

Wish = tuple[Intent, str]
LOOK: Final[Wish] = (Intent.READ, "")

_BLINK_MS: Final = 200
_KEYS: Final = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_PPAGE: "pageup",
    curses.KEY_NPAGE: "pagedown",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    "\n": "enter",
    "\r": "enter",
    "\t": "tab",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\b": "backspace",
}
_COLOURS: Final = {Tone.GOOD: curses.COLOR_GREEN, Tone.WAITS: curses.COLOR_YELLOW, Tone.BAD: curses.COLOR_RED}
_ATTRIBUTES: Final = {Tone.HEAD: curses.A_BOLD, Tone.CURSOR: curses.A_REVERSE, Tone.DIM: curses.A_DIM}


def run(look: Look, explain: Explain, *, interval: float, colours: bool) -> None:
    """Show it until the user leaves."""
    locale.setlocale(locale.LC_ALL, "")
    curses.set_escdelay(50)
    try:
        curses.wrapper(lambda window: _Terminal(window, look, explain, interval, colours=colours).run())
    except curses.error as error:
        raise Terminal(
            f"this terminal cannot show it: {error}", remedy="set TERM, or print it: isthmus top --once"
        ) from error
    except KeyboardInterrupt:
        return


class _Reader(threading.Thread):
    """Reads when it is asked to, and when the time has come."""

    def __init__(self, look: Look, explain: Explain, interval: float) -> None:
        super().__init__(daemon=True)
        self._look, self._explain, self._interval = look, explain, interval
        self.wishes: queue.SimpleQueue[Wish] = queue.SimpleQueue()
        self.title, self.trouble = "Reading Slurm and Kubernetes …", ""
        self.notes: list[str] = []
        self.tables: dict[str, Table] = {}
        self.read_at = 0.0
        self.explained: tuple[Wish, tuple[str, ...]] = (LOOK, ())
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised again where the terminal has been restored
            self.failure = error

    def _work(self) -> None:
        self._read()
        while True:
            try:
                wish = self.wishes.get(timeout=self._interval)
            except queue.Empty:
                wish = LOOK
            if wish == LOOK:
                self._read()
            else:
                self.explained = (wish, self._explain(*wish))

    def _read(self) -> None:
        try:
            title, notes, tables = self._look()
        except IsthmusError as error:
            self.trouble = error.what
            return
        self.title, self.notes, self.tables = title, notes, tables
        self.trouble, self.read_at = "", time.monotonic()


class _Terminal:
    def __init__(
        self, window: curses.window, look: Look, explain: Explain, interval: float, *, colours: bool
    ) -> None:
        self._window = window
        self._reader = _Reader(look, explain, interval)
        self._interval = interval
        self._screen = Screen()
        self._wanted = LOOK
        self._encoding = locale.getpreferredencoding(do_setlocale=False)
        self._styles = dict(_ATTRIBUTES)
        if colours and curses.has_colors():
            curses.use_default_colors()
            for number, (tone, colour) in enumerate(_COLOURS.items(), 1):
                curses.init_pair(number, colour, -1)
                self._styles[tone] = curses.color_pair(number)
        curses.curs_set(0)
        window.timeout(_BLINK_MS)
        window.keypad(True)  # noqa: FBT003 - curses takes no keywords

    def run(self) -> None:
        self._reader.start()
        while True:
            if self._reader.failure:
                raise self._reader.failure
            if self._wanted != LOOK and self._reader.explained[0] == self._wanted:
                self._screen = screen.opened(
                    self._screen, self._reader.explained[1], self._wanted[0], height=self._window.getmaxyx()[0]
                )
                self._wanted = LOOK
            self._draw()
            try:
                pressed = self._window.get_wch()
            except curses.error:
                continue  # no key within the time
            if not self._pressed(pressed):
                return

    def _pressed(self, pressed: int | str) -> bool:
        key = _KEYS.get(pressed, pressed if isinstance(pressed, str) else "")
        if not key:
            return True
        table = self._reader.tables.get(self._screen.view, Table())
        height, _ = self._window.getmaxyx()
        self._screen, intent = screen.press(self._screen, key, table, height=height)
        match intent:
            case Intent.QUIT:
                return False
            case Intent.READ:
                self._reader.wishes.put(LOOK)
            case Intent.WHY | Intent.LOG:
                self._wanted = (intent, screen.chosen(self._screen, table))
                self._reader.explained = (LOOK, ())
                self._reader.wishes.put(self._wanted)
        return True

    def _draw(self) -> None:
        height, width = self._window.getmaxyx()
        reader = self._reader
        notes = [reader.trouble] if reader.trouble else list(reader.notes)
        age = time.monotonic() - reader.read_at if reader.read_at else 0
        if age > 3 * self._interval:
            notes.append(f"(as of {age:.0f} s ago)")
        if self._wanted != LOOK:
            notes.append(f"looking up {self._wanted[1]} …")
        # A character in the last column of the last line would scroll the screen.
        lines = screen.draw(
            self._screen, reader.tables, title=reader.title, notes=notes, height=height, width=width - 1
        )
        self._window.erase()
        for number, line in enumerate(lines):
            self._write(number, line, width - 1)
        self._window.refresh()

    def _write(self, number: int, line: Line, width: int) -> None:
        text = line.text.ljust(width) if line.tone is Tone.CURSOR else line.text
        plain = text.encode(self._encoding, "replace").decode(self._encoding)
        self._window.addstr(number, 0, plain, self._styles.get(line.tone, curses.A_NORMAL))
