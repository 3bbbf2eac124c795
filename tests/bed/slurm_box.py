"""A place for daemons to run in that vanishes as a whole, however it ends.

One init process holds a PID, mount, UTS and IPC namespace, whose root is an overlay over a shared root file system;
everything written goes to a tmpfs that only this namespace sees. So nothing is ever on the disk, and when init
dies the kernel takes processes, mounts and files with it. Init dies when its standard input ends, which is when the
process that opened the box closes it, exits, or is killed.

The network is the host's: a box has a block of 256 loopback addresses to itself, so that daemons can keep their
usual ports, and one port of 127.0.0.1. What is inside is seen from outside below `/proc/<init>/root`.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from isthmus.errors import Terminal

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}
_APART = ("unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--")
_CLOSE_WITHIN = 60
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
_PAUSE_PER_LOOK = 4.0

# Each further argument is a directory in the box and the root file system to show there. /dev/shm is covered first,
# as a directory that every Linux has and in which no root file system lies.
_BOOT = r"""
set -eu
hostname=$1; shift
read -r init _ < /proc/self/stat
echo "$hostname" > /proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 box /dev/shm
layer=0
while [ $# -gt 0 ]; do
    layer=$((layer + 1)); scratch=/dev/shm/$layer; place=/dev/shm/root$1
    mkdir -p "$scratch/upper" "$scratch/work" "$place"
    cd "$2"; shift 2
    mount -t overlay -o "lowerdir=.,upperdir=$scratch/upper,workdir=$scratch/work" box "$place"
done
cd /dev/shm/root
mount -t proc proc proc
mount --rbind /sys sys
mount --bind /dev dev
mount --bind /dev/pts dev/pts
pivot_root . mnt
umount --lazy /mnt
# This shell is init now: it reaps what is left to it, and waits for the end of its standard input.
exec bash -c 'echo "$0"; read -r _' "$init"
"""

_ENTER_HOST = """
set -eu
echo "$0" > /proc/sys/kernel/hostname
[ -z "$1" ] || mount -t tmpfs -o mode=755 host "$1"
if [ -n "$2" ]; then
    mount -t tmpfs -o mode=755 host /mnt
    cp -a "$2/." /mnt
    mount --move /mnt "$2"
fi
shift 2
exec "$@"
"""


class Box:
    """Open as long as the `with` block lasts: `with Box({"/": root}, hostname="ctl") as box`."""

    def __init__(self, roots: Mapping[str, Path], *, hostname: str) -> None:
        self._hostname = hostname
        self._roots = roots

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise Terminal(
                "Slurm's test bed needs namespaces and mounts, which only root may make", remedy="use sudo"
            )
        places = [word for place, root in self._roots.items() for word in (place, str(root))]
        self.port, claim = _claim()
        with claim:
            # Init inherits the claim: the addresses are free again only when every daemon is dead.
            self._init = subprocess.Popen(
                [*_APART, "bash", "-c", _BOOT, "boot", self._hostname, *places],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[claim.fileno()],
                start_new_session=True,
            )
        assert self._init.stdout  # for the type checker
        line = self._init.stdout.readline()
        if not line:
            _, errors = self._init.communicate()
            raise Terminal(f"the box for Slurm's daemons did not open: {errors.decode().strip()}")
        self._pid = int(line)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._init.communicate(timeout=_CLOSE_WITHIN)
        except subprocess.TimeoutExpired:
            self._init.kill()
            self._init.communicate()

    @property
    def pid(self) -> int:
        """The process on which everything hangs."""
        return self._pid

    def address(self, host: int) -> str:
        """Return one of the box's own loopback addresses."""
        # Below 127.128 are the single addresses of other beds.
        return f"127.{self.port >> 8 | 128}.{self.port & 255}.{host}"

    def path(self, inside: str) -> Path:
        """Return the path by which the outside sees a path of the box."""
        return Path(f"/proc/{self._pid}/root", inside.lstrip("/"))

    def run(
        self, *argv: str, stdin: str | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside to its end."""
        return subprocess.run(
            self._entering(argv),
            check=False,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**_ENVIRONMENT, **(env or {})},
        )

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        hostname: str = "",
        own_directory: str = "",
        own_copy: str = "",
        env: Mapping[str, str] | None = None,
    ) -> "Daemon":
        """Start a daemon inside, with what it prints added to `log`.

        With a host name, it is on a host of its own, where `own_directory` is empty, and `own_copy` a copy of the
        box's: nobody else sees what is written there.
        """
        if hostname:
            own = (hostname, own_directory, own_copy)
            argv = ["unshare", "--uts", "--mount", "--", "sh", "-c", _ENTER_HOST, *own, *argv]
        with self.path(log).open("ab") as sink:
            entered = subprocess.Popen(
                self._entering(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**_ENVIRONMENT, **(env or {})},
                start_new_session=True,
            )
        return Daemon(entered)

    def _entering(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._pid}", "--mount", "--uts", "--ipc", "--pid", "--", *argv]


class Daemon:
    """A program that runs in a box."""

    def __init__(self, entered: subprocess.Popen[bytes]) -> None:
        self._entered = entered

    @property
    def exit_code(self) -> int | None:
        """How it ended, None as long as it runs."""
        return self._entered.poll()

    @property
    def pid(self) -> int:
        """Its process id, as the host counts. The process that we started only stands at the door."""
        children = Path(f"/proc/{self._entered.pid}/task/{self._entered.pid}/children")
        found: list[str] = []

        def runs_or_ended() -> bool:
            # A child that has ended is in no list, and who stands at the door follows it.
            ended = self.exit_code is not None
            found[:] = () if ended else children.read_text().split()
            return ended or bool(found)

        wait_until(runs_or_ended, what="the daemon runs", within=60)
        if not found:
            raise ProcessLookupError(f"the daemon has ended with {self.exit_code}")
        return int(found[0])

    def end(self, how: signal.Signals, *, grace: float) -> None:
        """Send the signal and wait for the end, which comes by SIGKILL when the time of grace is over."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, how)
        try:
            self._entered.wait(grace)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._entered.wait()

    def rename_host(self, name: str) -> None:
        """Change the host name that the daemon and everything it starts see; it must have one of its own."""
        subprocess.run(
            ["nsenter", f"--target={self.pid}", "--uts", "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname', name],
            check=True,
        )

    def forget(self) -> None:
        """Take note that it ended with its box."""
        self._entered.wait()


def wait_until(condition: Callable[[], object], *, what: str, within: float) -> None:
    """Ask again and again, soon, until the condition holds.

    What is dear to ask is asked less often: files every few milliseconds, but programs of Slurm's, which take their
    time from others, run for a fifth of it at most.
    """
    deadline = time.monotonic() + within
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"it is not so after {within:g} s that {what}")
        time.sleep(min(max(_SHORTEST_PAUSE, (now - began) * _PAUSE_PER_LOOK), _LONGEST_PAUSE))


def listens(where: tuple[str, int] | Path) -> bool:
    """Say whether somebody accepts connections at that TCP address or UNIX socket."""
    with socket.socket(socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET) as probe:
        return probe.connect_ex(str(where) if isinstance(where, Path) else where) == 0


def _claim() -> tuple[int, socket.socket]:
    """Find a number that no other box has. The bound socket is the claim; no file can go stale."""
    dice = random.SystemRandom()
    while True:
        # Below what the kernel hands out to clients, above what is usual for servers.
        number = dice.randrange(1 << 14, 1 << 15)
        if listens(("127.0.0.1", number)):
            continue
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", number))
        except OSError:
            claim.close()
        else:
            return number, claim
