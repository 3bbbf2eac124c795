"""A real Slurm whose jobs run inside a shared root, by our plugin.

    with JailBed("26.05") as bed:
        bed.command("srun", "-N2", "ls", "/", user="alice")

    the box:  /                 outside: the root of every node, with a file /outside that says so
              /mnt/jail         the shared root of n1 and n2, with /home/alice and /home/bob

The nodes' own root and the shared root are two overlays over one root file system: the same programs, other files.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from isthmus.local.architecture import native
from isthmus.local.images import layers
from isthmus.local.images.recipes import ENTER, PLUGIN
from isthmus.local.images.sources import SPANK
from isthmus.local.progress import PlainProgress
from tests.bed import logs, slurm
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import listens, wait_until

JAIL = "/mnt/jail"
READY = f"{JAIL}/.isthmus/ready"
OPTIONS = (f"root={JAIL}", "bind=/var/spool/slurmd", "bind=/run/slurm")
# As the operator sets them: a step that holds a job's place, and `salloc` that lands on a node.
SETTINGS = {"PrologFlags": "Contain", "LaunchParameters": "use_interactive_step"}
SANITIZER_LOG = "/var/log/slurm/sanitizer"
_PLUGSTACK = "/etc/slurm/plugstack.conf"
COMPILER = "/opt/compiler"
_MULTIARCH = native().multiarch
_LIBRARIES = f"{COMPILER}/usr/lib/{_MULTIARCH}"
_PLUGIN = PLUGIN.format(multiarch=_MULTIARCH)
_KNOW_USERS = f"for file in passwd group; do mount --bind {JAIL}/etc/$file /etc/$file; done"


class JailBed(SlurmBed):
    """Two nodes that share a root.

    `options` are what plugstack.conf says after the plugin's name; with None there is no plugin. `sanitized`
    compiles the plugin that slurmstepd loads with the address and undefined behaviour sanitizers.
    """

    def __init__(
        self,
        version: str = slurm.VERSIONS[0],
        *,
        options: Sequence[str] | None = OPTIONS,
        sanitized: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(version, **{"accounting": False, **others})
        self._options = options
        self._sanitized = sanitized

    def _roots(self) -> dict[str, Path]:
        roots = super()._roots()
        roots[JAIL] = roots["/"]
        if self._sanitized:
            roots[COMPILER] = slurm._root(f"spank-tools-{self.version}")
        return roots

    def _lay_out(self) -> None:
        super()._lay_out()
        self._fill_jail()
        self._install_plugin()
        if self._options is not None:
            self.configure(*self._options)

    def configure(self, *options: str) -> None:
        """Give the plugin other options, which hold for the next step."""
        self.path(_PLUGSTACK).write_text(f"required isthmus_jail.so {' '.join(options)}\n")

    def _fill_jail(self) -> None:
        self.path("/outside").write_text("not to be seen by jobs\n")
        for name in ("etc/passwd", "etc/group", "etc/hosts", "etc/slurm/slurm.conf", "etc/slurm/cgroup.conf"):
            shutil.copy(self.path(f"/{name}"), self.path(f"{JAIL}/{name}"))
        for user in ("alice", "bob"):
            home = self.path(f"{JAIL}/home/{user}")
            home.mkdir(mode=0o700)
            os.chown(home, slurm._USERS[user], slurm._USERS[user])
        self.path(READY).parent.mkdir()
        self.path(READY).touch()

    def _install_plugin(self) -> None:
        built = layers.ensure(f"spank-{self.version}", PlainProgress()).path
        # Slurm's commands load it, too: those of the shared root as well.
        for place in ("", JAIL):
            for file in (_PLUGIN, ENTER):
                shutil.copy(built / file, self.path(f"{place}/{file}"))
        if self._sanitized:
            # Where the compiler is, with its libraries.
            shutil.copytree(built / SPANK, self.path(f"{COMPILER}/{SPANK}"))
            self.command(*("chroot", COMPILER, "make", "-B", f"--directory=/{SPANK}", "SANITIZE=address,undefined"))

    def _spawn(self, name: str) -> None:
        if not (self._sanitized and name.startswith("slurmd-")):
            super()._spawn(name)
            return
        node = self._node(name.removeprefix("slurmd-"))
        self._daemons[name] = self._box.spawn(
            ["slurmd", "-D", "-N", node.name],
            log=f"/var/log/slurm/{name}.log",
            hostname=node.binding_name,
            own_directory="/run/slurm",
            env={
                "LD_PRELOAD": f"{_LIBRARIES}/libasan.so.8 {_LIBRARIES}/libubsan.so.1",
                # What Slurm itself does not free when it ends is not our concern.
                "ASAN_OPTIONS": f"detect_leaks=0,log_path={SANITIZER_LOG}",
                "UBSAN_OPTIONS": f"log_path={SANITIZER_LOG}",
            },
        )

    def _await(self, name: str) -> None:
        super()._await(name)
        if self._sanitized and name.startswith("slurmd-"):
            # Only where the sanitizers' libraries are loaded. Programs without them would not start.
            compiled = f"{COMPILER}/{SPANK}/{Path(_PLUGIN).name}"
            self.on_node(name.removeprefix("slurmd-"), "mount", "--bind", compiled, f"/{_PLUGIN}")

    def on_node(self, node: str, *argv: str) -> str:
        """Run a program outside the shared root, with the mounts that the slurmd of a node has."""
        entering = ("nsenter", f"--target={self._daemons[f'slurmd-{node}'].pid}", "--mount", "--pid", "--")
        done = subprocess.run([*entering, *argv], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode} on {node}: {done.stderr.strip()}")
        return done.stdout


class LoginNode:
    """A host of its own beside a bed: sackd outside the shared root, and people inside.

    sackd, and the slurmd of every node, know the users of the shared root; slurmctld knows those of the bed alone.
    """

    def __init__(self, bed: JailBed) -> None:
        self._bed = bed

    def __enter__(self) -> Self:
        for node in self._bed.nodes:
            self._bed.on_node(node, "sh", "-c", _KNOW_USERS)
        self._sackd = self._bed._box.spawn(
            ["sh", "-euc", f"{_KNOW_USERS}; exec sackd -D"],
            log="/var/log/slurm/sackd.log",
            hostname="login",
            own_directory="/run/slurm",
        )
        socket = Path("/proc", str(self._sackd.pid), "root", "run/slurm/sack.socket")
        wait_until(lambda: listens(socket), what="sackd listens", within=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._sackd.end(signal.SIGTERM, grace=5)

    def run(self, script: str, *, uid: int) -> str:
        """Run a script as a user of the shared root, in his home."""
        entering = ("nsenter", f"--target={self._sackd.pid}", "--mount", "--pid", "--uts", "--")
        inside = ("isthmus-enter", f"root={JAIL}", "bind=/run/slurm", "--")
        person = (
            "setpriv",
            f"--reuid={uid}",
            f"--regid={uid}",
            "--init-groups",
            "--reset-env",
            "bash",
            "-euc",
            f"cd; {script}",
        )
        done = subprocess.run(
            [*entering, *inside, *person], check=False, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{script} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


@pytest.fixture
def jail_bed(request: pytest.FixtureRequest) -> Iterator[Callable[..., JailBed]]:
    """Start a Slurm with a shared root of the test's own, which it may break: `bed = jail_bed("24.11")`."""
    with ExitStack() as stack:
        count = 0

        def start(version: str, **options: Any) -> JailBed:
            nonlocal count
            count += 1
            bed = stack.enter_context(JailBed(version, **options))
            name = f"jail-{version}-{count}"
            stack.enter_context(logs.shown(request.config, name=name, directory=bed.log_directory))
            return bed

        yield start


@pytest.fixture(scope="session")
def shared_jails() -> Iterator[Callable[[str], JailBed]]:
    """Give the one bed of a version that tests share."""
    running: dict[str, JailBed] = {}
    with ExitStack() as stack:

        def give(version: str) -> JailBed:
            if version not in running or not running[version].is_healthy():
                running[version] = stack.enter_context(JailBed(version, settings=SETTINGS))
            return running[version]

        yield give


@pytest.fixture
def jail(
    request: pytest.FixtureRequest, slurm_version: str, shared_jails: Callable[[str], JailBed]
) -> Iterator[JailBed]:
    """A Slurm of each version whose two nodes share a root, used by all tests that leave it as it was."""
    bed = shared_jails(slurm_version)
    with logs.shown(request.config, name=f"jail-{slurm_version}", directory=bed.log_directory):
        yield bed
