"""What runs in a worker pod, on a real Slurm: its scripts are run as kubelet would, on a host of the bed."""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator

import pytest

from isthmus.domain.operator.authkeys import FILE, AuthKey, KeySet
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import _claim, wait_until
from tests.flows.operator.worker_pod import NODE, SETTINGS, Pod, starting

CONF = "/run/slurm/conf/slurm.conf"


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
    with starting(bed, port) as start:
        yield start


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


def test_keys_that_come_late_are_read_though_nobody_says_so(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    mounted = bed.path("/run/secrets/slurm")
    mounted.mkdir(parents=True)

    def mount(version: str, *, ago: float) -> None:
        """Do as kubelet does with a changed Secret, so many seconds ago."""
        (mounted / version).mkdir()
        os.utime(mounted / version, (time.time() - ago,) * 2)
        (mounted / "..new").symlink_to(version)
        (mounted / "..new").rename(mounted / "..data")

    def start_time() -> str:
        return shown(bed).partition("SlurmdStartTime=")[2].partition(" ")[0]

    def told() -> str:
        return bed.command("stat", "-c", "%y", "/run/slurm/told-of-keys")

    mount("..1", ago=0)
    pod = started()
    pod.await_start()
    first, soon = start_time(), time.time() + 2
    wait_until(lambda: time.time() > soon, what="a second that differs from that of the start", within=5)
    assert pod.ready
    bed.command("touch", "-d", "60 seconds ago", CONF)
    mount("..2", ago=5)
    assert pod.ready, "slurmctld has everybody read new keys soon"
    with pytest.raises(RuntimeError, match="No such file"):
        told()
    os.utime(mounted / "..2", (time.time() - 30,) * 2)
    assert pod.ready
    wait_until(lambda: start_time() != first, what="slurmd reads its files again", within=30)
    wait_until(lambda: pod.started, what="it is in service", within=30)
    once = told()
    assert pod.ready
    assert told() == once


def test_jobs_may_pin_as_much_memory_as_the_machine_allows(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    started().await_start()
    limit = bed.command("srun", "--propagate=NONE", f"--nodelist={NODE}", "bash", "-c", "ulimit -l")
    assert limit == bed.command("bash", "-c", "ulimit -l unlimited 2> /dev/null; ulimit -l")


def test_nothing_in_a_line_is_read_by_a_shell(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    """W38: what could be is refused before, and what cannot be refused is an argument of its own."""
    pod = started(slurmd={"args": ["-v", "--", "$(touch /tmp/pwned)", "; touch /tmp/pwned"]})
    wait_until(lambda: (pod._daemon and pod._daemon.exit_code is not None) or pod.started, what="it ran", within=60)
    assert not bed.path("/tmp/pwned").exists()  # noqa: S108 - in the bed
