"""The one wait of all tests: what it looks over, what it raises, and what it tells."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.bed.commands import CommandError, attempt, checked
from tests.bed.waiting import eventually


def looks(*results: object) -> Callable[[], object]:
    """Make an observation that gives these one after the other; errors are raised, and the last stays."""
    coming: Iterator[object] = iter(results)
    last = results[-1]

    def observe() -> object:
        result = next(coming, last)
        if isinstance(result, Exception):
            raise result
        return result

    return observe


def test_what_was_seen_is_returned_as_soon_as_it_holds() -> None:
    assert eventually(looks(1, 2, 3), "two", holds=lambda it: it == 2) == 2
    assert eventually(looks("", [], "there"), "anything") == "there"


@pytest.mark.parametrize(
    "failure", [CommandError("refused"), ConnectionRefusedError(), subprocess.TimeoutExpired("ssh", 1.0)]
)
def test_what_fails_now_is_tried_again(failure: Exception) -> None:
    assert eventually(looks(failure, failure, "there"), "it to come") == "there"


@pytest.mark.parametrize(
    "mistake", [KeyError("status"), ValueError("4"), AttributeError("x"), TypeError("y"), AssertionError("z")]
)
def test_a_mistake_is_raised_at_once(mistake: Exception) -> None:
    with pytest.raises(type(mistake)):
        eventually(looks(mistake, "there"), "it to come")


def test_a_mistake_in_the_judgement_is_raised_at_once() -> None:
    with pytest.raises(KeyError):
        eventually(looks({}, {"phase": "Ready"}), "the phase", holds=lambda it: it["phase"] == "Ready")  # type: ignore[index]


def test_a_timeout_tells_what_was_waited_for_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError) as told:
        eventually(looks({"w-0": "idle"}, {"w-0": "down"}), "two idle workers", holds=lambda _: False, within=0.1)
    assert str(told.value) == "waited in vain for 0.1 s for two idle workers\nseen last: {'w-0': 'down'}"


def test_a_timeout_tells_of_the_last_failure_and_of_what_was_seen_before() -> None:
    with pytest.raises(AssertionError) as told:
        eventually(looks("idle*", CommandError("sinfo: exit code 1")), "idle", holds=lambda _: False, within=0.1)
    assert str(told.value).splitlines()[1:] == [
        "the last look failed: CommandError: sinfo: exit code 1",
        "seen before that: idle*",
    ]


def test_it_is_looked_at_least_once() -> None:
    assert eventually(looks("there"), "it", within=0) == "there"
    with pytest.raises(AssertionError, match="seen last: 0"):
        eventually(looks(0), "it", within=0)


def test_a_program_that_fails_says_what_was_run_and_what_it_printed() -> None:
    with pytest.raises(CommandError) as told:
        checked(attempt("/bin/sh", "-c", "echo out; echo err >&2; exit 3"))
    assert str(told.value) == "sh -c 'echo out; echo err >&2; exit 3': exit code 3\nout\nerr"
    assert checked(attempt("cat", stdin="through")) == "through"
