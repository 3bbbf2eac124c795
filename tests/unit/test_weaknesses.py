"""The page of weaknesses tells no tales: it has every number, and every test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "weaknesses.md"
ROW = re.compile(r"^\| ([WS]?\d+) \| (.+?) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+|Test\w+)`")
OPEN = re.compile(r"\*\*Open( \(later\))?:\*\*")
NUMBERS = [
    *(str(it) for it in range(1, 38)),  # of slurm-bridge
    *(f"W{it}" for it in range(1, 42)),  # of slurm-operator
    *(f"S{it}" for it in range(1, 48)),  # of soperator
]


def rows() -> dict[str, tuple[str, str]]:
    return {number: (sentence, shown) for number, sentence, shown in ROW.findall(PAGE.read_text())}


@cache
def names_in(file: Path) -> frozenset[str]:
    """Find the tests of a file: functions, and machines that Hypothesis drives."""
    body = ast.parse(file.read_text()).body
    functions = (it.name for it in body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef))
    assigned = (it.targets[0] for it in body if isinstance(it, ast.Assign))
    machines = (it.id for it in assigned if isinstance(it, ast.Name) and it.id.startswith("Test"))
    return frozenset((*functions, *machines))


def test_every_number_is_there_once() -> None:
    assert list(rows()) == NUMBERS
    assert len(ROW.findall(PAGE.read_text())) == len(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_line_is_shown_by_tests_that_exist(number: str) -> None:
    sentence, shown = rows()[number]
    named = NAMED.findall(shown)
    assert not NAMED.sub("", shown).strip(), "something in the last column names no test"
    assert named or OPEN.search(sentence), "neither a test nor what is missing"
    for file, name in named:
        assert name in names_in(TESTS / file), f"there is no {file}::{name}"
