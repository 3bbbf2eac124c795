"""A worker pod without Kubernetes: its scripts are run as kubelet would, on a host of the bed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.model.slinky import Controller, NodeSet
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import Daemon, wait_until

NODE = "w-0"
SETTINGS = {
    "MaxNodeCount": "100",
    "ReturnToService": "2",
    "SlurmctldParameters": "enable_configless",
    "SlurmdDebug": "debug",  # with which slurmd tells that slurmctld has answered it
}


@contextmanager
def starting(bed: SlurmBed, port: int) -> Iterator[Callable[..., "Pod"]]:
    """Give a function that starts worker pods; they are ended with the block."""
    with ExitStack() as pods:

        def start(**spec: Any) -> Pod:
            pod = Pod(bed, port, **spec)
            pods.callback(pod.end)
            pod.start()
            return pod

        yield start


class Pod:
    """A worker pod whose containers are processes of the bed."""

    def __init__(self, bed: SlurmBed, port: int, **spec: Any) -> None:
        self._bed = bed
        self._port = port
        host = {"external": True, "externalConfig": {"host": "127.0.0.1", "port": bed.controller_port}}
        controller = msgspec.convert({"metadata": {"name": "s", "namespace": "n"}, "spec": host}, Controller)
        nodeset = msgspec.convert(
            {"metadata": {"name": "w", "namespace": "n"}, "spec": {"controllerRef": {"name": "s"}, **spec}}, NodeSet
        )
        made = worker.template(nodeset, controller, settings=Settings()).fill(numbered(nodeset, 0))
        self._container = made["spec"]["containers"][0]
        self._env = {
            "ISTHMUS_NODE": NODE,
            **{it["name"]: it["value"] for it in self._container["env"] if "value" in it},
        }
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Start slurmd."""
        argv = [*self._container["command"], *self._container["args"]]
        self._daemon = self._bed._box.spawn(argv, log="/var/log/slurm/w-0.log", hostname=NODE, env=self._env)

    def end(self) -> None:
        if self._daemon and self._daemon.exit_code is None:
            self._daemon.end(signal.SIGTERM, grace=10)

    def run(self, what: str) -> bool:
        """Run a probe or hook in the container; tell whether it succeeds."""
        hook = self._container["lifecycle"][what] if what == "preStop" else self._container[what]
        # The bed shares its host's network, where others have the usual port.
        command = [it.replace("6818", str(self._port)) for it in hook["exec"]["command"]]
        if what == "startupProbe":
            command[-1] = "0"  # seconds that it may wait
        return self._bed._box.run(*command, env=self._env).returncode == 0

    @property
    def over(self) -> bool:
        return self._daemon is not None and self._daemon.exit_code is not None

    @property
    def started(self) -> bool:
        return self.run("startupProbe")

    @property
    def ready(self) -> bool:
        return self.run("readinessProbe")

    def await_start(self) -> None:
        wait_until(lambda: self.started, what="slurmd is registered", within=60)
