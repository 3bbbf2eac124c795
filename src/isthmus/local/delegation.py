"""The control group that holds every process of a cluster, and who gives it to us.

    systemd, version 2   system.slice/isthmus-NAME.scope   a scope that systemd makes, with Delegate=yes
    otherwise            isthmus/NAME                      made by ourselves

systemd is the only one to write into its tree, except below a unit that it has delegated: there it changes nothing.
A scope lives as long as any process in it, and none starts one for us, so a process that sleeps holds it open until
the machines have booted, and while all of them are off. See docs/decisions for why pods' groups are not systemd's.
"""

import time
from pathlib import Path
from typing import Final

from isthmus.errors import Terminal
from isthmus.local import files, shell, state

_ROOT: Final = Path("/sys/fs/cgroup")
_SYSTEMD: Final = Path("/run/systemd/system")
_SLICE: Final = "system.slice"
_HELD_WITHIN: Final = 60

# A group of version 2 that has processes cannot give controllers to the groups below it: so the holder moves on.
# It keeps the lock of its log, which is its standard input, until then.
_HOLD: Final = """
mkdir -p "$1"
echo 0 > "$1/cgroup.procs"
exec sleep infinity < /dev/null > /dev/null 2>&1
"""


def by_systemd(*, systemd: Path = _SYSTEMD, root: Path = _ROOT) -> bool:
    """Whether systemd runs this machine, and its control groups are of version 2."""
    return systemd.is_dir() and (root / "cgroup.controllers").exists()


def group_of(name: str) -> str:
    """The control group that holds every process of a cluster."""
    return f"{_SLICE}/{_unit(name)}" if by_systemd() else f"isthmus/{name}"


def ensure(name: str) -> None:
    """Have systemd delegate a cluster's group, unless it is there or is ours to make."""
    if not by_systemd() or _is_ready(name):
        return
    properties = ("Delegate=yes", "TasksMax=infinity", f"Description=Isthmus cluster {name}")
    scope = ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={_unit(name)}", f"--slice={_SLICE}"]
    scope += [f"--property={it}" for it in properties]
    log = _log(name)
    log.unlink(missing_ok=True)
    with files.locked(log) as lock:
        # The holder outlives us: it must be nobody's child, and no Ctrl-C of ours may reach it.
        shell.run(
            ["setsid", "--fork", *scope, "sh", "-euc", _HOLD, "hold", _scope(name) / "holder"], log=log, stdin=lock
        )
    deadline = time.monotonic() + _HELD_WITHIN
    while not _is_ready(name):
        if not files.is_locked(log) or time.monotonic() > deadline:
            if _is_ready(name):  # since we looked
                return
            said = log.read_text(errors="replace").strip()
            raise Terminal(
                f"systemd does not delegate a control group: {said or 'no reason given'}",
                remedy=f"see: systemctl status {_unit(name)}",
            )
        time.sleep(0.005)


def settle(name: str) -> None:
    """Wait until systemd has answered an `up` that was killed meanwhile: no scope comes into being afterwards."""
    if (log := _log(name)).exists():
        with files.locked(log):
            return


def release(name: str) -> None:
    """Have systemd forget the scope of a cluster whose processes have ended."""
    if not by_systemd():
        return
    try:
        shell.run(["systemctl", "stop", _unit(name)])
    except Terminal:
        # It goes by itself when it is empty.
        if _state(name) == "loaded":
            raise


def _log(name: str) -> Path:
    return state.directory(name) / "scope.log"


def _unit(name: str) -> str:
    return f"isthmus-{name}.scope"


def _scope(name: str) -> Path:
    return _ROOT / _SLICE / _unit(name)


def _is_ready(name: str) -> bool:
    """Whether somebody holds the scope open, the holder or a machine, and groups can be made in it."""
    try:
        events, processes = (
            (_scope(name) / "cgroup.events").read_text(),
            (_scope(name) / "cgroup.procs").read_text(),
        )
    except OSError:
        return False
    return "populated 1" in events.splitlines() and not processes


def _state(name: str) -> str:
    return shell.run(["systemctl", "show", "--property=LoadState", "--value", _unit(name)]).strip()
