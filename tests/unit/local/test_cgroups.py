import subprocess
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import cgroups


def test_a_group_takes_processes_counts_those_below_and_goes(group: str) -> None:
    below = f"{group}/node/system"
    cgroups.make(below)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            for members in cgroups.members(below):
                members.write_text(str(sleeper.pid))
            assert cgroups.processes(group) == {sleeper.pid}
            assert cgroups.processes(f"{group}/node") == {sleeper.pid}
            cgroups.remove_if_empty(group)
            assert cgroups.exists(below)
        finally:
            sleeper.kill()
    assert cgroups.processes(group) == set()
    cgroups.remove(group)
    assert not cgroups.exists(group)


def test_a_group_may_be_made_twice_and_removed_twice(group: str) -> None:
    for _ in range(2):
        cgroups.make(f"{group}/system")
    assert cgroups.processes(group) == set()
    for _ in range(2):
        cgroups.remove(group)
        assert not cgroups.exists(group)


def test_a_group_is_made_though_somebody_removes_the_empty_one_above_it(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, seen = Path.mkdir, set[Path]()

    def lose_the_one_above(path: Path, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        if path.name == "system" and path not in seen:
            seen.add(path)
            path.parent.rmdir()
        make(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", lose_the_one_above)
    cgroups.make(f"{group}/system")
    assert all(members.exists() for members in cgroups.members(f"{group}/system"))
    assert len(seen) == len(cgroups.members(group))


def test_a_group_in_every_hierarchy_can_run_processes(group: str) -> None:
    cgroups.make(group)
    members = cgroups.members(group)
    assert members
    script = 'for procs in "$@"; do echo 0 > "$procs" || exit 1; done; cat /proc/self/cgroup'
    said = subprocess.run(
        ["sh", "-c", script, "sh", *members], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert len([line for line in said if line.endswith(f"/{group}")]) == len(members)


def test_what_a_group_uses_can_be_read(group: str) -> None:
    cgroups.make(group)
    memory, seconds = cgroups.usage(group)
    assert memory >= 0
    assert seconds >= 0


def test_a_group_that_is_still_in_use_is_not_passed_over_in_silence(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_GONE_WITHIN", 0)
    cgroups.make(group)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            cgroups.members(group)[0].write_text(str(sleeper.pid))
            with pytest.raises(Terminal, match=rf"control group {group} .*\n  → .*{sleeper.pid}"):
                cgroups.remove(group)
        finally:
            sleeper.kill()
    assert Path(f"/proc/{sleeper.pid}").exists() is False
