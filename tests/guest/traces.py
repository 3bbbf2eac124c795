"""Everything that can be seen of a machine and that a cluster could leave behind, to compare before and after."""

import os
import subprocess
from pathlib import Path
from typing import Final

# The kernel's own; what systemd, logs and caches keep; and root's home, with the files of ssh, kubectl and helm.
_PASSED_OVER: Final = (
    *("/proc", "/sys", "/dev", "/run/log", "/run/udev", "/run/systemd"),
    *("/var/log", "/var/cache", "/root"),
)
_SETTINGS: Final = ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/forwarding")

Traces = dict[str, frozenset[str]]


def look() -> Traces:
    """See the machine as it is now."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {
        "processes": frozenset(told for entry in Path("/proc").glob("[0-9]*") if (told := _command(entry))),
        "mounts": frozenset(f"{mount[4]} {mount[3]}" for mount in mounts),
        "control groups": frozenset(at for at, _, _ in os.walk("/sys/fs/cgroup")),
        "units": frozenset(
            _said("systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=scope,slice")
        ),
        "interfaces": frozenset(_said("ip", "-brief", "address")),
        "routes": frozenset(_said("ip", "route", "show", "table", "all")),
        "firewall": frozenset(_said("nft", "list", "ruleset")),
        "namespaces": frozenset(path.name for path in Path("/run/netns").glob("*")),
        "settings": frozenset(f"{name}={Path(name).read_text().strip()}" for name in _SETTINGS),
        "files": frozenset(_files("/")) | frozenset(_files("/run")),
    }


def more(before: Traces, after: Traces) -> dict[str, list[str]]:
    """What is there after and was not there before."""
    found = {kind: sorted(after[kind] - before[kind]) for kind in before}
    return {kind: names for kind, names in found.items() if names}


def _command(entry: Path) -> str:
    """A process by its words, without those of the kernel and ourselves."""
    try:
        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
    return "" if int(entry.name) == os.getpid() else words


def _said(*words: str) -> list[str]:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


def _files(top: str) -> list[str]:
    """All names below a directory, on its file system."""
    device = os.lstat(top).st_dev
    found = []
    for at, directories, names in os.walk(top):
        here = [name for name in directories if not f"{at}/{name}".replace("//", "/").startswith(_PASSED_OVER)]
        directories[:] = [name for name in here if os.lstat(f"{at}/{name}").st_dev == device]
        found += [f"{at}/{name}".replace("//", "/") for name in (*here, *names)]
    return found
