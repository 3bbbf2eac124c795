"""One control group per cluster and node, in every hierarchy that this machine has (version 1, hybrid or 2)."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from isthmus.errors import Terminal

_ROOT = Path("/sys/fs/cgroup")
_GONE_WITHIN = 60
_MADE_WITHIN = 60
_NEEDED = frozenset({"cpu", "cpuset", "memory", "pids"})
_REMOVED = frozenset({errno.ENOENT, errno.ENODEV, errno.EEXIST})


def _hierarchies() -> list[Path]:
    """The mount points: one with version 2, one per controller with version 1, all of them on a hybrid."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def unsupported(mounts: str, controllers: str) -> str:
    """Why kubelet could not use a machine's control groups; empty if it can.

    `mounts` is /proc/mounts, `controllers` what the hierarchy of version 2 offers. A hybrid is used as version 1.
    """
    lines = [line.split() for line in mounts.splitlines()]
    legacy = {option for line in lines if line[2] == "cgroup" for option in line[3].split(",")}
    unified = any(line[1:3] == [str(_ROOT), "cgroup2"] for line in lines)
    if not unified and not legacy & _NEEDED:
        return f"control groups are not mounted at {_ROOT}"
    offered = set(controllers.split()) if unified else legacy
    missing = sorted(_NEEDED - offered)
    return f"the kernel lacks control groups for: {', '.join(missing)}" if missing else ""


def check() -> None:
    """Refuse a machine on which kubelet would not start."""
    controllers = _ROOT / "cgroup.controllers"
    problem = unsupported(Path("/proc/mounts").read_text(), controllers.read_text() if controllers.exists() else "")
    if problem:
        raise Terminal(
            f"a local cluster cannot run here: {problem}",
            remedy=(
                "mount control groups as systemd does, of version 2 or 1; and check /proc/cmdline for "
                "disabled ones (cgroup_disable=)"
            ),
        )


def make(path: str) -> None:
    """Make a group such as `isthmus/demo/worker` and give its children every controller."""
    deadline = time.monotonic() + _MADE_WITHIN
    for hierarchy in _hierarchies():
        while True:
            try:
                _make(hierarchy, path)
                break
            except OSError as error:
                # Who removes the last cluster takes the group above all clusters away, maybe between two steps.
                if error.errno not in _REMOVED or time.monotonic() > deadline:
                    raise
            time.sleep(0.001)


def _make(hierarchy: Path, path: str) -> None:
    group = hierarchy
    for name in path.split("/"):
        parent, group = group, group / name
        group.mkdir(exist_ok=True)
        if (parent / "cgroup.controllers").exists():
            given = (parent / "cgroup.subtree_control").read_text().split()
            for controller in (parent / "cgroup.controllers").read_text().split():
                # What systemd has given to its own groups is not written again.
                if controller not in given:
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            continue
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # With version 1 a group starts with no CPU at all, and nothing can run in it.
            if (group / setting).exists():
                (group / setting).write_text((parent / setting).read_text())


def members(path: str) -> list[Path]:
    """The files that take a process id (0 for the writer itself) into the group."""
    return [hierarchy / path / "cgroup.procs" for hierarchy in _hierarchies()]


def exists(path: str) -> bool:
    """Whether any hierarchy still has the group."""
    return any((hierarchy / path).exists() for hierarchy in _hierarchies())


def processes(path: str) -> set[int]:
    """The host's ids of all processes in the group and below it. Every hierarchy has the same: one is read."""
    found: set[int] = set()
    for group, _, _ in os.walk(_hierarchies()[0] / path):
        with suppress(OSError):
            found |= {int(line) for line in Path(group, "cgroup.procs").read_text().split()}
    return found - {0}


def remove_if_empty(path: str) -> None:
    """Remove a group that has no group below it."""
    for hierarchy in _hierarchies():
        with suppress(OSError):
            (hierarchy / path).rmdir()


def remove(path: str) -> None:
    """Remove a group with all below it. Its processes are ending: wait until the kernel lets go of them."""
    deadline = time.monotonic() + _GONE_WITHIN
    while not sweep(path):
        if time.monotonic() > deadline:
            raise Terminal(
                f"the control group {path} cannot be removed",
                remedy=f"end its processes, then retry; processes: {sorted(processes(path)) or 'none'}",
            )
        time.sleep(0.01)


def sweep(path: str) -> bool:
    """Remove what has no process of a group and of those below it; return whether that was all."""
    for hierarchy in _hierarchies():
        for group, _, _ in os.walk(hierarchy / path, topdown=False):
            with suppress(OSError):
                os.rmdir(group)  # noqa: PTH106 - os.walk gives strings
    return not exists(path)
