import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import host
from isthmus.local.progress import PlainProgress


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has none of the programs, whatever this one has."""
    monkeypatch.setattr(host, "_NEEDED", {"no-such-program": "package-a", str(tmp_path / "absent"): "package-b"})


def test_nothing_is_missing_from_a_machine_that_has_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_NEEDED", {"sh": "dash", str(tmp_path): "something"})
    assert host.missing_packages() == []


@pytest.mark.usefixtures("bare")
def test_missing_programs_and_files_are_told_by_their_packages() -> None:
    assert host.missing_packages() == ["package-a", "package-b"]


@pytest.mark.usefixtures("bare")
def test_a_system_without_apt_is_told_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Terminal, match=r"no apt-get, and these are missing: package-a, package-b\n  → use Debian"):
        host.check_system()


@pytest.mark.usefixtures("bare")
def test_packages_are_installed_when_whoever_uses_apt_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "apt-get").write_text(f"""#!/bin/sh
echo "$*" >> {asked}
[ $(wc -l < {asked}) -gt 2 ] || {{ echo "E: Could not get lock /x. It is held by process 7" >&2; exit 100; }}
[ "$2" != install ] || {{ echo "E: Unable to locate package" >&2; exit 100; }}
""")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Terminal, match=r"E: Unable to locate package\n  → check that apt-get can reach its mirror"):
        host.ensure_packages(PlainProgress())
    install = "-qq install --yes --no-install-recommends package-a package-b"
    assert asked.read_text().splitlines() == ["-qq update"] * 3 + [install]


def test_who_is_not_root_is_told_to_use_sudo() -> None:
    # Root until all is imported: nobody else may be able to read this directory.
    script = "import os; from isthmus.local import host; os.setresuid(65534, 65534, 65534); host.check_system()"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert "needs root\n  → run the same command with sudo" in done.stderr


def test_another_system_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(Terminal, match=r"needs Linux, this is Darwin\n  → use a Debian 12 machine"):
        host.check_system()


def test_too_small_a_disk_is_told_with_both_figures(tmp_path: Path) -> None:
    not_yet = tmp_path / "not" / "yet" / "made"
    host.check_disk(not_yet, needed=1)
    with pytest.raises(
        Terminal, match=rf"disk of {not_yet} has \d+\.\d GiB free, a cluster needs 1048576 GiB\n  → free"
    ):
        host.check_disk(not_yet, needed=2**50)


def test_a_full_disk_is_seen_on_the_mount_itself(tmp_path: Path) -> None:
    script = f"""
mount -t tmpfs -o size=1m tmpfs {tmp_path}
exec {sys.executable} -c 'import pathlib, isthmus.local.host as h; h.check_disk(pathlib.Path("{tmp_path}/x"))'
"""
    done = subprocess.run(["unshare", "--mount", "sh", "-ec", script], check=False, capture_output=True, text=True)
    assert "0.0 GiB free, a cluster needs 2 GiB" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_port_is_free_until_somebody_listens_on_it(address: str, port: int) -> None:
    assert host.port_is_free(port)
    with socket.socket() as taken:
        taken.bind((address, port))
        taken.listen()
        assert not host.port_is_free(port)
    assert host.port_is_free(port)


def test_a_process_without_the_right_to_protect_itself_knows_it() -> None:
    script = "from isthmus.local import host; print(host.can_lower_oom_score())"
    without = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
    done = subprocess.run([*without, sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_the_limit_of_watches_is_raised_and_never_lowered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    host.allow_many_watches(PlainProgress(), limit=limit)
    assert limit.read_text() == "1024"
    assert "fs.inotify.max_user_instances=1024 (it was 128)" in "".join(capsys.readouterr())
    limit.write_text("8192\n")
    host.allow_many_watches(PlainProgress(), limit=limit)
    assert limit.read_text() == "8192\n"
