"""The benchmarks start, and the operator's goes through with a few pods; the times that it takes say nothing."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.long

BENCH = Path(__file__).parents[3] / "bench"
SUBJECTS = sorted(path.name for path in BENCH.glob("*.py") if os.access(path, os.X_OK))


def run(subject: str, *words: str) -> tuple[str, str]:
    done = subprocess.run([BENCH / subject, *words], check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_benchmark_says_what_it_measures(subject: str) -> None:
    """None of their modules is taken for one of Python's own."""
    text, _ = run(subject, "--help")
    assert "--quick" in text


def test_nodesets_are_made_and_updated_with_few_requests() -> None:
    figures, notes = run("operator.py", "creation", "rollout", "--quick", "--json")
    found = {it["figure"]: it["measured"] for it in msgspec.json.decode(figures)}
    assert found["Rolling update of 20, a quarter at a time"] > 0
    # One to make it, one for each state of Slurm that it shows; a dozen for all together, and the status over time.
    shown = found["NodeSet of 50: states of Slurm shown on each pod"]
    told = 2 * found["NodeSet of 50: status is settled"]
    assert shown >= 1
    assert 1 + shown <= found["NodeSet of 50: API requests for each pod"] < 1 + shown + (15 + told) / 50, notes
