"""The screen of `isthmus top`: keys move, filter and open; lines never outgrow the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.views import screen
from isthmus.domain.views.screen import Intent, Screen, Table, Tone

COUNT = 30
ROWS = Table(
    "ID NAME",
    tuple(f"{number:02d} {'even' if number % 2 == 0 else 'odd'}" for number in range(COUNT)),
    tuple(f"job/{number}" for number in range(COUNT)),
    (Tone.GOOD,) * COUNT,
)
HEIGHT = 10


def typed(*keys: str, begin: Screen | None = None, table: Table = ROWS) -> tuple[Screen, Intent]:
    state, intent = begin or Screen(), Intent.NOTHING
    for key in keys:
        state, intent = screen.press(state, key, table, height=HEIGHT)
    return state, intent


def text(state: Screen, table: Table = ROWS, notes: tuple[str, ...] = ()) -> list[str]:
    tables = {"jobs": table, "nodes": Table("NAME")}
    return [it.text for it in screen.draw(state, tables, title="title", notes=notes, height=HEIGHT, width=40)]


@pytest.mark.parametrize(
    ("keys", "ref"),
    [
        (("down", "down"), "job/2"),
        (("j", "j", "k"), "job/1"),
        (("up",), "job/0"),
        (("G",), "job/29"),
        (("G", "g"), "job/0"),
        (("pagedown",), "job/6"),
        (("end", "pageup"), "job/23"),
        (("/", "o", "d", "d", "enter", "down"), "job/3"),
    ],
)
def test_keys_move_the_cursor(keys: tuple[str, ...], ref: str) -> None:
    assert screen.chosen(typed(*keys)[0], ROWS) == ref


def test_the_cursor_stays_on_its_row_when_others_go() -> None:
    state, _ = typed("down", "down", "down")
    fewer = Table(ROWS.head, ROWS.lines[2:], ROWS.refs[2:], ROWS.tones[2:])
    assert screen.chosen(state, fewer) == "job/3"
    assert screen.chosen(state, Table("ID NAME", ("x",), ("job/99",), (Tone.PLAIN,))) == "job/99"
    assert not screen.chosen(state, Table("ID NAME"))


def test_a_filter_is_typed_corrected_and_removed() -> None:
    state, _ = typed("/", "e", "v", "q", "backspace")
    assert (state.filter, state.typing) == ("ev", "/")
    shown = text(state)
    assert shown[-1] == "/ev▏"
    assert all("even" in line for line in shown[3:-1])
    assert typed("enter", begin=state)[0].filter == "ev"
    assert typed("escape", begin=state)[0] == Screen()
    assert typed("/", "z", "enter", "escape")[0].filter == ""
    assert "No jobs match." in text(typed("/", "z", "enter")[0])


def test_enter_asks_why_and_escape_comes_back() -> None:
    state, intent = typed("down", "enter")
    assert intent is Intent.WHY
    detail = Screen(cursor=state.cursor, ref=state.ref, detail=tuple(f"line {n}" for n in range(20)))
    assert "line 0" in text(detail)
    assert "line 19" in text(typed("G", begin=detail)[0])
    assert typed("escape", begin=detail)[0] == state
    assert typed("enter", table=Table())[1] is Intent.NOTHING


def test_other_keys() -> None:
    assert typed("q")[1] is Intent.QUIT
    assert typed("r")[1] is Intent.READ
    assert typed("tab")[0].view == "nodes"
    assert typed("tab", "tab", "tab")[0].view == "jobs"
    assert typed("3")[0].view == "people"
    assert typed("?")[0].detail == screen.HELP
    assert typed("?", "escape")[0].detail is None
    assert typed("ß", "F5")[0].filter == ""


@pytest.mark.parametrize(
    ("command", "view", "intent"),
    [
        ("nodes", "nodes", Intent.NOTHING),
        ("pe", "people", Intent.NOTHING),
        ("q", "jobs", Intent.QUIT),
        ("nonsense", "jobs", Intent.NOTHING),
        ("", "jobs", Intent.NOTHING),
    ],
)
def test_commands_are_typed_as_in_k9s(command: str, view: str, intent: Intent) -> None:
    state, told = typed(":", *command, "enter")
    assert (state.view, state.typing, state.filter, told) == (view, "", "", intent)
    assert text(typed(":", "n", "o")[0])[-1].startswith(":no▏")
    assert typed(":", "n", "backspace", "backspace")[0] == Screen()


def test_a_log_is_shown_from_its_end_and_a_person_by_their_jobs() -> None:
    assert typed("l")[1] is Intent.LOG
    lines = tuple(f"line {n}" for n in range(20))
    assert "line 19" in text(screen.opened(Screen(), lines, Intent.LOG, height=HEIGHT))
    assert "line 0" in text(screen.opened(Screen(), lines, Intent.WHY, height=HEIGHT))
    people = Table("USER", ("ann",), ("user/ann",), (Tone.GOOD,))
    state, intent = typed("enter", begin=Screen(view="people"), table=people)
    assert (state.view, state.filter, intent) == ("jobs", "ann", Intent.NOTHING)
    nodes = Table("NAME", ("n1",), ("node/n1",), (Tone.GOOD,))
    assert typed("l", begin=Screen(view="nodes"), table=nodes)[1] is Intent.NOTHING


def test_what_is_wrong_stands_above_the_table() -> None:
    assert text(Screen(), notes=("Slurm cannot be read: away",))[1] == "Slurm cannot be read: away"


@given(
    st.lists(
        st.sampled_from(
            ["up", "down", "G", "g", "/", "o", "enter", "escape", "tab", "pagedown", "x", ":", "?", "l"]
        )
    ),
    st.integers(1, 60),
    st.integers(0, 60),
)
def test_lines_fit_every_terminal(keys: list[str], height: int, width: int) -> None:
    state, _ = typed(*keys)
    tables = {"jobs": ROWS, "nodes": Table("NAME")}
    lines = screen.draw(state, tables, title="t" * 99, notes=("n" * 99,), height=height, width=width)
    assert len(lines) == height
    assert all(len(it.text) <= width for it in lines)
