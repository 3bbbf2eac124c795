"""What is asked of `up` against what is there, and `down` on whatever is left of a cluster."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import cgroups, lifecycle, state
from isthmus.local.cluster import RESTART
from isthmus.local.delegation import group_of
from isthmus.local.machine import watchers_of
from isthmus.local.progress import PlainProgress
from isthmus.local.state import PublishedPort, Settings
from tests.unit.local.conftest import eventually

OLD = Settings("demo", slot=4, workers=2, slurm="26.05", publish=(PublishedPort(40022, 30022),))


def with_ports(asked: list[PublishedPort] | None, old: Settings | None = OLD) -> tuple[PublishedPort, ...]:
    settings = old or Settings("demo", slot=0, workers=1, slurm="26.05")
    return lifecycle._with_ports(settings, old, asked, PlainProgress()).publish


@pytest.mark.usefixtures("state_home")
def test_a_new_cluster_is_what_was_asked_or_the_usual() -> None:
    assert lifecycle._new("demo", None, None) == Settings("demo", slot=0, workers=3, slurm="26.05")
    assert lifecycle._new("demo", 1, "24.11") == Settings("demo", slot=0, workers=1, slurm="24.11")


@pytest.mark.usefixtures("state_home")
@pytest.mark.parametrize("workers", [0, -1, 16, 1000])
def test_impossible_numbers_of_workers_are_refused(workers: int) -> None:
    with pytest.raises(Terminal, match=rf"1 to 15 workers, not {workers}\n  → "):
        lifecycle._new("demo", workers, None)


def test_a_cluster_grows_but_neither_shrinks_nor_changes_its_slurm() -> None:
    assert lifecycle._changed(OLD, None, None) == OLD
    assert lifecycle._changed(OLD, 5, "26.05").workers == 5
    with pytest.raises(Terminal, match=r"cannot shrink to 1\n  → isthmus down --name demo"):
        lifecycle._changed(OLD, 1, None)
    with pytest.raises(Terminal, match=r"has Slurm 26.05, not 24.11\n  → isthmus down --name demo"):
        lifecycle._changed(OLD, None, "24.11")


def test_ports_stay_unless_others_are_asked_for_and_none_is_taken_twice(port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(Terminal, match=rf"port {port} of localhost is in use\n  → .*--publish 40022:30080"):
            with_ports([PublishedPort(port, 30080)])
    free = PublishedPort(port, 30080)
    assert with_ports(None) == OLD.publish
    assert with_ports([]) == ()
    assert with_ports([free, *OLD.publish]) == (free, *OLD.publish)
    with pytest.raises(Terminal, match=rf"port {port} of localhost is given twice"):
        with_ports([free, PublishedPort(port, 30081)])


def test_a_new_cluster_goes_without_ssh_when_its_port_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: int
) -> None:
    ssh = PublishedPort(port, 30022)
    monkeypatch.setattr(lifecycle, "_SSH", ssh)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert with_ports(None, old=None) == ()
    assert f"port {ssh.host} of localhost is in use: for SSH choose another" in capsys.readouterr().err
    assert with_ports(None, old=None) == (ssh,)


@pytest.mark.parametrize("settings", [None, b"", b'{"slot": 1'])
def test_down_removes_half_a_cluster_whatever_its_settings_say(
    state_home: Path, group: str, settings: bytes | None
) -> None:
    name = group.removeprefix("isthmus/")
    home = state_home / name
    (home / "nodes").mkdir(parents=True)
    if settings is not None:
        (home / "cluster.json").write_bytes(settings)
    cgroups.make(f"{group}/node/system")
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        for members in cgroups.members(f"{group}/node/system"):
            members.write_text(str(sleeper.pid))
        lifecycle.down(name, PlainProgress())
        eventually(lambda: sleeper.poll() is not None)
    assert not state_home.exists()
    assert not cgroups.exists(group)


def test_down_does_not_overlook_who_comes_in_when_all_others_are_gone(
    state_home: Path, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, below, count = group.removeprefix("isthmus/"), f"{group}/node/system", cgroups.processes
    (state_home / name).mkdir(parents=True)
    cgroups.make(below)
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as late:

        def come_in(process: "subprocess.Popen[bytes]") -> None:
            for members in cgroups.members(below):
                members.write_text(str(process.pid))

        def count_and_come_in(path: str) -> set[int]:
            found = count(path)
            if not found:
                with suppress(FileNotFoundError):  # where the group is gone already, as it is for a machine
                    come_in(late)
            return found

        come_in(first)
        monkeypatch.setattr(cgroups, "processes", count_and_come_in)
        try:
            lifecycle.down(name, PlainProgress())
        finally:
            late.kill()
    assert not cgroups.exists(group)


@pytest.mark.usefixtures("state_home")
def test_down_of_no_cluster_says_so() -> None:
    with pytest.raises(Terminal, match="there is no cluster 'nowhere'"):
        lifecycle.down("nowhere", PlainProgress())


@pytest.mark.usefixtures("state_home")
def test_the_settings_go_first_so_that_half_a_cluster_is_none() -> None:
    state.save(OLD)
    state.forget("demo")
    state.forget("demo")
    assert state.names() == []
    assert state.directory("demo").exists()


HOLDING = """
import sys, time
from isthmus.local import state
with state.exclusive(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_down_ends_a_restart_that_holds_the_lock(group: str) -> None:
    del group  # which has systemd left out
    name = f"unit-{os.getpid():07}"
    watchers = watchers_of(group_of(name))
    cgroups.make(watchers)
    words = [sys.executable, "-c", HOLDING, name, RESTART]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        for procs in cgroups.members(watchers):
            procs.write_text(str(process.pid))
        lifecycle.down(name, PlainProgress())
        assert process.wait() == -signal.SIGKILL
    assert not cgroups.exists(group_of(name))
