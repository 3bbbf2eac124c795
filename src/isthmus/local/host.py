"""The host: whether a local cluster can run on it, and the Debian packages that it needs."""

import os
import platform
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import cgroups, shell
from isthmus.local.progress import Progress

# A program (or file) that must be there, and the Debian package that brings it.
_NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "catatonit": "catatonit",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "nsenter": "util-linux",
    "mmdebstrap": "mmdebstrap",
}
PACKAGES = tuple(_NEEDED.values())
"""All that `up` installs where it is missing."""

# Linux allows a user 128. A cluster takes 40; a daemon that gets none does not start, or misses changes of files.
_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_INSTANCES_NEEDED = 1024
_FREE_DISK_NEEDED = 2 * 1024**3
_APT_FREE_WITHIN = 240
_APT_PAUSE = 0.5


def check_root() -> None:
    """Namespaces, mounts and cgroups are root's."""
    if os.geteuid() != 0:
        raise Terminal("a local cluster needs root", remedy="run the same command with sudo")


def check_system() -> None:
    """Say early and clearly when this machine cannot carry a cluster."""
    check_root()
    if platform.system() != "Linux":
        raise Terminal(
            f"a local cluster needs Linux, this is {platform.system()}",
            remedy="use a Debian 12 machine; a virtual one works too",
        )
    cgroups.check()
    if not shutil.which("apt-get") and missing_packages():
        raise Terminal(
            f"this system has no apt-get, and these are missing: {', '.join(missing_packages())}",
            remedy="use Debian 12 or newer, or install the programs by hand so that they are on PATH",
        )


def check_disk(directory: Path, *, needed: int = _FREE_DISK_NEEDED) -> None:
    """A cluster that runs out of disk in the middle is worse than one that does not start."""
    existing = directory
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise Terminal(
            f"the disk of {directory} has {free / 2**30:.1f} GiB free, a cluster needs {needed / 2**30:.0f} GiB",
            remedy="free some space there (XDG_CACHE_HOME moves the cache)",
        )


def port_is_free(port: int) -> bool:
    """Whether nobody listens on this port of localhost."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def missing_packages(also: Mapping[str, str] | None = None) -> list[str]:
    """The Debian packages whose programs are not on this machine; `also` adds programs and their packages."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [
        package
        for program, package in {**_NEEDED, **(also or {})}.items()
        if not (Path(program).exists() if program.startswith("/") else shutil.which(program, path=path))
    ]


def ensure_packages(progress: Progress, *, also: Mapping[str, str] | None = None) -> None:
    """Install what is missing; starts no service."""
    if missing := missing_packages(also):
        install(missing, progress)


def install(packages: Sequence[str], progress: Progress) -> None:
    with progress.step(f"Install {', '.join(packages)}"):
        remedy = f"check that apt-get can reach its mirror, or install by hand: {' '.join(packages)}"
        _apt_get("update", remedy=remedy)
        _apt_get("install", "--yes", "--no-install-recommends", *packages, remedy=remedy)


def allow_many_watches(progress: Progress, *, limit: Path = _INOTIFY_INSTANCES) -> None:
    """Raise the kernel's limit of inotify instances, until the next boot, so that several clusters run at once."""
    allowed = too_few_watches(limit)
    if allowed is not None:
        limit.write_text(str(_INSTANCES_NEEDED))
        progress.note(f"sysctl fs.inotify.max_user_instances={_INSTANCES_NEEDED} (it was {allowed})")


def too_few_watches(limit: Path = _INOTIFY_INSTANCES) -> int | None:
    """How many inotify instances the kernel allows, if that is too few for several clusters."""
    allowed = int(limit.read_text())
    return allowed if allowed < _INSTANCES_NEEDED else None


def _apt_get(*words: str, remedy: str) -> None:
    """Run apt-get when nobody else does: a machine that was just switched on often looks for updates."""
    # RUNLEVEL=1 keeps the packages' own services from starting: every node runs daemons of its own.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "RUNLEVEL": "1"}
    deadline = time.monotonic() + _APT_FREE_WITHIN
    while True:
        try:
            shell.run(["apt-get", "-qq", *words], env=quiet, remedy=remedy)
        except Terminal as error:
            if "Could not get lock" not in error.what or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_APT_PAUSE)


def can_lower_oom_score() -> bool:
    """Whether we may protect a process from the kernel's out-of-memory killer (CAP_SYS_RESOURCE)."""
    cap_sys_resource = 24
    effective = next(
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:")
    )
    return bool(int(effective, 16) >> cap_sys_resource & 1)
