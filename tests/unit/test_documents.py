"""docs/documents.md keeps its word: the tests and the paths that it names are there."""

import re
from pathlib import Path

import pytest

from tests.unit.test_weaknesses import NAMED, TESTS, names_in

ROOT = TESTS.parent
PAGE = (ROOT / "docs" / "documents.md").read_text()
FILES = sorted({*re.findall(r"`((?:unit|flows|e2e)/[\w/]+\.py)", PAGE)})


@pytest.mark.parametrize("file", FILES)
def test_every_test_that_it_names_is_there(file: str) -> None:
    named = [name for path, name in NAMED.findall(PAGE) if path == file]
    assert set(named) <= names_in(TESTS / file)


def test_the_paths_that_the_documents_name_are_there() -> None:
    assert (ROOT / "helm-charts" / "slurm-cluster" / "Chart.yaml").is_file()
    scripts = ("01-check-cluster", "02-access-login", "03-slurm-status-real", "04-job-demo", "05-final-status")
    assert [it.stem for it in sorted(Path(ROOT / "examples" / "demo").glob("0*.sh"))] == list(scripts)
