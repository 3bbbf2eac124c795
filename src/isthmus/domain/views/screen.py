"""The screen of `isthmus top`, without a terminal: which key does what, and which lines are shown.

jobs ─ tab ─► nodes ─ tab ─► people ─ tab ─► jobs      also 1 2 3, and :jobs :nodes :people
│ enter, d    │ enter, d    │ enter
▼             ▼             ▼
why           what is known jobs of that user           until escape; l shows a log

Keys are those of k9s: / types a filter, : a command, ? shows help, arrows and j k g G move, r reads, q leaves.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

VIEWS: Final = ("jobs", "nodes", "people")
_HEADER: Final = 3
"""Lines above the table: the title, notes, and the heads of columns."""
_FOOTER: Final = 1
_KEYS: Final = "tab view   enter why   l log   / filter   : command   ? help   q quit"
_KEYS_OF_DETAIL: Final = "↑↓ scroll   esc back   q quit"


HELP: Final = (
    "enter, d       why it waits, who is in its way, what would help; of a node, what is known of it",
    "l              log of a job or pod, its last lines",
    "tab, 1 2 3     jobs, nodes, people; enter on a person shows their jobs",
    "/              filter; escape removes it",
    ":              command: jobs, nodes, people, q",
    "j k, arrows    down, up; g G: first, last; page up and down",
    "r              read Slurm and Kubernetes again",
    "escape         back",
    "q              quit",
)
_COMMAND: Final = ":"


class Tone(StrEnum):
    PLAIN = "plain"
    GOOD = "good"
    WAITS = "waits"
    BAD = "bad"
    HEAD = "head"
    CURSOR = "cursor"
    DIM = "dim"


class Intent(StrEnum):
    """What a key asks for that the screen cannot do by itself."""

    NOTHING = "nothing"
    QUIT = "quit"
    READ = "read"
    WHY = "why"
    LOG = "log"


class Line(msgspec.Struct, frozen=True):
    text: str
    tone: Tone = Tone.PLAIN


class Table(msgspec.Struct, frozen=True):
    """Rows that are already aligned below their heads, with what each of them is."""

    head: str = ""
    lines: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    tones: tuple[Tone, ...] = ()

    def matching(self, text: str) -> "Table":
        """The rows in which this occurs."""
        if not text:
            return self
        wanted = text.casefold()
        kept = [number for number, line in enumerate(self.lines) if wanted in line.casefold()]
        return Table(
            self.head,
            tuple(self.lines[it] for it in kept),
            tuple(self.refs[it] for it in kept),
            tuple(self.tones[it] for it in kept),
        )


class Screen(msgspec.Struct, frozen=True):
    view: str = VIEWS[0]
    cursor: int = 0
    ref: str = ""
    """What the cursor is on: it stays there when rows come and go."""
    filter: str = ""
    typing: str = ""
    """`/` while a filter is typed, `:` while a command is."""
    command: str = ""
    detail: tuple[str, ...] | None = None
    """An explanation, shown instead of the table."""
    scroll: int = 0


def press(screen: Screen, key: str, table: Table, *, height: int) -> tuple[Screen, Intent]:
    """What a key does. Keys are characters, or names such as `up` and `enter`."""
    if screen.typing:
        return _commanded(screen, key) if screen.typing == _COMMAND else (_typed(screen, key), Intent.NOTHING)
    if key == "q":
        return screen, Intent.QUIT
    if screen.detail is not None:
        return _in_detail(screen, key, height), Intent.NOTHING
    if key == "r":
        return screen, Intent.READ
    if key in _OPENING:
        return _opened(screen, key, table)
    return _in_table(screen, key, table.matching(screen.filter), height), Intent.NOTHING


_OPENING: Final = frozenset({"enter", "d", "l"})


def _opened(screen: Screen, key: str, table: Table) -> tuple[Screen, Intent]:
    kind, _, name = chosen(screen, table).partition("/")
    if kind == "user":
        return Screen(filter=name), Intent.NOTHING
    if key == "l":
        return screen, Intent.LOG if kind in {"job", "pod"} else Intent.NOTHING
    return screen, Intent.WHY if kind else Intent.NOTHING


def _commanded(screen: Screen, key: str) -> tuple[Screen, Intent]:
    """A command is the beginning of a view's name, or of quit."""
    done = msgspec.structs.replace(screen, typing="", command="")
    if key == "enter":
        if screen.command and "quit".startswith(screen.command):
            return done, Intent.QUIT
        found = next((it for it in VIEWS if screen.command and it.startswith(screen.command)), None)
        return (Screen(view=found) if found else done), Intent.NOTHING
    if key == "escape" or (key == "backspace" and not screen.command):
        return done, Intent.NOTHING
    if key == "backspace":
        return msgspec.structs.replace(screen, command=screen.command[:-1]), Intent.NOTHING
    if len(key) == 1 and key.isprintable():
        return msgspec.structs.replace(screen, command=screen.command + key), Intent.NOTHING
    return screen, Intent.NOTHING


def position(screen: Screen, shown: Table) -> int:
    """Where the cursor is: on what it was on, or else as far down as it was."""
    if screen.ref in shown.refs:
        return shown.refs.index(screen.ref)
    return min(screen.cursor, max(0, len(shown.refs) - 1))


def chosen(screen: Screen, table: Table) -> str:
    """What the cursor is on; empty where there is nothing."""
    shown = table.matching(screen.filter)
    return shown.refs[position(screen, shown)] if shown.refs else ""


def opened(screen: Screen, lines: tuple[str, ...], what: Intent, *, height: int) -> Screen:
    """Show an explanation from its beginning, and a log from its end."""
    end = max(0, len(lines) - _room(height)) if what is Intent.LOG else 0
    return msgspec.structs.replace(screen, detail=lines, scroll=end)


def draw(
    screen: Screen, tables: Mapping[str, Table], *, title: str, notes: Sequence[str], height: int, width: int
) -> list[Line]:
    """The lines of the screen, none of them wider and not more of them than fit."""
    note = Line(" ".join(notes), Tone.BAD) if notes else Line("")
    if screen.detail is not None:
        shown = screen.detail[screen.scroll : screen.scroll + _room(height)]
        body = [Line(""), *map(Line, shown)]
        return _fit([Line(title, Tone.HEAD), note, *body], _KEYS_OF_DETAIL, height, width)
    table = tables.get(screen.view, Table()).matching(screen.filter)
    at, room = position(screen, table), _room(height)
    first = max(0, min(at - room // 2, len(table.lines) - room))
    rows = [
        Line(text, Tone.CURSOR if number == at else tone)
        for number, (text, tone) in enumerate(zip(table.lines, table.tones, strict=True))
    ]
    empty = (
        [] if rows or not table.head else [Line(f"No {screen.view}{' match' if screen.filter else ''}.", Tone.DIM)]
    )
    body = [Line(table.head, Tone.HEAD), *(rows[first : first + room] or empty)]
    footer = f"/{screen.filter}{'▏' if screen.typing else '   esc removes it   q quit'}"
    keys = footer if screen.typing or screen.filter else _KEYS
    if screen.typing == _COMMAND:
        keys = f":{screen.command}▏   {'   '.join(VIEWS)}   q"
    return _fit([Line(title, Tone.HEAD), note, *body], keys, height, width)


def _in_detail(screen: Screen, key: str, height: int) -> Screen:
    if key in {"escape", "enter", "left"}:
        return msgspec.structs.replace(screen, detail=None, scroll=0)
    last = max(0, len(screen.detail or ()) - _room(height))
    return msgspec.structs.replace(screen, scroll=min(last, max(0, screen.scroll + _step(key, height, last))))


def _in_table(screen: Screen, key: str, shown: Table, height: int) -> Screen:
    match key:
        case "/" | ":":
            return msgspec.structs.replace(screen, typing=key)
        case "?":
            return msgspec.structs.replace(screen, detail=HELP)
        case "escape":
            return msgspec.structs.replace(screen, filter="")
        case "tab":
            return Screen(view=VIEWS[(VIEWS.index(screen.view) + 1) % len(VIEWS)])
        case "1" | "2" | "3":
            return Screen(view=VIEWS[int(key) - 1])
    last = max(0, len(shown.refs) - 1)
    at = min(last, max(0, position(screen, shown) + _step(key, height, last)))
    return msgspec.structs.replace(screen, cursor=at, ref=shown.refs[at] if shown.refs else "")


def _typed(screen: Screen, key: str) -> Screen:
    change = msgspec.structs.replace
    match key:
        case "enter":
            return change(screen, typing="")
        case "escape":
            return change(screen, typing="", filter="")
        case "backspace":
            return change(screen, filter=screen.filter[:-1])
    return change(screen, filter=screen.filter + key) if len(key) == 1 and key.isprintable() else screen


def _step(key: str, height: int, last: int) -> int:
    page = _room(height)
    steps = {
        "up": -1,
        "k": -1,
        "down": 1,
        "j": 1,
        "pageup": -page,
        "pagedown": page,
        "home": -last,
        "g": -last,
        "end": last,
        "G": last,
    }
    return steps.get(key, 0)


def _room(height: int) -> int:
    return max(1, height - _HEADER - _FOOTER)


def _fit(lines: list[Line], keys: str, height: int, width: int) -> list[Line]:
    filled = (lines + [Line("")] * height)[: max(0, height - _FOOTER)]
    return [Line(it.text[:width], it.tone) for it in (*filled, Line(keys, Tone.DIM))][:height]
