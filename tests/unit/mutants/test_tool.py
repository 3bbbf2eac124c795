"""The whole tool on a small checkout: it measures, breaks, asks and reports, and leaves the checkout as it was."""

import argparse
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.mutants import report
from tests.mutants.__main__ import run
from tests.mutants.judging import Verdict

SOURCE = """import sys

def double(number):
    if number == 0:
        return 0
    return number * 2

def untested():
    return 7

if __name__ == "__main__":
    sys.exit(double(0))
"""
TEST = """import subprocess, sys
from isthmus.small import double

def test_it_doubles():
    assert double(4) == 8

def test_a_process_ends_well():
    subprocess.run([sys.executable, "-m", "isthmus.small"], check=True)

def test_that_fails_anyway():
    assert double(1) == 3

def test_that_fails_now_and_then(pytestconfig):
    mark = pytestconfig.rootpath / "mark"
    times = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (times + 1))
    double(5)
    assert times != 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path, text in {
        "src/isthmus/__init__.py": "",
        "src/isthmus/small.py": SOURCE,
        "tests/__init__.py": "",
        "tests/bed/__init__.py": "",
        "tests/properties/__init__.py": "",
        "tests/unit/test_small.py": TEST,
        "pyproject.toml": "",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copytree(Path(sys.modules[run.__module__].__file__ or "").parent, tmp_path / "tests/mutants")
    return tmp_path


def test_faults_are_detected_survive_or_are_not_run(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A dozen runs of pytest, which spend half of their time on plugins that these tests do not use.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    options = argparse.Namespace(seed=1, count=99, jobs=1, flows=[], tests=checkout / "tests")
    verdicts = {it.diff.replace("    ", ""): it for it in run(checkout, options)}
    assert {diff: (it.outcome, it.noticed_by.rpartition("::")[2]) for diff, it in verdicts.items()} == {
        "-if number == 0:\n+if number != 0:": ("detected", "test_it_doubles"),
        "-if number == 0:\n+if number == 1:": ("survived", ""),
        "-return 0\n+return 1": ("detected", "test_a_process_ends_well"),
        "-return number * 2\n+return number * 3": ("detected", "test_it_doubles"),
        "-return 7\n+return 8": ("not run", ""),
    }
    assert (checkout / "src/isthmus/small.py").read_text() == SOURCE


def test_the_report_counts_and_shows_what_went_unnoticed() -> None:
    verdicts = [
        Verdict("a.py:1", "wrong constant", "-1\n+2", "unit", "tests/unit/test_a.py::t", asked=3, left_out=0),
        Verdict("a.py:2", "wrong constant", "-3\n+4", "flows", "", asked=2, left_out=5),
        Verdict("a.py:3", "wrong constant", "-5\n+6", "", "", asked=0, left_out=0),
        Verdict("a.py:4", "wrong constant", "-7\n+8", "flows", "(time)", asked=2, left_out=0),
    ]
    assert report.line(verdicts[0]) == "detected  unit   wrong constant      a.py:1 tests/unit/test_a.py::t"
    text = report.text(verdicts)
    assert "a.py:2: survived, 2 tests passed, 5 more run it (wrong constant)\n-3\n+4\n" in text
    assert "a.py:3: not run, no test of these rings runs it\n-5\n+6\n" in text
    assert "a.py:1" not in text
    told = json.loads(report.as_json(1, verdicts))
    assert (told["rate"], told["rate of those that tests run"], told["survived"]) == (50.0, 66.7, 1)
    assert told["verdicts"][2]["outcome"] == "not run"
