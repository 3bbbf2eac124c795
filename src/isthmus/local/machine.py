"""A machine inside this machine: namespaces that hang on one init process.

    boot    unshare → set up mounts → exec catatonit (which reaps orphans and does nothing else)
    start   nsenter → a daemon, in the machine's namespaces and control group, adopted by its init
    halt    kill init: the kernel ends every process inside and takes mounts and network with them
    reboot  reboot(2) from inside: the kernel ends all of it likewise, and says so to whoever waits for init

There is no supervisor that could die first. What is running is read from /proc, never remembered: a process is
known by its id and start time, so a recycled id is not taken for it. A shell waits for init, only to switch the
machine on again when it was rebooted from inside; without it, a machine that reboots stays off.
"""

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import cgroups, files, shell
from isthmus.local.controlplane import Part

IP_BATCH = ("ip", "-batch", "-")
_INIT = "catatonit"
_CPUS = 8
"""A machine says that it has at least so many CPUs. They are shares of the host's, as those of all machines are;
with two, pods of the system and one of an example would not fit beside each other."""
_BOOT_WITHIN = 60
_READY_WITHIN = 180
_STARTS = 4
"""A kubelet ends when containerd does not answer within five seconds, as on a busy machine. Elsewhere systemd
starts it again; here whoever waits for it does."""
_HALT_WITHIN = 60

# /run, /var/lib and /var/log are the machine's own, so that daemons can use their usual places there. What must
# be seen all the same (arguments from the seventh on) is put back at its own path. kubelet counts the directories
# of CPUs in /sys, and puts into control groups those with a place in the topology, which must exist. Containers
# have a /sys of their own. /proc is replaced last: until then /proc/self still shows our process id as the host
# counts it, which is how the host will know us.
_BOOT = r"""
set -eu
stat=$1 hostname=$2 groups=$3 data=$4 cpus=$5 more=$6
shift 6
read -r self < /proc/self/stat
echo "$hostname" > /proc/sys/kernel/hostname
for procs in $groups; do echo 0 > "$procs"; done
mount -t tmpfs -o mode=755 tmpfs /run
n=0
for path in "$@"; do
    n=$((n + 1))
    mkdir -p "/run/keep/$n"
    mount --bind "$path" "/run/keep/$n"
done
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /var/log
n=0
for path in "$@"; do
    n=$((n + 1))
    mkdir -p "$path"
    mount --bind "/run/keep/$n" "$path"
    umount "/run/keep/$n"
done
for name in containerd kubelet cni; do
    mkdir -p "$data/$name" "/var/lib/$name"
    mount --bind "$data/$name" "/var/lib/$name"
done
mkdir -p "$data/pods" /var/log/pods
mount --bind "$data/pods" /var/log/pods
if [ -n "$more" ]; then
    [ ! -d /sys/devices/system/node ] || mount -t tmpfs -o mode=755 tmpfs /sys/devices/system/node
    mount -t tmpfs -o mode=755 tmpfs /sys/devices/system/cpu
    for cpu in $cpus; do
        mkdir -p "/sys/devices/system/cpu/cpu$cpu/topology"
        echo "$cpu" > "/sys/devices/system/cpu/cpu$cpu/topology/core_id"
        echo 0 > "/sys/devices/system/cpu/cpu$cpu/topology/physical_package_id"
    done
    for cpu in $more; do mkdir "/sys/devices/system/cpu/cpu$cpu"; done
fi
mount -t proc proc /proc
mount --make-rshared /
echo "$self" > "$stat"
exec catatonit -P
"""

# The kernel ends the init of a machine that rebooted by SIGHUP, and unshare ends by the signal by which its child
# did. Whoever switches the machine on again must not hold the lock of its log, which is our standard input.
_WATCH = r"""
groups=$1 again=$2 log=$3
shift 3
for procs in $groups; do echo 0 > "$procs" || exit 1; done
"$@"
[ $? -eq 129 ] || exit 0
eval "exec $again" < /dev/null >> "$log" 2>&1
"""

# A Ctrl-C between the start of a daemon and the note of it would leave one that nobody knows. One that has ended
# already may be gone from /proc: then there is nothing to note.
_START = r"""
trap '' INT HUP
groups=$1 log=$2 stat=$3
shift 3
for procs in $groups; do echo 0 > "$procs"; done
setsid "$@" >> "$log" 2>&1 < /dev/null &
if read -r daemon < "/proc/$!/stat"; then echo "$daemon" > "$stat"; fi
"""


@dataclass(frozen=True)
class _Process:
    """A process as /proc shows it; the pair is never reused while the system is up."""

    pid: int
    started: int

    @staticmethod
    def read(stat: Path) -> "_Process | None":
        try:
            text = stat.read_text()
            # The name in parentheses may hold anything; the fields after the last one are numbers.
            fields = text[text.rindex(")") + 2 :].split()
            # Threads may go on, and hold ports and files, when the first one of them has ended.
            ended = fields[0] == "Z" and int(fields[17]) <= 1
            return None if ended else _Process(int(text.split(maxsplit=1)[0]), int(fields[19]))
        except (OSError, ValueError, IndexError):  # gone, or written in part by a machine that died meanwhile
            return None


class Machine:
    """One machine, known by its directory; any number of processes may look at it."""

    def __init__(
        self,
        directory: Path,
        *,
        hostname: str,
        group: str,
        keep: tuple[Path, ...] = (),
        restart: Sequence[str] = (),
    ) -> None:
        """`restart` is a command that switches the machine on again when it was rebooted from inside."""
        self.directory = directory
        self.hostname = hostname
        self.group = group
        self._keep = keep
        self._restart = tuple(restart)
        self._stat = directory / "init.stat"
        self.logs = directory / "logs"

    @property
    def init(self) -> int | None:
        """The host's id of the init process, or None when the machine is off."""
        recorded = _Process.read(self._stat)
        if recorded and _Process.read(Path(f"/proc/{recorded.pid}/stat")) == recorded:
            return recorded.pid
        return None

    def boot(self) -> None:
        """Switch the machine on, if it is off."""
        if self.init:
            return
        self.logs.mkdir(parents=True, exist_ok=True)
        self._stat.unlink(missing_ok=True)
        for stale in self.directory.glob("parts/*"):
            stale.unlink()
        (self.directory / "parts").mkdir(exist_ok=True)
        # Groups of containers that ended with the machine: kubelet would look three seconds for each of them, and
        # not be Ready before that.
        cgroups.remove(self.group)
        cgroups.make(f"{self.group}/system")
        script: list[str | Path] = ["sh", "-c", _BOOT, "boot"]
        script += [self._stat, self.hostname, self._groups(), self.directory, *_shown_cpus(), *self._keep]
        namespaces = ("--fork", "--pid", "--mount", "--net", "--uts", "--ipc")
        log = self.logs / "boot.log"
        log.unlink(missing_ok=True)
        # The machine outlives us: it must be nobody's child, and no Ctrl-C of ours may reach it. It holds the lock
        # of its log: when that is free, the boot has failed, and all that it had to say is there.
        with files.locked(log) as lock:
            words = [*self._watched(), "unshare", *namespaces, *script]
            shell.run(["setsid", "--fork", *words], log=log, stdin=lock)
        deadline = time.monotonic() + _BOOT_WITHIN
        while not self._has_booted():
            if not files.is_locked(log) or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip()
                raise Terminal(f"{self.hostname} does not boot: {said or 'no reason given'}")
            time.sleep(0.005)

    def _watched(self) -> tuple[str, ...]:
        """Return the words before a command that is to be watched: for a reboot, if we know what to do then."""
        if not self._restart:
            return ()
        # Beside the machine's own group, which is removed and made anew at each boot.
        group = watchers_of(self.group.rpartition("/")[0])
        cgroups.make(group)
        groups = " ".join(str(path) for path in cgroups.members(group))
        again, log = shlex.join(self._restart), self.logs / "restart.log"
        return ("sh", "-c", _WATCH, "watch", groups, again, str(log))

    def _has_booted(self) -> bool:
        """Whether the script has come to its end, which is to become the init."""
        try:
            return Path(f"/proc/{self.init}/comm").read_text().strip() == _INIT
        except OSError:
            return False

    def halt(self) -> None:
        """Switch the machine off, as pulling the plug would."""
        init = self.init
        if not init:
            return
        os.kill(init, signal.SIGKILL)
        self._wait_for_end(lambda: bool(self.init), f"{self.hostname} (process {init})")

    def enter(self, *, network: bool = True) -> tuple[str, ...]:
        """Return the words that begin a command inside. What it starts ends with the machine."""
        namespaces = ("--pid", "--mount", "--uts", "--ipc", *(("--net",) if network else ()))
        return (*self._nsenter(), *namespaces, "--")

    def run(self, *argv: str | Path, stdin: str | None = None) -> str:
        """Run a program inside, to its end."""
        return shell.run([*self.enter(), *argv], stdin=stdin)

    def ip(self, *commands: str) -> None:
        """Run commands of `ip` on the machine's network; processes in them are counted as the host does."""
        shell.run([*self._nsenter(), "--net", "--", *IP_BATCH], stdin="\n".join(commands))

    def start(self, part: Part) -> None:
        """Start a daemon inside, unless it runs."""
        enter = self.enter(network=not part.on_host_network)
        # Whoever is killed here leaves a shell behind that has not noted the daemon down yet: that holds the lock.
        with files.locked(self.directory / "lock") as lock:
            if self.runs(part.name):
                return
            log = self.logs / f"{part.name}.log"
            script = ("sh", "-c", _START, "start", self._groups(), log, self._part(part.name))
            shell.run([*enter, *script, *part.argv], stdin=lock)

    def start_until_ready(self, part: Part) -> None:
        """Start a daemon and wait until it is ready; one that ends before that is started again, a few times."""
        self.start(part)
        deadline, left = time.monotonic() + _READY_WITHIN, _STARTS - 1
        while not part.ready():
            time.sleep(0.02)
            ended = not self.runs(part.name)
            if ended and left:
                left -= 1
                self.start(part)
            elif ended or time.monotonic() > deadline:
                log = self.logs / f"{part.name}.log"
                tail = "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
                raise Terminal(
                    f"{part.name} on {self.hostname} does not become ready; the end of its log:\n{tail}",
                    remedy=f"isthmus logs {part.name}",
                )

    def runs(self, name: str) -> bool:
        """Whether the daemon is alive."""
        init, recorded = self.init, _Process.read(self._part(name))
        if not (init and recorded):
            return False
        return _Process.read(root_of(init) / "proc" / str(recorded.pid) / "stat") == recorded

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL, and see it gone."""
        recorded = _Process.read(self._part(name))
        if recorded and self.runs(name):
            # The shell's own `kill`, since not every system has the program. It may have ended just now.
            self.run("sh", "-c", f"kill -KILL {recorded.pid} || true")
            self._wait_for_end(lambda: self.runs(name), f"{name} on {self.hostname}")

    def _wait_for_end(self, runs: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _HALT_WITHIN
        while runs():
            if time.monotonic() > deadline:
                raise Terminal(
                    f"{what} does not exit",
                    remedy="a process in it hangs in the kernel, often because of a failed disk: check dmesg",
                )
            time.sleep(0.005)

    def _part(self, name: str) -> Path:
        return self.directory / "parts" / name

    def _groups(self) -> str:
        return " ".join(str(path) for path in cgroups.members(f"{self.group}/system"))

    def _nsenter(self) -> tuple[str, ...]:
        init = self.init
        if not init:
            raise Terminal(f"{self.hostname} is switched off", remedy="start it again: isthmus up")
        return ("nsenter", f"--target={init}")


def _shown_cpus(present: Iterable[int] | None = None) -> tuple[str, str]:
    """The CPUs that a machine shows: those of the host, and how many more there are to be, if any."""
    real = sorted(present or (int(it.name[3:]) for it in Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
    more = range(real[-1] + 1, real[-1] + 1 + _CPUS - len(real))
    return " ".join(map(str, real)), " ".join(map(str, more))


def watchers_of(group: str) -> str:
    """Name the control group of those who wait for the machines of a group."""
    return f"{group}/watchers"


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    return _Process.read(Path(f"/proc/{process}/stat")) is not None


def root_of(process: int) -> Path:
    """Return the root file system as a process sees it."""
    return Path("/proc", str(process), "root")
