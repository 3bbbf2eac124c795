import subprocess
import sys
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


_UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot 0 0\n"
_LEGACY = "".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,relatime,{name} 0 0\n"
    for name in ("cpu,cpuacct", "cpuset", "memory", "pids", "devices")
)
_HYBRID = f"{_LEGACY}cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"
_OFFERED = "cpuset cpu io memory hugetlb pids rdma misc\n"


@pytest.mark.parametrize(
    ("mounts", "controllers", "problem"),
    [
        pytest.param(_UNIFIED, _OFFERED, "", id="Debian 12"),
        pytest.param(_LEGACY, "", "", id="version 1"),
        pytest.param(_HYBRID, "", "", id="hybrid"),
        pytest.param(
            _UNIFIED,
            "cpuset cpu io pids\n",
            "the kernel lacks control groups for: memory",
            id="cgroup_disable=memory",
        ),
        pytest.param(
            _LEGACY.replace("cpuset", "freezer"),
            "",
            "the kernel lacks control groups for: cpuset",
            id="version 1 without cpuset",
        ),
        pytest.param("proc /proc proc rw 0 0\n", "", "control groups are not mounted at /sys/fs/cgroup", id="none"),
        pytest.param(
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/x cgroup rw,name=systemd 0 0\n",
            "",
            "control groups are not mounted at /sys/fs/cgroup",
            id="only names of processes",
        ),
    ],
)
def test_a_machine_that_kubelet_cannot_use_is_told_apart(mounts: str, controllers: str, problem: str) -> None:
    assert cgroups.unsupported(mounts, controllers) == problem


def test_a_machine_without_control_groups_is_refused_before_anything_is_done() -> None:
    script = 'umount -R /sys/fs/cgroup && exec "$@"'
    check = (sys.executable, "-c", "from isthmus.local import host; host.check_system()")
    words = ["unshare", "--mount", "sh", "-euc", script, "sh", *check]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert "control groups are not mounted at /sys/fs/cgroup\n  → mount control groups as" in done.stderr
