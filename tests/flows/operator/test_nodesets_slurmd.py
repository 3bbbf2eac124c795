"""What runs in a worker pod, on a real Slurm: its scripts are run as kubelet would, on a host of the bed."""

import re
import secrets
import signal
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.authkeys import FILE, AuthKey, KeySet
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.model.slinky import Controller, NodeSet
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import Daemon, _claim, wait_until

NODE = "w-0"
SETTINGS = {
    "MaxNodeCount": "100",
    "ReturnToService": "2",
    "SlurmctldParameters": "enable_configless",
    "SlurmdDebug": "debug",  # with which slurmd tells that slurmctld has answered it
}


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


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other bed has, and that the kernel gives to no client before slurmd listens."""
    number, claim = _claim()
    with claim:
        yield number


@pytest.fixture(params=VERSIONS)
def bed(request: pytest.FixtureRequest, port: int, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    bed = slurm_bed(request.param, nodes=0, accounting=False, settings={**SETTINGS, "SlurmdPort": str(port)})
    with bed.path("/etc/hosts").open("a") as hosts:
        hosts.write(f"127.0.0.1 {NODE}\n")
    return bed


@pytest.fixture
def started(bed: SlurmBed, port: int) -> Iterator[Callable[..., Pod]]:
    pods: list[Pod] = []

    def start(**spec: Any) -> Pod:
        pod = Pod(bed, port, **spec)
        pods.append(pod)
        pod.start()
        return pod

    yield start
    for pod in pods:
        pod.end()


def shown(bed: SlurmBed) -> str:
    return bed.scontrol("--oneliner", "show", "node", NODE)


def test_it_registers_as_large_as_the_pod_is(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "512Mi"}}
    pod = started(slurmd={"resources": resources}, extraConf="Weight=7 Feature=fast")
    pod.await_start()
    node = shown(bed)
    for fact in ("CPUTot=1 ", "RealMemory=512 ", "ActiveFeatures=fast,w ", "Weight=7 ", "State=IDLE+DYNAMIC_NORM"):
        assert fact in node
    assert pod.run("readinessProbe")


def test_it_waits_for_slurmctld(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    bed.stop("slurmctld")
    pod = started()
    assert not pod.run("startupProbe")
    assert not pod.run("readinessProbe")
    bed.start("slurmctld")
    pod.await_start()


def test_it_registers_again_where_it_was_forgotten(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    pod = started()
    wait_until(lambda: NODE in bed.scontrol("--oneliner", "show", "nodes"), what="the node is known", within=60)
    # One that has heard nothing yet asks again, until it is registered.
    wait_until(lambda: "slurmctld sent back" in bed.logs(NODE), what="slurmd knows that it is known", within=60)
    bed.kill("slurmctld")
    for state in bed.path("/var/lib/slurm/slurmctld").glob("node_state*"):
        state.unlink()  # as if it had crashed before it was written
    bed.start("slurmctld")
    assert NODE not in bed.scontrol("--oneliner", "show", "nodes")
    pod.await_start()


def test_a_drained_node_is_in_service(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    pod = started()
    pod.await_start()
    bed.scontrol("update", f"nodename={NODE}", "state=drain", "reason=by hand")
    assert pod.run("startupProbe")


def test_a_node_that_is_down_is_not_but_readiness_asks_nobody(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    pod = started()
    pod.await_start()
    bed.scontrol("update", f"nodename={NODE}", "state=down", "reason=by hand")
    assert not pod.run("startupProbe")
    assert pod.run("readinessProbe")
    bed.stop("slurmctld")
    assert pod.run("readinessProbe")
    pod.end()
    assert not pod.run("readinessProbe")


def running_job(bed: SlurmBed) -> str:
    job = bed.command("sbatch", "--parsable", "--wrap=sleep 600").strip()
    wait_until(lambda: "State=MIXED" in shown(bed) or "State=ALLOCATED" in shown(bed), what="it runs", within=60)
    return job


def test_slurm_hears_at_once_that_a_pod_goes_and_gives_it_no_more_jobs(
    bed: SlurmBed, started: Callable[..., Pod]
) -> None:
    pod = started()
    pod.await_start()
    job = running_job(bed)
    assert pod.run("preStop")
    # slurmd lives on for a moment, and answers: it may be taken for well again, but not for free.
    assert re.search(r"State=\S*DRAIN", shown(bed))
    assert "Reason=slurm-operator: Pod is terminating" in shown(bed)
    pod.end()
    wait_until(lambda: "JobState=PENDING" in bed.scontrol("show", "job", job), what="it waits again", within=60)
    successor = started()
    successor.await_start()
    bed.scontrol("update", f"nodename={NODE}", "state=undrain")  # as we do when the pod is ready
    wait_until(lambda: "State=IDLE+DYNAMIC_NORM " in shown(bed), what="it is used again", within=60)


def test_the_reason_of_an_administrator_outlives_the_pod(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    pod = started()
    pod.await_start()
    job = running_job(bed)
    bed.scontrol("update", f"nodename={NODE}", "state=drain", "reason=broken fan, ask Eve")
    assert pod.run("preStop")
    wait_until(lambda: "JobState=PENDING" in bed.scontrol("show", "job", job), what="it waits again", within=60)
    assert re.search(r"State=\S*DRAIN", shown(bed))
    assert "Reason=broken fan, ask Eve [" in shown(bed)


def test_a_node_that_is_drained_and_idle_is_left_as_it_is(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    pod = started()
    pod.await_start()
    bed.scontrol("update", f"nodename={NODE}", "state=drain", "reason=slurm-operator: leaving")
    assert pod.run("preStop")
    assert "State=IDLE+DRAIN" in shown(bed)


def test_it_reads_a_key_set_where_the_secret_is_mounted(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    keys = KeySet.only(AuthKey.of(secrets.token_bytes(256), where="the test"))
    bed.stop("slurmctld")
    bed.path("/etc/slurm/slurm.key").unlink()
    mounted = bed.path("/run/secrets/slurm")
    mounted.mkdir(parents=True)
    (mounted / FILE).write_bytes(keys.write())
    (mounted / FILE).chmod(0o600)
    own = bed.path(f"/etc/slurm/{FILE}")
    own.write_bytes(keys.write())
    own.chmod(0o600)
    bed.command("chown", "slurm:slurm", f"/etc/slurm/{FILE}")
    bed.start("slurmctld")
    pod = started()
    pod.await_start()
    assert own.is_symlink()


def test_nothing_in_a_line_is_read_by_a_shell(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    """W38: what could be is refused before, and what cannot be refused is an argument of its own."""
    pod = started(slurmd={"args": ["-v", "--", "$(touch /tmp/pwned)", "; touch /tmp/pwned"]})
    wait_until(lambda: (pod._daemon and pod._daemon.exit_code is not None) or pod.started, what="it ran", within=60)
    assert not bed.path("/tmp/pwned").exists()  # noqa: S108 - in the bed
