import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from isthmus.errors import Terminal
from isthmus.local import state
from isthmus.local.addresses import SLOTS
from isthmus.local.state import PublishedPort, Settings
from tests.unit.local.conftest import eventually

DEMO = Settings(
    "demo", slot=0, workers=2, slurm="26.05", publish=(PublishedPort(40022, 30022),), binaries="/opt/programs"
)


@pytest.mark.parametrize("name", ["a", "demo", "demo-2", "a" * 30])
def test_plain_names_are_taken(name: str) -> None:
    assert state.check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "-a", "a-", "a_b", "a.b", "a b", "a/b", "..", "a\n", "a" * 31, "ä", "a\0"]
)
def test_names_that_would_not_fit_into_a_path_or_a_host_name_are_refused(name: str) -> None:
    with pytest.raises(Terminal, match=r"is not a valid cluster name\n  → use up to 30"):
        state.directory(name)


@pytest.mark.usefixtures("state_home")
def test_settings_come_back_as_they_were_saved() -> None:
    state.save(DEMO)
    assert state.load("demo") == DEMO
    assert state.names() == ["demo"]


@pytest.mark.usefixtures("state_home")
def test_a_cluster_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(Terminal, match=r"no cluster 'demo' on this machine\n  → isthmus up --name demo"):
        state.load("demo")
    state.save(DEMO)
    with pytest.raises(Terminal, match=r"no cluster 'other' on this machine \(existing: demo\)\n  → .*--name"):
        state.load("other")


@pytest.mark.usefixtures("state_home")
def test_when_the_last_cluster_goes_while_somebody_looks_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # as it was a moment ago
    assert state.names() == []


@pytest.mark.parametrize(
    "content",
    [b"", b'{"name": "demo", ', b"[]", b"{}", b"\xff\x00", msgspec.json.encode(DEMO).replace(b":0,", b":99,")],
)
def test_damaged_settings_are_named_with_the_way_out(state_home: Path, content: bytes) -> None:
    state.save(DEMO)
    file = state_home / "demo" / "cluster.json"
    file.write_bytes(content)
    with pytest.raises(Terminal, match=rf"{file} is damaged: .*\n  → isthmus down --name demo, then up again"):
        state.load("demo")


def test_slots_are_given_in_order_and_a_free_one_is_used_again(state_home: Path) -> None:
    state_home.mkdir()
    for number in range(SLOTS):
        assert state.save_new(msgspec.structs.replace(DEMO, name=f"c{number}")).slot == number
    with pytest.raises(Terminal, match="this machine has 16 clusters"):
        state.free_slot()
    (state.directory("c3") / "cluster.json").unlink()
    assert state.free_slot() == 3


def test_clusters_made_at_the_same_time_never_share_a_slot(state_home: Path) -> None:
    state_home.mkdir()
    # All were planned while nothing was there: each has slot 0 in mind.
    planned = [msgspec.structs.replace(DEMO, name=f"c{number}") for number in range(SLOTS)]
    with ThreadPoolExecutor(max_workers=SLOTS) as pool:
        made = list(pool.map(state.save_new, planned))
    assert sorted(each.slot for each in made) == list(range(SLOTS))
    assert {each.name: each.slot for each in made} == {name: state.load(name).slot for name in state.names()}


def test_one_command_at_a_time_and_nothing_stays_behind(state_home: Path) -> None:
    with state.exclusive("demo"):
        with (
            pytest.raises(Terminal, match=r"another isthmus command is busy with the cluster 'demo'\n  → wait"),
            state.exclusive("demo"),
        ):
            pytest.fail("two commands at once")
        with state.exclusive("other"):
            assert {file.name for file in state_home.iterdir()} == {".demo.lock", ".other.lock"}
    assert not state_home.exists()
    with state.exclusive("demo"):
        state.save(DEMO)
    assert [file.name for file in state_home.iterdir()] == ["demo"]


def test_the_lock_of_a_command_that_failed_or_was_killed_is_free(state_home: Path) -> None:
    with pytest.raises(ValueError, match="broken"), state.exclusive("demo"):
        raise ValueError("broken")
    script = f"""
import os, pathlib, signal
from isthmus.local import state
state.state_dir = lambda: pathlib.Path({str(state_home)!r})
with state.exclusive("demo"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (state_home / ".demo.lock").exists()
    with state.exclusive("demo"):
        pass
    assert not state_home.exists()


def test_never_two_in_the_same_lock_though_each_holder_removes_it(state_home: Path) -> None:
    inside: list[int] = []

    def enter(number: int) -> bool:
        try:
            with state.exclusive("demo"):
                inside.append(number)
                os.sched_yield()
                assert inside == [number]
                inside.remove(number)
        except Terminal:
            return False
        return True

    entered: list[bool] = []
    with ThreadPoolExecutor(max_workers=4) as pool:

        def have_met() -> bool:
            entered.extend(pool.map(enter, range(2000)))
            return False in entered

        eventually(have_met)  # when all but one of them were paused, nothing was tried
    assert True in entered
    assert not state_home.exists()
