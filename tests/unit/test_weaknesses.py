"""The page of weaknesses tells no tales: it has every number, and every test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "weaknesses.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows() -> dict[int, tuple[str, list[tuple[str, str]]]]:
    return {
        int(number): (sentence, NAMED.findall(shown)) for number, sentence, shown in ROW.findall(PAGE.read_text())
    }


@cache
def functions_of(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(it.name for it in tree.body if isinstance(it, kinds))


def test_every_number_is_there_once() -> None:
    assert list(rows()) == list(range(1, 38))
    assert len(ROW.findall(PAGE.read_text())) == len(rows())


@pytest.mark.parametrize("number", range(1, 38))
def test_every_line_is_shown_by_tests_that_exist(number: int) -> None:
    sentence, named = rows()[number]
    assert named or "**Open:**" in sentence, "neither a test nor what is missing"
    for file, name in named:
        assert name in functions_of(TESTS / file), f"there is no {file}::{name}"
