"""The version is the same wherever it stands."""

import re
from pathlib import Path

import pytest
import yaml

from isthmus import __version__

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("chart", sorted((ROOT / "charts").glob("*/Chart.yaml")), ids=lambda it: it.parent.name)
def test_charts_have_the_version_of_the_package(chart: Path) -> None:
    assert yaml.safe_load(chart.read_text())["version"] == __version__


def test_the_changelog_begins_with_what_comes_and_then_has_this_version() -> None:
    found = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert found[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d{{2}}-\d{{2}}", found[1])


def test_every_heading_of_a_version_is_one_of_keep_a_changelog() -> None:
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)) <= kinds
