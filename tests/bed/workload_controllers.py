"""The real controllers of JobSet and LeaderWorkerSet beside a control plane without nodes, webhooks included.

    apply_kinds(bed, "podgroup")                              the kinds alone
    with WorkloadControllers(bed): bed.kubectl("apply", …)    JobSets become Jobs, and those pods that stay Pending

Each runs as a process on a loopback address of its own, with the rights that it has in the local cluster.
"""

import base64
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from isthmus.local import crds, workloads
from isthmus.local.controlplane import answers
from isthmus.local.progress import PlainProgress
from isthmus.local.workloads import ADDONS, Addon
from tests.bed import logs
from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import given, program, programs
from tests.bed.waiting import eventually

CONTROLLERS = tuple(name for name, addon in ADDONS.items() if addon.probe)
_RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
_WEBHOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
_WEBHOOK_PORT = 9443
_HEALTH_PORT = 8081
_GRACE = 10


def apply_kinds(bed: ControlPlaneBed, *names: str) -> None:
    """Make JobSet, LeaderWorkerSet and PodGroup (or those named) known to the API server, and nothing more."""
    found = crds.ensure(names or crds.DEFINITIONS, PlainProgress(), given=given())
    workloads.apply_kinds(_kubectl(bed), found.values())


class WorkloadControllers:
    """Controllers that run as long as the `with` block lasts."""

    def __init__(self, bed: ControlPlaneBed, names: Sequence[str] = CONTROLLERS) -> None:
        self._bed = bed
        self._addons = [ADDONS[name] for name in names]

    def __enter__(self) -> Self:
        names = [addon.name for addon in self._addons]
        found = programs(names)
        apply_kinds(self._bed, *names)
        with ExitStack() as stack:
            running = []
            for addon in self._addons:
                address = stack.enter_context(loopback_address())
                self._bed.kubectl("apply", "--server-side", "--filename=-", stdin=self._objects(addon, address))
                stack.callback(self._bed.kubectl, "delete", "--filename=-", stdin=_webhooks_only(addon))
                command = (str(found[addon.name]), f"--config={self._configuration(addon, address)}")
                running.append((addon, address, self._spawn(addon, command)))
                stack.callback(_end, running[-1][-1])
            for addon, address, process in running:
                log = self._bed.logs / f"{addon.name}.log"
                wait_until_ready(f"http://{address}:{_HEALTH_PORT}/readyz", process, log)
                workloads.wait_until_served(_kubectl(self._bed), addon, remedy=f"see {log}")
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _objects(self, addon: Addon, address: str) -> str:
        """The rights of the add-on, and its webhooks where they are reached from here."""
        authority = base64.b64encode(self._bed.plane.authority.certificate.read_bytes()).decode()
        wanted = []
        for document in _documents(addon):
            if document["kind"] in _RIGHTS:
                wanted.append(document)
            elif document["kind"] in _WEBHOOKS:
                for webhook in document["webhooks"]:
                    path = webhook["clientConfig"]["service"]["path"]
                    url = f"https://{address}:{_WEBHOOK_PORT}{path}"
                    webhook["clientConfig"] = {"url": url, "caBundle": authority}
                wanted.append(document)
        return yaml.safe_dump_all(wanted)

    def _configuration(self, addon: Addon, address: str) -> str:
        directory = self._bed.directory / addon.name
        directory.mkdir(exist_ok=True)
        pair = self._bed.plane.authority.issue(f"{addon.name}-{address}", addon.name, hosts=(address,))
        shutil.copy(pair.certificate, directory / "tls.crt")
        shutil.copy(pair.key, directory / "tls.key")
        config_map = next(document for document in _documents(addon) if document["kind"] == "ConfigMap")
        settings = yaml.load(config_map["data"]["config.yaml"], yaml.CSafeLoader)
        settings["internalCertManagement"] = {"enable": False}
        settings["webhook"] = {"host": address, "port": _WEBHOOK_PORT, "certDir": str(directory)}
        settings["health"] = {"healthProbeBindAddress": f"{address}:{_HEALTH_PORT}"}
        file = directory / "config.yaml"
        file.write_text(yaml.safe_dump(settings))
        return str(file)

    def _spawn(self, addon: Addon, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        account = f"system:serviceaccount:{addon.name}-system:{addon.name}"
        config = self._bed.plane.user(addon.name, account)
        with (self._bed.logs / f"{addon.name}.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env={**os.environ, "KUBECONFIG": str(config)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def _kubectl(bed: ControlPlaneBed) -> tuple[str, ...]:
    return (str(program("kubectl")), f"--kubeconfig={bed.kubeconfig}")


def _documents(addon: Addon) -> list[Any]:
    return list(yaml.load_all(workloads.manifest(addon), yaml.CSafeLoader))


def _webhooks_only(addon: Addon) -> str:
    return yaml.safe_dump_all(document for document in _documents(addon) if document["kind"] in _WEBHOOKS)


def wait_until_ready(health: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a controller is ready. It is asked itself: each kubectl would cost it processor time."""

    def ready() -> bool:
        if process.poll() is not None:
            tail = logs.tail(log, lines=15)
            raise RuntimeError(f"{log.stem} ended with {process.returncode}; the end of its log:\n{tail}")
        return answers(health)

    eventually(ready, f"{log.stem} to be ready; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def workload_controllers(control_plane: ControlPlaneBed) -> Iterator[ControlPlaneBed]:
    """The shared control plane, with the controllers of JobSet and LeaderWorkerSet, and the PodGroup kind."""
    apply_kinds(control_plane, "podgroup")
    with WorkloadControllers(control_plane):
        yield control_plane
