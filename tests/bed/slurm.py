"""A real Slurm without Kubernetes: slurmctld, slurmrestd, slurmdbd with MariaDB, and slurmd or external nodes.

    with SlurmBed("26.05", nodes=2) as bed:
        bed.command("sbatch", "--wrap=hostname")
        client = connect(bed.rest_url, bed.token())

    init ─┬─ mariadbd ◄── slurmdbd ◄── slurmctld ◄─┬─ slurmd-n1, slurmd-n2 …
          └─ (a box, see slurm_box)                └─ slurmrestd ◄── TCP and UNIX socket

`isthmus-complete`, which ends jobs as their pods ended, is started and stopped by the tests that want it.

Any number of beds run side by side, and none leaves anything behind, however it ends.
"""

import http.client
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Self

import jwt
import pytest

from isthmus.errors import Terminal
from isthmus.local import host
from isthmus.local.images import layers
from isthmus.local.images.recipes import COMPLETE, SLURMS
from isthmus.local.progress import PlainProgress
from tests.bed import logs, rootfs, slurm_conf, slurm_database
from tests.bed.slurm_box import Box, Daemon, listens, wait_until

VERSIONS = tuple(SLURMS)
_FIRST_WITH_EXTERNAL_NODES = "25.11"

_READY_WITHIN = 60
# A slurmctld that is killed instead, because its machine was slow, would not have saved its jobs.
_GRACE = 60
_LOGS = "/var/log/slurm"
_STATE = "/var/lib/slurm/slurmctld"
_REST_SOCKET = "/run/slurmrestd/slurmrestd.sock"

# slurmrestd refuses to run as root, as SlurmUser and as nobody. alice and bob are ordinary users.
_USERS = {"slurmrestd": 64031, "alice": 2001, "bob": 2002}


class SlurmBed:
    """One Slurm cluster. It runs as long as the `with` block lasts.

    `settings` are lines of slurm.conf that replace ours. Nodes are called n1, n2 … and those without slurmd, which
    need Slurm 25.11 or newer, e1, e2 …
    """

    def __init__(
        self,
        version: str = VERSIONS[0],
        *,
        nodes: int = 2,
        external_nodes: int = 0,
        accounting: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if version not in VERSIONS:
            raise ValueError(f"there is no root file system with Slurm {version}, only {' and '.join(VERSIONS)}")
        if external_nodes and version < _FIRST_WITH_EXTERNAL_NODES:
            raise ValueError(f"Slurm {version} has no external nodes; they came with {_FIRST_WITH_EXTERNAL_NODES}")
        self.version = version
        self.accounting = accounting
        self._settings = settings
        self._counts = (nodes, external_nodes)
        self._daemons: dict[str, Daemon] = {}

    # --- life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        roots = self._roots()
        template = self._template(roots) if self.accounting else None
        with ExitStack() as stack:
            stack.callback(self._forget_daemons)
            self._box = stack.enter_context(Box(roots, hostname=slurm_conf.LOGIN))
            self._lay_out()
            if self.accounting:
                slurm_database.prepare(self._box, template)
            self._start_all()
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # Daemons end with their box; none gets a chance to say goodbye, as none may be needed for a clean end.
        self._closing.close()

    def _roots(self) -> dict[str, Path]:
        roots = {"/": _root(f"slurm-{self.version}")}
        if self.accounting:
            roots[slurm_database.PLACE] = _root("mariadb")
        return roots

    def _template(self, roots: Mapping[str, Path]) -> Path | None:
        return slurm_database.template(roots.values(), fill=self._make_database)

    def _make_database(self, target: Path) -> None:
        """Let a bed with an empty database make Slurm's tables, and those of our cluster."""
        with _BedWithNewDatabase(self.version, nodes=1) as bed:
            wait_until(
                lambda: bed.command("sacctmgr", "-nP", "list", "cluster", "format=controlhost").strip(),
                what="slurmctld is registered with slurmdbd",
                within=_READY_WITHIN,
            )
            for name in ("slurmctld", "slurmdbd", "mariadbd"):
                bed.stop(name)
            slurm_database.save(bed._box, target)

    def _forget_daemons(self) -> None:
        for daemon in self._daemons.values():
            daemon.forget()
        self._daemons.clear()

    # --- what tests need to know ---------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The loopback address of slurmdbd and slurmrestd."""
        return self._box.address(1)

    @property
    def controller_port(self) -> int:
        """The port of slurmctld on 127.0.0.1."""
        return self._box.port

    @property
    def rest_url(self) -> str:
        """slurmrestd over TCP."""
        return f"http://{self.address}:{slurm_conf.SLURMRESTD_PORT}"

    @property
    def completer_url(self) -> str:
        """`isthmus-complete`, once it is started."""
        return f"http://{self.address}:{slurm_conf.COMPLETER_PORT}"

    @property
    def rest_socket(self) -> Path:
        """slurmrestd's UNIX socket."""
        return self.path(_REST_SOCKET)

    @property
    def jwt_key(self) -> Path:
        """The key with which tokens are signed."""
        return self.path("/etc/slurm/jwt.key")

    @property
    def state_directory(self) -> Path:
        """Where slurmctld keeps jobs and nodes across a restart."""
        return self.path(_STATE)

    @property
    def log_directory(self) -> Path:
        """A file for each daemon."""
        return self.path(_LOGS)

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return [node.name for node in self._nodes()]

    @property
    def daemons(self) -> list[str]:
        """The names of the daemons that were started and not ended by us."""
        return list(self._daemons)

    def is_healthy(self) -> bool:
        """Say whether every daemon that belongs to the bed runs."""
        return set(self._expected()) == {name for name, daemon in self._daemons.items() if daemon.exit_code is None}

    @property
    def pid(self) -> int:
        """The process whose end is the end of the bed."""
        return self._box.pid

    def path(self, inside: str) -> Path:
        """Return the path by which tests see a path of the bed, for example /tmp/job.out."""
        return self._box.path(inside)

    def token(self, user: str = "root", *, lifetime: float = 3600) -> str:
        """Sign a token, as `scontrol token` does."""
        now = int(time.time())
        claims = {"sun": user, "iat": now, "exp": now + int(lifetime)}
        return jwt.encode(claims, self.jwt_key.read_bytes(), algorithm="HS256")

    # --- what tests do -------------------------------------------------------------------------------------------

    def command(self, *argv: str, user: str = "root", stdin: str | None = None, timeout: float = 60) -> str:
        """Run a program in the bed, as that user and on a host without daemons, and return what it printed."""
        words = (
            argv if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv)
        )
        done = self._box.run(*words, stdin=stdin, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, *options: str, script: str = "sleep 3600", user: str = "root") -> str:
        """Submit a small job without output, and return its id."""
        usual = ("--parsable", "--chdir=/tmp", "--mem=16", "--output=/dev/null")
        return self.command("sbatch", *usual, *options, f"--wrap={script}", user=user).strip()

    def scontrol(self, *argv: str) -> str:
        """Run scontrol as root."""
        return self.command("scontrol", *argv)

    def get(self, path: str, *, user: str = "root") -> Any:
        """Ask slurmrestd over TCP, without any client of ours."""
        connection = http.client.HTTPConnection(self.address, slurm_conf.SLURMRESTD_PORT, timeout=30)
        try:
            connection.request("GET", path, headers={"X-SLURM-USER-TOKEN": self.token(user)})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"GET {path} was answered with {answer.status}: {body.decode(errors='replace')}")
        return json.loads(body)

    def start(self, name: str) -> None:
        """Start a daemon that was killed or stopped, and wait until it is ready."""
        self._spawn(name)
        self._await(name)

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL, as a crash would. The steps of a slurmd live on."""
        self._daemons.pop(name).end(signal.SIGKILL, grace=_GRACE)

    def stop(self, name: str) -> None:
        """End a daemon as an administrator would."""
        self._daemons.pop(name).end(signal.SIGTERM, grace=_GRACE)

    def restart(self, name: str) -> None:
        """Stop a daemon and start it again."""
        self.stop(name)
        self.start(name)

    def logs(self, name: str) -> str:
        """Return what a daemon has logged so far."""
        return self.path(f"{_LOGS}/{name}.log").read_text(errors="replace")

    # --- inside --------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[slurm_conf.Node]:
        real, external = self._counts
        return [
            *(slurm_conf.Node(f"n{n}", self._box.address(n + 1)) for n in range(1, real + 1)),
            *(slurm_conf.Node(f"e{n}", self.address, external=True) for n in range(1, external + 1)),
        ]

    def _expected(self) -> list[str]:
        """Name the daemons of the bed in the order in which they start."""
        return [
            "slurmrestd",
            *(["mariadbd", "slurmdbd"] if self.accounting else []),
            "slurmctld",
            *(f"slurmd-{node.name}" for node in self._nodes() if not node.external),
        ]

    def _lay_out(self) -> None:
        """Write configuration and keys, and make the directories that packages or units would have made."""
        nodes = self._nodes()
        self.path("/etc/hosts").write_text(slurm_conf.hosts(self.address, nodes))
        for file, line in (("passwd", "{0}:x:{1}:{1}::/tmp:/bin/sh\n"), ("group", "{0}:x:{1}:\n")):
            with self.path(f"/etc/{file}").open("a") as users:
                users.writelines(line.format(name, number) for name, number in _USERS.items())
        slurm = _user_id(self.path("/etc/passwd"), "slurm")
        rest = _USERS["slurmrestd"]
        for directory, owner in (
            (_LOGS, slurm),
            (_STATE, slurm),
            ("/run/slurmctld", slurm),
            ("/run/slurmdbd", slurm),
            ("/run/slurmrestd", rest),
            ("/run/slurm", 0),
            ("/var/spool/slurmd", 0),
        ):
            self.path(directory).mkdir(parents=True, exist_ok=True)
            os.chown(self.path(directory), owner, owner)
        conf = slurm_conf.slurm_conf(
            nodes, controller_port=self.controller_port, accounting=self.accounting, settings=self._settings
        )
        for file, content, mode in (
            ("slurm.conf", conf.encode(), 0o644),
            ("cgroup.conf", slurm_conf.CGROUP_CONF.encode(), 0o644),
            ("slurmdbd.conf", slurm_conf.slurmdbd_conf(self.address).encode(), 0o600),
            ("slurm.key", secrets.token_bytes(1024), 0o600),
            ("jwt.key", secrets.token_bytes(32), 0o600),
        ):
            path = self.path(f"/etc/slurm/{file}")
            path.write_bytes(content)
            path.chmod(mode)
            os.chown(path, slurm, slurm)

    def _start_all(self) -> None:
        """Start everything as early as it can be. Who starts before the part it needs would wait for seconds."""
        early, late = ("slurmrestd",), tuple(name for name in self._expected() if name.startswith("slurmd-"))
        for name in early:
            self._spawn(name)
        for name in self._expected():
            if name not in early + late:
                self.start(name)
        for name in late:
            self._spawn(name)
        for name in early + late:
            self._await(name)

    def _spawn(self, name: str) -> None:
        log = f"{_LOGS}/{name}.log"
        match name.split("-"):
            case ["mariadbd"]:
                daemon = slurm_database.spawn(self._box, log=log)
            case ["slurmdbd"]:
                daemon = self._box.spawn([name, "-D"], log=log, hostname=slurm_conf.DATABASE)
            case ["slurmctld"]:
                # Some state is first written after minutes. Without -i, a slurmctld that is killed before does not
                # start again.
                daemon = self._box.spawn([name, "-D", "-i"], log=log, hostname=slurm_conf.CONTROLLER)
            case ["slurmrestd"]:
                # 24.11 does not start if it is to serve slurmdbd and there is none.
                serve = () if self.accounting else ("-s", "slurmctld")
                listen = (f"{self.address}:{slurm_conf.SLURMRESTD_PORT}", f"unix:{_REST_SOCKET}")
                daemon = self._box.spawn(
                    [name, "-u", name, "-g", name, "-a", "rest_auth/jwt", *serve, *listen],
                    log=log,
                    env={
                        "SLURM_JWT": "daemon",
                        "SLURMRESTD_SECURITY": "disable_unshare_files,disable_unshare_sysv",
                    },
                )
            case ["isthmus", "complete"]:
                self._install_completer()
                # A user without any right, key or group, and no configuration but Slurm's.
                nobody = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs")
                daemon = self._box.spawn([*nobody, name, self.address, str(slurm_conf.COMPLETER_PORT)], log=log)
            case ["slurmd", node]:
                daemon = self._box.spawn(
                    ["slurmd", "-D", "-N", node],
                    log=log,
                    hostname=self._node(node).binding_name,
                    # Each slurmd has a socket there under the same name.
                    own_directory="/run/slurm",
                )
            case _:
                raise ValueError(f"the bed has no daemon {name}, only {', '.join(self._expected())}")
        self._daemons[name] = daemon

    def _install_completer(self) -> None:
        built = layers.ensure(f"spank-{self.version}", PlainProgress()).path
        shutil.copy(built / COMPLETE, self.path(COMPLETE))

    def _await(self, name: str) -> None:
        """Wait until a daemon is ready; if it died instead, say why."""
        daemon = self._daemons[name]

        def ready_or_dead() -> bool:
            return daemon.exit_code is not None or self._is_ready(name)

        try:
            wait_until(ready_or_dead, what=f"{name} is ready", within=_READY_WITHIN)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the end of its log:\n{self._log_tail(name)}") from error
        if daemon.exit_code is not None:
            raise Terminal(f"{name} ended with {daemon.exit_code}; the end of its log:\n{self._log_tail(name)}")
        if name.startswith("slurmd-"):
            daemon.rename_host(name.removeprefix("slurmd-"))

    def _is_ready(self, name: str) -> bool:
        match name.split("-"):
            case ["mariadbd"]:
                return slurm_database.is_ready(self._box)
            case ["slurmdbd"] | ["isthmus", "complete"]:
                port = slurm_conf.SLURMDBD_PORT if name == "slurmdbd" else slurm_conf.COMPLETER_PORT
                return listens((self.address, port))
            case ["slurmrestd"]:
                return listens((self.address, slurm_conf.SLURMRESTD_PORT)) and listens(self.rest_socket)
            case ["slurmctld"]:
                return (
                    listens(("127.0.0.1", self.controller_port))
                    and self._box.run("scontrol", "ping").returncode == 0
                )
            case ["slurmd", node]:
                if not listens((self._node(node).address, slurm_conf.SLURMD_PORT)):
                    return False
                # The star marks nodes that do not respond, unknown are those that have not registered yet, and
                # nothing comes from a slurmctld that is slow to answer.
                state = self._box.run("sinfo", "-hN", "-n", node, "-o%T").stdout.strip()
                return state not in {"", "unknown"} and "*" not in state
        raise ValueError(f"nothing tells whether {name} is ready")

    def _node(self, name: str) -> slurm_conf.Node:
        return next(node for node in self._nodes() if node.name == name)

    def _log_tail(self, name: str) -> str:
        return logs.tail(self.path(f"{_LOGS}/{name}.log"), lines=15)


class _BedWithNewDatabase(SlurmBed):
    """Makes the database that other beds copy."""

    def _template(self, roots: Mapping[str, Path]) -> None:
        del roots


@cache
def _root(name: str) -> Path:
    """Find a root file system, or make it; look only once in a run whether it is whole."""
    progress = PlainProgress()
    host.ensure_packages(progress)
    return rootfs.ensure(name, progress)


def _user_id(passwd: Path, name: str) -> int:
    for line in passwd.read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2])
    raise Terminal(f"the root file system has no user {name}, which comes with the package slurm-wlm-basic-plugins")


# --- fixtures ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def slurm_version(request: pytest.FixtureRequest) -> str:
    """Each Slurm version in turn. A test for some of them parametrises `slurm_version` itself."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared_slurm() -> Iterator[Callable[..., SlurmBed]]:
    """Start a bed with such arguments, or give the one that runs already: `shared_slurm("26.05", nodes=1)`."""
    running: dict[str, SlurmBed] = {}
    with ExitStack() as stack:

        def give(version: str, **options: Any) -> SlurmBed:
            key = json.dumps([version, options], sort_keys=True)
            bed = running.get(key)
            if bed is None or not bed.is_healthy():
                bed = running[key] = stack.enter_context(SlurmBed(version, **options))
            return bed

        yield give


@pytest.fixture
def slurm(
    request: pytest.FixtureRequest, slurm_version: str, shared_slurm: Callable[..., SlurmBed]
) -> Iterator[SlurmBed]:
    """A Slurm of each version with two nodes and accounting, shared by tests that leave it as it was."""
    bed = shared_slurm(slurm_version)
    with logs.shown(request.config, name=f"slurm-{slurm_version}", directory=bed.log_directory):
        yield bed


@pytest.fixture
def slurm_bed(request: pytest.FixtureRequest) -> Iterator[Callable[..., SlurmBed]]:
    """Start Slurms of the test's own, which it may break: `bed = slurm_bed("24.11", nodes=1)`."""
    with ExitStack() as stack:
        count = 0

        def start(version: str, **options: Any) -> SlurmBed:
            nonlocal count
            count += 1
            bed = stack.enter_context(SlurmBed(version, **options))
            name = f"slurm-{version}-own-{count}"
            stack.enter_context(logs.shown(request.config, name=name, directory=bed.log_directory))
            return bed

        yield start
