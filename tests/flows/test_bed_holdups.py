"""Processes that are held up at random notice nothing of it but the time."""

import subprocess
import sys
from pathlib import Path

import pytest

_MANY = """
for i in {1..12}; do
    (for _ in {1..5}; do sleep 0.2; done; exit "$i") &
    jobs+=($!)
done
for i in {1..12}; do
    wait "${jobs[i - 1]}"
    [[ $? == "$i" ]] || echo "job $i ended otherwise"
done
exit 7
"""

_SEEN = """
for _ in {1..12}; do sleep infinity & done
cd /proc
until grep --quiet --no-messages 'tracing stop' $(jobs -p | sed 's,$,/status,'); do :; done
kill -KILL $(jobs -p)
"""

_STOPPED = """
look() { read -r _ _ state _ < "/proc/$!/stat"; }
for _ in {1..12}; do sleep infinity & done
kill -STOP $!
until look; [[ $state == T ]]; do sleep 0.1; done
for _ in {1..40}; do
    look
    [[ $state == T ]] || echo "it is $state"
    sleep 0.1
done
kill -KILL $(jobs -p)
"""


def held_up(script: str, *, within: Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "tests.bed.holdups", "bash", "-c", f"cd {within}\n{script}"]
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])


def test_everything_ends_as_it_would(tmp_path: Path) -> None:
    done = held_up(_MANY, within=tmp_path)
    assert (done.returncode, done.stdout) == (7, "")


def test_processes_are_held_up(tmp_path: Path) -> None:
    done = held_up(_SEEN, within=tmp_path)
    assert done.returncode == 0
    assert "sleep" in done.stderr, "it tells whom"


def test_who_is_stopped_stays_stopped(tmp_path: Path) -> None:
    done = held_up(_STOPPED, within=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("KILL", 137)])
def test_a_command_that_is_killed_is_told_as_by_a_shell(tmp_path: Path, signal: str, code: int) -> None:
    assert held_up(f"kill -{signal} $$", within=tmp_path).returncode == code
