"""The script of placeholder jobs, run by the shell that runs it on nodes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from isthmus.domain.bridge import placeholder


@pytest.fixture
def script(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The script while it waits, in a session of its own, as Slurm starts it."""
    file = tmp_path / "script"
    # It has set its traps when it begins to wait, and no test needs to guess when that is.
    file.write_text(placeholder.SCRIPT.replace("    wait $!", "    echo waits\n    wait $!"))
    file.chmod(0o755)
    with subprocess.Popen([file], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == b"waits\n"
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(("name", "code"), [("URG", 0), ("WINCH", 1)])
def test_it_ends_as_it_is_told(script: subprocess.Popen[bytes], name: str, code: int) -> None:
    script.send_signal(signal.Signals[f"SIG{name}"])
    assert script.wait(60) == code


@pytest.mark.parametrize(("name", "code"), [("URG", 0), ("WINCH", 1)])
def test_it_ends_as_it_is_told_also_if_its_children_are_told_the_same(
    script: subprocess.Popen[bytes], name: str, code: int
) -> None:
    os.killpg(script.pid, signal.Signals[f"SIG{name}"])
    assert script.wait(60) == code


def test_slurm_is_given_the_same_signals() -> None:
    assert placeholder.SUCCEED == "URG"
    assert int(placeholder.FAIL) == signal.SIGWINCH


def test_it_goes_on_if_only_its_sleep_ends(script: subprocess.Popen[bytes]) -> None:
    (child,) = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert script.stdout
    assert script.stdout.readline() == b"waits\n"
    assert script.poll() is None


def test_a_cancelled_job_ends_by_its_signal(script: subprocess.Popen[bytes]) -> None:
    script.terminate()
    assert script.wait(60) == -signal.SIGTERM
