"""The page about the architecture shows the tree as it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted((ROOT / "docs").glob("path-*.svg"))


@pytest.mark.parametrize("name", ["importgraph", "texts"])  # the imports and the messages of today
def test_what_is_made_from_the_source_is_up_to_date(name: str) -> None:
    script = ROOT / "scripts" / name
    done = subprocess.run([sys.executable, script, "--check"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", PAGE))))
def test_every_file_that_the_page_names_is_there(path: str) -> None:
    assert (ROOT / "src" / "isthmus" / path).exists()


@pytest.mark.parametrize("drawing", PATHS, ids=lambda it: it.stem)
def test_every_file_on_a_path_that_is_drawn_is_there(drawing: Path) -> None:
    files = set(re.findall(r"[a-z_0-9/]+\.py\b", drawing.read_text()))
    assert files
    assert not [it for it in files if not (ROOT / "src" / "isthmus" / it).exists()]
