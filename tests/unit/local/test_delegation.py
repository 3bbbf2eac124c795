"""Who makes a cluster's control group. That systemd delegates one is seen in a guest that runs systemd."""

import subprocess
import threading
from pathlib import Path

import pytest

from isthmus.local import delegation, files
from tests.unit.local.conftest import eventually


@pytest.mark.parametrize(("booted", "unified"), [(True, True), (True, False), (False, True), (False, False)])
def test_systemd_is_asked_only_where_it_runs_and_groups_are_of_version_2(
    tmp_path: Path, *, booted: bool, unified: bool
) -> None:
    if booted:
        (tmp_path / "systemd").mkdir()
    if unified:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert delegation.by_systemd(systemd=tmp_path / "systemd", root=tmp_path) == (booted and unified)


@pytest.mark.parametrize(
    ("systemd", "group"), [(True, "system.slice/isthmus-ml-demo.scope"), (False, "isthmus/ml-demo")]
)
def test_the_group_is_named_after_the_cluster(
    monkeypatch: pytest.MonkeyPatch, group: str, *, systemd: bool
) -> None:
    monkeypatch.setattr(delegation, "by_systemd", lambda: systemd)
    assert delegation.group_of("ml-demo") == group


@pytest.mark.parametrize(
    ("populated", "processes", "ready"),
    [
        pytest.param(1, "", True, id="the holder or a machine is in a group below"),
        pytest.param(1, "104\n", False, id="the holder has yet to move on"),
        pytest.param(0, "", False, id="all have ended, and systemd is about to remove it"),
        pytest.param(None, "", False, id="there is none"),
    ],
)
def test_a_scope_is_used_when_somebody_holds_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, populated: int | None, processes: str, *, ready: bool
) -> None:
    monkeypatch.setattr(delegation, "_ROOT", tmp_path)
    if populated is not None:
        scope = tmp_path / delegation._SLICE / "isthmus-demo.scope"
        scope.mkdir(parents=True)
        (scope / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
        (scope / "cgroup.procs").write_text(processes)
    assert delegation._is_ready("demo") == ready


def test_down_waits_for_a_request_to_systemd_that_is_under_way(state_home: Path) -> None:
    log = state_home / "demo" / "scope.log"
    log.parent.mkdir(parents=True)
    settled = threading.Thread(target=delegation.settle, args=("demo",))
    with files.locked(log) as lock:
        holder = subprocess.Popen(["sleep", "600"], stdin=lock)
    try:
        settled.start()
        settled.join(0.2)
        assert settled.is_alive()
    finally:
        holder.kill()
        holder.wait()
    eventually(lambda: not settled.is_alive(), within=10)


def test_nothing_is_waited_for_where_nothing_was_asked(state_home: Path) -> None:
    assert not state_home.exists()
    delegation.settle("demo")
