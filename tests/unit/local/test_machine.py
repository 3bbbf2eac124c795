"""Machines are real here: namespaces, mounts and processes, made as root and gone within a second."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import cgroups
from isthmus.local import machine as module
from isthmus.local.controlplane import Part
from isthmus.local.machine import Machine, root_of
from tests.unit.local.conftest import eventually

SLEEPER = Part("sleeper", ("sleep", "600"), lambda: True)

# What is left of a process whose first thread has ended, and whose second one has not.
HEADLESS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def machine(tmp_path: Path, group: str) -> Iterator[Machine]:
    machine = Machine(tmp_path / "m", hostname="unit-machine", group=f"{group}/m", keep=(tmp_path,))
    machine.directory.mkdir()
    yield machine
    machine.halt()


def programs(machine: Machine) -> list[str]:
    """The names of all processes inside. A daemon has that of the shell until it has become what it is to be."""
    assert machine.init
    found = []
    for comm in (root_of(machine.init) / "proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            found.append(comm.read_text().strip())
    return sorted(found)


def test_a_machine_has_a_name_processes_and_a_network_of_its_own(machine: Machine, tmp_path: Path) -> None:
    (host_side := Path("/run") / f"unit-{os.getpid()}").touch()
    machine.boot()
    assert machine.init
    assert machine.run("hostname").strip() == "unit-machine"
    assert machine.run("cat", "/proc/1/comm").strip() == "catatonit"
    assert [line.split()[0] for line in machine.run("ip", "-brief", "link").splitlines()] == ["lo"]
    assert host_side.name not in machine.run("ls", "/run").split()
    host_side.unlink()
    for name in ("containerd", "kubelet", "cni"):
        machine.run("touch", f"/var/lib/{name}/mark")
        assert (machine.directory / name / "mark").exists()
    machine.run("touch", tmp_path / "seen")
    assert (tmp_path / "seen").exists()
    assert machine.run("cat", stdin="words\n") == "words\n"


def test_booting_a_machine_that_is_on_and_halting_one_that_is_off_change_nothing(machine: Machine) -> None:
    machine.halt()
    machine.boot()
    first = machine.init
    machine.boot()
    assert machine.init == first
    machine.halt()
    machine.halt()
    assert machine.init is None
    assert first
    assert not os.access(root_of(first) / "proc/1", os.F_OK)  # also when it is refused, as for one that just goes


def test_a_daemon_runs_until_it_is_killed_and_can_be_started_again(machine: Machine) -> None:
    machine.boot()
    assert not machine.runs("sleeper")
    machine.start(SLEEPER)
    assert machine.runs("sleeper")
    machine.start(SLEEPER)
    eventually(lambda: "sleep" in programs(machine))
    assert programs(machine) == ["catatonit", "sleep"]
    machine.kill("sleeper")
    assert not machine.runs("sleeper")
    machine.kill("sleeper")
    machine.start(SLEEPER)
    assert machine.runs("sleeper")


def test_a_daemon_that_somebody_was_starting_when_he_was_killed_is_not_started_twice(machine: Machine) -> None:
    machine.boot()
    slow = "_START.replace('if read', 'sleep 2; if read')"
    script = f"""
from pathlib import Path
from isthmus.local import machine
from isthmus.local.controlplane import Part
machine._START = machine.{slow}
found = machine.Machine(Path({str(machine.directory)!r}), hostname="unit-machine", group={machine.group!r})
found.start(Part("tail", ("tail", "--follow", "/dev/null"), lambda: True))
"""
    with subprocess.Popen([sys.executable, "-c", script]) as starter:
        eventually(lambda: "tail" in programs(machine))
        starter.kill()
    machine.start(Part("tail", ("tail", "--follow", "/dev/null"), lambda: True))
    assert machine.runs("tail")
    eventually(lambda: programs(machine) == ["catatonit", "tail"])  # the shell that noted it down ends after that


def test_groups_of_what_ended_with_a_machine_are_gone_when_it_boots_again(machine: Machine) -> None:
    machine.boot()
    cgroups.make(f"{machine.group}/kubepods/pod")
    machine.halt()
    machine.boot()
    assert not cgroups.exists(f"{machine.group}/kubepods")
    assert cgroups.exists(f"{machine.group}/system")


def test_a_daemon_that_ends_does_not_run_and_its_words_are_kept(machine: Machine) -> None:
    machine.boot()
    machine.start(Part("brief", ("sh", "-c", "echo one; echo two >&2"), lambda: True))
    eventually(lambda: not machine.runs("brief"))
    assert (machine.logs / "brief.log").read_text() == "one\ntwo\n"


def test_a_daemon_that_ends_before_it_is_noted_down_was_started_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.boot()
    monkeypatch.setattr(module, "_START", module._START.replace("&\n", "&\nwait\n"))
    machine.start(Part("brief", ("echo", "word"), lambda: True))
    assert not machine.runs("brief")
    assert (machine.logs / "brief.log").read_text() == "word\n"


def test_a_daemon_runs_as_long_as_one_of_its_threads(machine: Machine) -> None:
    machine.boot()
    machine.start(Part("headless", (sys.executable, "-c", HEADLESS), lambda: True))
    noted = module._Process.read(machine.directory / "parts" / "headless")
    assert noted
    assert machine.init
    status = root_of(machine.init) / "proc" / str(noted.pid) / "stat"
    eventually(lambda: ") Z " in status.read_text())
    assert machine.runs("headless")
    machine.kill("headless")
    assert not machine.runs("headless")


def test_a_daemon_that_ends_by_itself_when_it_is_to_be_killed_is_gone_as_it_should(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.boot()
    machine.start(SLEEPER)
    runs = Machine.runs

    def runs_until_now(found: Machine, name: str) -> bool:
        monkeypatch.setattr(Machine, "runs", runs)
        found.kill(name)
        return True

    monkeypatch.setattr(Machine, "runs", runs_until_now)
    machine.kill("sleeper")
    assert not machine.runs("sleeper")


def test_with_the_machine_go_its_daemons(machine: Machine) -> None:
    machine.boot()
    machine.start(SLEEPER)
    assert machine.init
    root = root_of(machine.init) / "proc"
    pids = {entry.name for entry in root.iterdir() if entry.name.isdigit()}
    assert len(pids) >= 2
    machine.halt()
    assert not machine.runs("sleeper")
    machine.boot()
    assert not machine.runs("sleeper"), "a daemon of the life before is not of this one"


def test_a_recycled_process_id_is_not_taken_for_the_machine_or_the_daemon(machine: Machine) -> None:
    machine.boot()
    machine.start(SLEEPER)
    note = machine.directory / "parts" / "sleeper"
    before, _, fields = note.read_text().rpartition(")")
    changed = fields.split()
    changed[19] = str(int(changed[19]) - 1)
    note.write_text(f"{before}) {' '.join(changed)}")
    assert not machine.runs("sleeper")
    init, stat = machine.init, machine.directory / "init.stat"
    true = stat.read_text()
    stat.write_text(Path("/proc/self/stat").read_text().replace(str(os.getpid()), str(init), 1))
    assert machine.init is None
    stat.write_text(true)
    assert machine.init == init


@pytest.mark.parametrize("content", ["", "12", "12 (sh", "12 (sh) S 1", "x (sh) S" + " 1" * 40])
def test_a_note_that_was_cut_off_counts_as_none(machine: Machine, content: str) -> None:
    (machine.directory / "init.stat").write_text(content)
    assert machine.init is None
    machine.boot()
    assert machine.init


def test_a_boot_that_fails_says_why(tmp_path: Path, group: str) -> None:
    absent = tmp_path / "absent"
    machine = Machine(tmp_path / "m", hostname="unit-machine", group=f"{group}/m", keep=(absent,))
    with pytest.raises(Terminal, match=f"unit-machine does not boot: mount: .*{absent}"):
        machine.boot()
    assert machine.init is None


def test_a_boot_that_fails_is_heard_to_its_end(tmp_path: Path, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path / "m", hostname="unit-machine", group=f"{group}/m")
    monkeypatch.setattr(module, "_BOOT", "printf 'half a ' >&2; sleep 0.2; echo sentence >&2; exit 1")
    with pytest.raises(Terminal, match="unit-machine does not boot: half a sentence"):
        machine.boot()


def test_a_machine_has_booted_when_its_init_is_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOOT", module._BOOT.replace("exec catatonit", "sleep 0.2; exec catatonit"))
    machine.boot()
    assert programs(machine) == ["catatonit"]


def test_a_machine_that_is_off_says_how_to_switch_it_on(machine: Machine) -> None:
    for use in (partial(machine.run, "true"), partial(machine.ip, "link show"), partial(machine.start, SLEEPER)):
        with pytest.raises(Terminal, match=r"unit-machine is switched off\n  → .*isthmus up"):
            use()
    assert not machine.runs("sleeper")
    machine.kill("sleeper")


def test_a_machine_shows_enough_cpus_and_those_of_the_host_as_they_are() -> None:
    assert module._shown_cpus([0, 1]) == ("0 1", "2 3 4 5 6 7")
    assert module._shown_cpus([3, 5]) == ("3 5", "6 7 8 9 10 11")
    assert module._shown_cpus(range(64))[1] == ""


def test_a_daemon_that_gives_up_before_it_is_ready_is_started_again(machine: Machine, tmp_path: Path) -> None:
    machine.boot()
    first, ready = tmp_path / "first", tmp_path / "ready"
    script = f"[ -e {first} ] || {{ touch {first}; exit 1; }}; touch {ready}; exec sleep 600"
    machine.start_until_ready(Part("shy", ("sh", "-c", script), ready.exists))
    assert machine.runs("shy")


def test_a_daemon_that_always_gives_up_is_an_error_with_its_last_words(machine: Machine) -> None:
    machine.boot()
    with pytest.raises(Terminal, match="broken on unit-machine does not become ready") as error:
        machine.start_until_ready(Part("broken", ("sh", "-c", "echo no such flag; exit 1"), lambda: False))
    assert str(error.value).count("no such flag") > 1


# Never outside: it would end the machine on which tests run.
REBOOT = """
import ctypes, os, sys
assert os.readlink("/proc/self/ns/pid") != sys.argv[1]
ctypes.CDLL(None).reboot(0x01234567)
"""


def test_a_machine_that_reboots_from_inside_is_switched_on_again_and_one_that_is_halted_is_not(
    tmp_path: Path, group: str
) -> None:
    begun = tmp_path / "begun"
    machine = Machine(
        tmp_path / "m",
        hostname="unit-machine",
        group=f"{group}/m",
        keep=(tmp_path,),
        restart=("touch", str(begun)),
    )
    machine.directory.mkdir()
    machine.boot()
    first = machine.init
    machine.start(SLEEPER)
    machine.run(sys.executable, "-c", REBOOT, str(Path("/proc/self/ns/pid").readlink()))
    eventually(begun.exists)
    assert not machine.init
    begun.unlink()
    machine.boot()
    assert machine.init not in (None, first)
    assert not machine.runs(SLEEPER.name)
    machine.halt()
    eventually(lambda: not cgroups.processes(group))
    assert not begun.exists()
