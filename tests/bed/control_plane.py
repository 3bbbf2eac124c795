"""A real etcd, kube-apiserver and kube-controller-manager on a loopback address, in seconds, without nodes."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from isthmus.local import host
from isthmus.local.controlplane import ControlPlane, Part
from isthmus.local.pki import write_secret
from isthmus.local.progress import PlainProgress
from tests.bed import logs
from tests.bed.addresses import loopback_address
from tests.bed.programs import programs

_CONTROLLERS = (
    # Node objects here have no kubelet that says it lives, and are to be what tests make them.
    "--controllers=-node-lifecycle-controller,-taint-eviction-controller",
    "--horizontal-pod-autoscaler-sync-period=1s",
)
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
_READY_WITHIN = 60
_GRACE = 10
_PREFIX = "isthmus-control-plane-"


def _sweep() -> None:
    """Remove what runs that were killed could not: the parts die with their run, its directory does not."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(directory, ignore_errors=True)


class ControlPlaneBed:
    """A control plane to test against: `with ControlPlaneBed() as bed: … bed.kubeconfig …`."""

    def __init__(self, *, apiserver_flags: tuple[str, ...] = (), controllers: bool = True) -> None:
        self._flags = apiserver_flags
        self._controllers = controllers
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        found = programs(_PROGRAMS)
        # Each takes some 15 of the 128 instances that Linux allows. Workload controllers that get none end.
        host.allow_many_watches(PlainProgress())
        _sweep()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.logs = self.directory / "logs"
        self.logs.mkdir()
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        plane = ControlPlane(
            name="test",
            directory=self.directory,
            address=self._stack.enter_context(loopback_address()),
            service_range="198.18.4.0/22",
            service_address="198.18.4.1",
            binaries=found,
        )
        self.plane = plane
        self._kubectl = found["kubectl"]
        self.kubeconfig, tokens = self._administrator()
        parts = [
            plane.etcd(),
            # An endpoint on a loopback address is refused by the API itself, and no pod is there to use it.
            plane.apiserver("--endpoint-reconciler-type=none", f"--token-auth-file={tokens}", *self._flags),
            *([plane.controller_manager(*_CONTROLLERS)] if self._controllers else []),
        ]
        self._parts = {part.name: part for part in parts}
        self._stack.callback(self._end_all)
        try:
            for name in self._parts:
                self.start(name)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _administrator(self) -> tuple[Path, Path]:
        """Write the administrator's kubeconfig, and the file by which the API server knows the token in it.

        Not with a certificate, as `plane.admin`: the API server verifies that anew at every request, which takes a
        sixth of its processor time. Our processes have tokens, too.
        """
        token = secrets.token_hex(16)
        tokens = self.directory / "tokens.csv"
        write_secret(tokens, f"{token},kubernetes-admin,kubernetes-admin,system:masters\n".encode())
        config = yaml.safe_load(self.plane.admin.read_text())
        config["users"][0]["user"] = {"token": token}
        kubeconfig = self.directory / "kubeconfig"
        write_secret(kubeconfig, yaml.safe_dump(config).encode())
        return kubeconfig, tokens

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self.plane.url

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator and return what it printed."""
        return subprocess.run(
            [self._kubectl, f"--kubeconfig={self.kubeconfig}", *words],
            check=True,
            text=True,
            input=stdin,
            stdout=subprocess.PIPE,
        ).stdout

    def compact(self) -> None:
        """Make etcd forget all versions but the newest, as the API server asks it to every five minutes."""
        revision = self._etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})

    def _etcd(self, call: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(  # noqa: S310 - https, built by us
            f"{self.plane.etcd_http_url}/v3/{call}", data=json.dumps(body).encode(), method="POST"
        )
        context = self.plane.client_context(self.plane.etcd_authority)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:  # noqa: S310 - likewise
            return json.load(answer)

    def start(self, name: str) -> None:
        """Start a part and wait until it is ready."""
        part = self._parts[name]
        with (self.logs / f"{name}.log").open("ab") as log:
            # A part dies with the test run, even if that is killed.
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *part.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        self._wait(part)

    def kill(self, name: str) -> None:
        """End a part by SIGKILL, as a crash would."""
        self._end(name, signal.SIGKILL)

    def stop(self, name: str) -> None:
        """End a part as an administrator would."""
        self._end(name, signal.SIGTERM)

    def restart(self, name: str) -> None:
        """Kill a part and start it again."""
        self.kill(name)
        self.start(name)

    def _wait(self, part: Part) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not part.ready():
            code = self._running[part.name].poll()
            if code is not None or time.monotonic() > deadline:
                tail = "\n".join((self.logs / f"{part.name}.log").read_text(errors="replace").splitlines()[-15:])
                state = f"ended with {code}" if code is not None else f"was not ready in {_READY_WITHIN} s"
                raise RuntimeError(f"{part.name} {state}; the end of its log:\n{tail}")
            time.sleep(0.02)

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self._running.pop(name)
        process.send_signal(how)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_all(self) -> None:
        for name in reversed(list(self._running)):
            self._end(name, signal.SIGKILL)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlaneBed]:
    """One control plane for all tests that only add objects of their own."""
    with ControlPlaneBed() as bed, logs.shown(request.config, name="control-plane", directory=bed.logs):
        yield bed


@pytest.fixture
def own_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlaneBed]:
    """A control plane that a test may break."""
    with ControlPlaneBed() as bed, logs.shown(request.config, name="own-control-plane", directory=bed.logs):
        yield bed
