"""Pods of slurmctld without Kubernetes: the very scripts that run in them, with a real slurmctld, in a bed.

Each pod has its own host name, processes and directories, as in Kubernetes; the state is shared, and `publish` does
what kubelet does with a mounted volume.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.domain.operator.manifests import controller_scripts as scripts
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import Daemon, wait_until

_BINDS = {"etc": "/etc/slurm", "run": "/run/slurmctld", "place": "/mnt/slurm"}

_ENTER = r"""
set -eu
pod=$1; shift
for pair in etc:/etc/slurm run:/run/slurmctld place:/mnt/slurm; do
    mount --bind "/pods/$pod/${pair%%:*}" "${pair#*:}"
done
touch "/pods/$pod/said"
[ -e /dev/termination-log ] || touch /dev/termination-log
mount --bind "/pods/$pod/said" /dev/termination-log
export HOSTNAME="$pod"
exec unshare --pid --fork --kill-child --mount-proc -- "$@"
"""


class ControllerPods:
    """`pods.start("ctl-0")` runs both containers of a pod; `publish` changes what is mounted in all."""

    def __init__(self, bed: SlurmBed, names: tuple[str, ...] = ("ctl-0",), *, settings: Mapping[str, str]) -> None:
        self.bed = bed
        self.names = names
        self._daemons: dict[tuple[str, str], Daemon] = {}
        self._revision = 0
        bed.kill("slurmctld")  # it has no jobs to write down, and would take a second
        self.key = AuthKey.of(bed.path("/etc/slurm/slurm.key").read_bytes(), where="the bed")
        hosts = bed.path("/etc/hosts")
        hosts.write_text(
            hosts.read_text().replace("127.0.0.1 ", f"127.0.0.1 {names[0]} ")
            + "".join(f"{bed._box.address(200 + n)} {name}\n" for n, name in enumerate(names) if n)
        )
        kept = [
            line
            for line in bed.path("/etc/slurm/slurm.conf").read_text().splitlines()
            if line.partition("=")[0] not in {"SlurmctldHost", "StateSaveLocation", *settings}
        ]
        ours = [f"SlurmctldHost={name}" for name in names] + ["StateSaveLocation=/var/spool/slurmctld"]
        self.conf = "\n".join([*ours, *kept, *(f"{k}={v}" for k, v in settings.items()), ""])
        for directory in ("/var/spool/slurmctld", "/mnt/slurm", *(f"/pods/{n}/{d}" for n in names for d in _BINDS)):
            bed.path(directory).mkdir(parents=True, exist_ok=True)
        self.publish()
        bed.path("/etc/slurm/slurm.conf").write_text(self.conf)
        self._write_keys(KeySet.only(self.key))
        # Commands of the bed are on a host without slurmctld, and so need what login nodes have.
        bed._daemons["sackd"] = bed._box.spawn(["/usr/sbin/sackd", "-D"], log="/var/log/slurm/sackd.log")

    def publish(self, conf: str = "", *, keys: KeySet | None = None, files: Mapping[str, str] | None = None) -> str:
        """Change the mounted files of all pods, and those that commands of the bed read; returns the revision."""
        self._revision += 1
        self.conf = conf or self.conf
        content: dict[str, bytes] = {
            "slurm.conf": self.conf.encode(),
            "cgroup.conf": self.bed.path("/etc/slurm/cgroup.conf").read_bytes(),
            "jwt.key": self.bed.jwt_key.read_bytes(),
            "slurm.jwks": (keys or KeySet.only(self.key)).write(),
            scripts.REVISION: f"r{self._revision}\n".encode(),
            **{name: text.encode() for name, text in (files or {}).items()},
        }
        for name in self.names:
            place = self.bed.path(f"/pods/{name}/place")
            new = place / f"..{self._revision}"
            new.mkdir()
            for file, data in content.items():
                (new / file).write_bytes(data)
            link = place / "..new"
            link.symlink_to(new.name)
            link.rename(place / "..data")
            for old in place.glob("[!.]*"):
                if old.name not in content:
                    old.unlink()
            for file in content:
                if not (place / file).is_symlink():
                    (place / file).symlink_to(f"..data/{file}")
        return f"r{self._revision} "

    def share_keys(self, keys: KeySet) -> None:
        """Give keys to nodes and commands of the bed, as a Secret that is mounted there would.

        slurmctld tells a sackd that fetches its configuration from it to read again; this one has to be told.
        """
        self._write_keys(keys)
        os.kill(self.bed._daemons["sackd"].pid, signal.SIGHUP)

    def _write_keys(self, keys: KeySet) -> None:
        file = self.bed.path("/etc/slurm/slurm.jwks.new")
        file.write_bytes(keys.write())
        file.chmod(0o600)
        owner = self.bed.path("/etc/slurm/slurm.key").stat()
        os.chown(file, owner.st_uid, owner.st_gid)
        file.rename(self.bed.path("/etc/slurm/slurm.jwks"))

    def start(self, name: str, *containers: str) -> None:
        """Start the containers of a pod that are named, or both."""
        for container in containers or ("slurmctld", "reconfigure"):
            script = [scripts.START, scripts.SUPERVISE] if container == "slurmctld" else [scripts.FOLLOW]
            started = self.bed._box.spawn(
                ["sh", "-c", _ENTER, "enter", name, "bash", "-c", *script],
                log=f"/var/log/slurm/{name}-{container}.log",
                hostname=name,
            )
            self._daemons[name, container] = started
            # Ends with the bed.
            self.bed._daemons[f"{name}-{container}"] = started

    def wait_ready(self) -> None:
        """Wait until somebody is in charge."""
        wait_until(
            lambda: self.bed._box.run("scontrol", "ping").returncode == 0, what="slurmctld answers", within=90
        )

    def main_process(self, name: str, container: str = "slurmctld") -> int:
        """The first process of a container, with which all others end, as the host counts."""
        unshared = self._daemons[name, container].pid
        door, children = Path(f"/proc/{unshared}/cmdline"), Path(f"/proc/{unshared}/task/{unshared}/children")
        found: list[str] = []

        def runs() -> bool:
            # Before it opens the container, it has other children, which mount its volumes.
            if door.read_bytes().startswith(b"unshare\x00--pid\x00"):
                found[:] = children.read_text().split()
            return bool(found)

        wait_until(runs, what="the container runs", within=90)
        return int(found[0])

    def has_looked(self, name: str) -> bool:
        """Whether the side-car of a pod has compared files at least once: then it rests, on a pipe of its own."""
        process = Path("/proc", str(self.main_process(name, "reconfigure")))
        with suppress(FileNotFoundError, ProcessLookupError):
            for it in (process / "fd").iterdir():
                flags = int((process / "fdinfo" / it.name).read_text().split("flags:")[1].split()[0], 8)
                if it.readlink().name.startswith("pipe:") and flags & os.O_RDWR:
                    return True
        return False

    def slurmctld_processes(self, name: str) -> list[int]:
        """All slurmctld of a pod that run; of one that has ended, its parent may not have taken note yet."""
        found = []
        pending = [self.main_process(name)]
        while pending:
            process = pending.pop()
            try:
                program, _, state = Path(f"/proc/{process}/stat").read_text().partition(" (")[2].rpartition(") ")
                if program.startswith("slurmctld") and not state.startswith("Z"):
                    found.append(process)
                for task in Path(f"/proc/{process}/task").iterdir():
                    pending += [int(child) for child in (task / "children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def age(self, name: str) -> float:
        """For how many seconds slurmctld has been running."""
        (process,) = self.slurmctld_processes(name)
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")

    def kill_daemon(self, name: str) -> None:
        """Kill slurmctld alone, as a crash would."""
        for process in self.slurmctld_processes(name):
            os.kill(process, signal.SIGKILL)

    def kill_pod(self, name: str) -> None:
        """Kill a pod with all its processes, as a lost node would; what lies in its volumes goes with it."""
        for container in ("slurmctld", "reconfigure"):
            if (name, container) in self._daemons and self.exit_code(name, container) is None:
                os.kill(self.main_process(name, container), signal.SIGKILL)
                self._wait_end(name, container)
        for directory in ("etc", "run"):
            self.bed.command("sh", "-c", f"rm -rf /pods/{name}/{directory}/*")

    def stop(self, name: str) -> int | None:
        """End the slurmctld container as kubelet does; returns how it ended."""
        os.kill(self.main_process(name), signal.SIGTERM)
        return self._wait_end(name, "slurmctld")

    def _wait_end(self, name: str, container: str) -> int | None:
        daemon = self._daemons.pop((name, container))
        wait_until(lambda: daemon.exit_code is not None, what=f"{container} of {name} ends", within=90)
        return daemon.exit_code

    def exit_code(self, name: str, container: str) -> int | None:
        """How a container ended; None while it runs."""
        return self._daemons[name, container].exit_code

    def log(self, name: str, container: str = "slurmctld") -> str:
        """What a container has logged."""
        return self.bed.path(f"/var/log/slurm/{name}-{container}.log").read_text()

    def said(self, name: str) -> str:
        """What a container left as its last words."""
        return self.bed.path(f"/pods/{name}/said").read_text()

    def settled(self, revision: str) -> bool:
        """Whether every pod has taken a revision and remembers it as good."""
        goods = [self.bed.path(f"/var/spool/slurmctld/.config-{name}/good") for name in self.names]
        with suppress(FileNotFoundError):  # for a moment, while it is replaced
            return all((good / scripts.REVISION).read_text().strip() == revision.strip() for good in goods)
        return False

    def setting(self, key: str) -> str:
        """What slurmctld says that a setting is."""
        shown = self.bed.scontrol("show", "config").splitlines()
        return next(line.partition("=")[2].strip() for line in shown if line.split("=")[0].strip() == key)
