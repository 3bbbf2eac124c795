"""Targets of the Makefile that are seldom run name files that are there: `make soak` takes hours to find out."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_makefile_names_is_there() -> None:
    named = set(re.findall(r"\b(?:tests|scripts|bench)/[\w./-]+", (ROOT / "Makefile").read_text()))
    assert len(named) > 10
    assert {it for it in named if not (ROOT / it).exists()} == set()
