"""How containers wait: without a process each time, and probes that wait by themselves."""

import subprocess
import time
from pathlib import Path

import pytest

from isthmus.domain.operator.manifests.waitscripts import PAUSE, VERSION, startup_probe

NO_PROGRAMS = {"PATH": "/nonexistent"}


def bash(script: str, *words: str, flags: str = "-euc") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", flags, script, *words],
        capture_output=True,
        text=True,
        check=False,
        env=NO_PROGRAMS,
        timeout=60,
    )


def test_a_pause_takes_its_time_and_no_program() -> None:
    began = time.monotonic()
    done = bash(f"{PAUSE}pause 0.2; pause 0.2; echo on")
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")
    assert time.monotonic() - began >= 0.4


def test_who_follows_inherits_nothing_of_pauses() -> None:
    count = "opened=(/dev/fd/*); echo ${#opened[@]}"
    before, after = bash(f"{PAUSE}{count}; pause 0.01; end_of_pauses; {count}").stdout.split()
    assert before == after


_LOOKS = r"""
version "$0" one; version "$0" same; echo "$one" "$same" "$PWD"
read -r
version "$0" one; echo "$one"
"""


def test_files_that_are_replaced_have_another_version(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    link = tmp_path / "..data"
    link.symlink_to("first")
    words = ["/bin/bash", "-euc", f"{VERSION}{_LOOKS}", str(tmp_path)]
    with subprocess.Popen(
        words, cwd="/", text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=NO_PROGRAMS
    ) as shell:
        assert shell.stdin
        assert shell.stdout
        assert shell.stdout.readline().split() == [str(tmp_path / "first"), str(tmp_path / "first"), "/"]
        (tmp_path / "new").symlink_to("second")
        (tmp_path / "new").replace(link)
        shell.stdin.write("\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == f"{tmp_path / 'second'}\n"


def test_where_nothing_is_mounted_there_is_no_version(tmp_path: Path) -> None:
    done = bash(f'{VERSION}version {tmp_path} one; echo "<$one>"')
    assert (done.stdout, done.stderr) == ("<>\n", "")


def test_one_probe_waits_until_a_daemon_has_started(tmp_path: Path) -> None:
    flag = tmp_path / "started"
    probe = startup_probe(f"started() {{ [[ -e {flag} ]] || {{ : > {flag}; return 1; }}; }}", within=600)
    shell, flags, *words = probe["exec"]["command"]
    assert shell == "bash"
    assert bash(*words, flags=flags).returncode == 0  # at the second look
    assert probe["failureThreshold"] * int(words[-1]) == 600
    assert probe["timeoutSeconds"] > int(words[-1])


@pytest.mark.parametrize("patience", ["0", "1"])
def test_a_probe_fails_when_it_has_waited_long_enough(patience: str) -> None:
    shell, flags, script, name, _ = startup_probe("started() { return 1; }", within=600)["exec"]["command"]
    assert shell == "bash"
    assert bash(script, name, patience, flags=flags).returncode == 1
