"""A whole Slurm cluster in pods that really run, and the seconds that its users wait for it.

The local cluster has one node more than Slurm gets workers at first, all images are in it, and helm has installed
the operator. Everything is asked from where users are: a shell on the login node.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import cgroups, lifecycle
from isthmus.local.delegation import group_of
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import make_cluster
from tests.bed.operator_ground import CHARTS, EXAMPLES, OperatorGround
from tests.bed.operator_ground import NAMESPACE as OPERATORS
from tests.bed.prepare import prepare

WORKERS = 3
_NAMESPACE = "hpc"
_CLUSTER = "slurmcluster/demo"
_LOGIN = "login-0"
_ELASTIC = "burst"
_PAUSE = 0.1
_WITHIN = 90.0
_ONE_COMMAND = 60.0


@contextmanager
def cluster() -> Iterator[OperatorGround]:
    """Bring up a local cluster with the operator in it."""
    name = f"bench-{os.getpid()}"
    prepare(PlainProgress())
    try:
        with closing(make_cluster(name, workers=WORKERS + 1)) as bed:
            ground = OperatorGround(bed)
            chart = str(CHARTS / "isthmus-operator")
            ground.helm(
                "install", "isthmus-operator", chart, f"--namespace={OPERATORS}", "--create-namespace", "--wait"
            )
            ground.kubectl("create", "namespace", _NAMESPACE)
            # Its pods are ready before every node has heard of the way to its webhook.
            _until(ground, lambda: _is_accepted(ground), "the operator's webhook")
            yield ground
    finally:
        lifecycle.down(name, PlainProgress())


def _is_accepted(ground: OperatorGround) -> bool:
    words = ("apply", f"--namespace={_NAMESPACE}", "--dry-run=server", "--filename=-")
    return ground.attempt(*words, stdin=_example()).returncode == 0


def _example() -> str:
    return (EXAMPLES / "cluster.yaml").read_text()


def first_job(ground: OperatorGround) -> float:
    """Make a Slurm cluster, and wait for a job on all its nodes."""
    began = time.monotonic()
    ground.apply(_example(), _NAMESPACE)
    _until(
        ground,
        lambda: len(_shell(ground, "srun", f"-N{WORKERS}", "hostname").split()) == WORKERS,
        "a job on all nodes",
    )
    return time.monotonic() - began


def settle(ground: OperatorGround) -> None:
    """Wait until the cluster says that all is as it should be."""
    ground.ready(_CLUSTER, _NAMESPACE, within=int(_WITHIN))


def one_more(ground: OperatorGround) -> float:
    """Add a worker, and wait until Slurm gives it jobs."""
    began = time.monotonic()
    _resize(ground, WORKERS + 1)
    name = f"worker-{WORKERS}"

    def idle() -> bool:
        return set(_shell(ground, "sinfo", "-hN", "-n", name, "-o%T").split()) == {"idle"}

    _until(ground, idle, f"{name} to be idle")
    return time.monotonic() - began


def one_less(ground: OperatorGround) -> float:
    """Take an idle worker away, and wait until neither Kubernetes nor Slurm know it."""
    began = time.monotonic()
    _resize(ground, WORKERS)
    name = f"worker-{WORKERS}"

    def gone() -> bool:
        pods = ground.kubectl("get", "pods", f"--namespace={_NAMESPACE}", "-o", "name").split()
        return f"pod/{name}" not in pods and name not in _shell(ground, "sinfo", "-hN", "-o%N").split()

    _until(ground, gone, f"{name} to go")
    return time.monotonic() - began


def announce(ground: OperatorGround) -> None:
    """Add elastic workers to the cluster: all of them are off."""
    manifest = (EXAMPLES / "elastic-workers.yaml").read_text().replace("name: worker", f"name: {_ELASTIC}")
    ground.apply(manifest, _NAMESPACE)
    await_off(ground)


def await_off(ground: OperatorGround) -> None:
    """Wait until Slurm has stopped all elastic workers."""

    def off() -> bool:
        return set(_shell(ground, "sinfo", "-hN", f"-n{_ELASTIC}-[0-2]", "-o%t").split()) == {"idle~"}

    _until(ground, off, "elastic workers to be off")


def from_zero(ground: OperatorGround, nodes: int) -> float:
    """Start a job on elastic workers; how long until its first process runs."""
    began = time.time()
    told = _shell(ground, "srun", f"-N{nodes}", f"-C{_ELASTIC}", "date", "+%s.%N").split()
    if len(told) != nodes:
        raise Terminal(f"the job on {nodes} elastic workers did not run: {_shell(ground, 'sinfo', '-N', '-l')}")
    return min(map(float, told)) - began


def outage(ground: OperatorGround) -> float:
    """Kill slurmctld, and wait until a job can be submitted."""
    pid = _slurmctld(ground)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    job = ("sbatch", "--chdir=/tmp", "--wrap=true")
    _until(ground, lambda: "Submitted" in _shell(ground, *job), "a job to be taken")
    return time.monotonic() - began


def _resize(ground: OperatorGround, workers: int) -> None:
    change = {"spec": {"slurmNodes": {"worker": {"size": workers}}}}
    words = ("patch", _CLUSTER, f"--namespace={_NAMESPACE}", "--type=merge", f"--patch={json.dumps(change)}")
    ground.kubectl(*words)


def _shell(ground: OperatorGround, *words: str) -> str:
    """Run a command on the login node; nothing if it fails, or if there is no login node yet."""
    command = [*ground.cluster.cluster.kubectl, "exec", f"--namespace={_NAMESPACE}", _LOGIN, "--", *words]
    try:
        done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=_ONE_COMMAND)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _slurmctld(ground: OperatorGround) -> int:
    """Find the process of slurmctld: what runs in pods is a process of this machine."""
    for pid in cgroups.processes(group_of(ground.cluster.name)):
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            continue  # it has just ended
        if program.endswith(b"slurmctld"):
            return pid
    raise Terminal("no slurmctld runs in the cluster")


def _until(ground: OperatorGround, done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WITHIN
    while not done():
        if time.monotonic() > deadline:
            told = f"{_shell(ground, 'sinfo', '-N', '-l')}\n{ground.story(_NAMESPACE)}"
            raise Terminal(f"waited in vain for {what} for {_WITHIN:.0f} s\n{told}")
        time.sleep(_PAUSE)
