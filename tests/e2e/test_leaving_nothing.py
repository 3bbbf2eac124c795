"""`down` leaves nothing of a cluster on the machine, whatever happened to it before."""

import os
import random
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import lifecycle, state
from isthmus.local.cluster import STEPS
from isthmus.local.delegation import group_of
from isthmus.local.progress import PlainProgress
from isthmus.local.state import PublishedPort
from tests.bed.cluster import ClusterBed
from tests.bed.seeds import seeds
from tests.bed.waiting import eventually
from tests.e2e.command import ISTHMUS
from tests.e2e.pods import web

NAME = f"second-{os.getpid():07}"
"""Others may run these tests at the same time. It is the beginning of no other name of theirs."""
PORT = 20000 + os.getpid() % 10000
"""Of localhost. No outgoing connection takes it by chance: those have higher ones."""


def _traces() -> dict[str, set[str]]:
    """Everything of the cluster NAME (and of no other) that the machine shows."""
    others = _of_others()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    links = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout.splitlines()
    interfaces = {line.split("@")[0].split()[0] for line in links if line.startswith("isthmus")}
    return {
        "processes": {told for entry in Path("/proc").glob("[0-9]*") if (told := _told(entry))},
        "mounts": {line for line in mounts if f"/isthmus/{NAME}" in line},
        "interfaces": interfaces - others - _of_others(),
        "named namespaces": {path.name for path in Path("/run/netns").glob("*")},
        # Groups of other clusters' pods come and go meanwhile.
        "control groups": {at for at, _, _ in os.walk("/sys/fs/cgroup") if at.endswith(f"/{group_of(NAME)}")},
        "files": {
            str(path)
            for pattern in ("*", ".*")
            for path in Path("/var/lib/isthmus").glob(pattern)
            if NAME in path.name
        },
        "firewall": set(
            subprocess.run(
                ["nft", "list", "tables"], check=True, capture_output=True, text=True
            ).stdout.splitlines()
        ),
        "strays": {str(path) for path in Path("/var/lib").glob("*") if path.name in ("kubelet", "cni", "calico")}
        | {str(path) for path in Path("/run").glob("containerd*")}
        | {str(path) for path in Path("/var/log").glob("pods*")},
    }


def _of_others() -> set[str]:
    """The interfaces of clusters beside this one, which may come and go meanwhile."""
    found = set()
    for name in state.names():
        with suppress(Terminal):
            found.add(f"isthmus{state.load(name).slot}" if name != NAME else "")
    return found


def _told(entry: Path) -> str:
    """Tell a process that belongs to the cluster; nothing of others, and of one that ends at this moment."""
    try:
        group, command = (entry / "cgroup").read_text(), (entry / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    mine = group_of(NAME) in group or f"/var/lib/isthmus/{NAME}/" in command
    return f"{entry.name} {command}" if mine else ""


def _down_leaves(before: dict[str, set[str]]) -> None:
    done = subprocess.run(
        [ISTHMUS, "down", "--name", NAME], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 or "no cluster" in done.stderr, done.stderr

    def changed() -> dict[str, set[str]]:
        changes = {what: found ^ before[what] for what, found in _traces().items()}
        # That of a cluster which somebody else took down just before may have been there for a moment longer.
        changes["interfaces"] -= before["interfaces"]
        return {what: found for what, found in changes.items() if found}

    # The kernel removes a network namespace a moment after its last process.
    eventually(changed, "the machine to be as before", holds=lambda it: not it, within=60)


def test_two_clusters_live_side_by_side_and_one_goes_without_the_other(cluster: ClusterBed) -> None:
    before = _traces()
    publish = [PublishedPort(PORT, 30080)]
    second = ClusterBed(lifecycle.up(NAME, workers=1, publish=publish, progress=PlainProgress()))
    try:
        assert second.cluster.settings.slot != cluster.cluster.settings.slot
        second.apply(web("web") + _NODE_PORT)
        second.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=180s")
        eventually(lambda: _greeting(PORT), "the published port to answer", holds=lambda it: it == b"web\n")
        assert "web" not in cluster.kubectl("get", "pods", "-o", "name")
        assert all(view.machine == "on" and not view.stopped for view in cluster.cluster.look())
    finally:
        _down_leaves(before)
    assert all(view.machine == "on" and not view.stopped for view in cluster.cluster.look())
    assert cluster.node_ready(cluster.workers[0]) == "True"


_NODE_PORT = """
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""


def _greeting(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while data := connection.recv(4096):
                answer += data
    except OSError:
        return b""
    return answer.rpartition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("seed", seeds())
def test_up_may_be_ended_at_any_moment(cluster: ClusterBed, seed: int) -> None:
    """In each step, by each signal: first when the step begins, and with more seeds some time later."""
    assert cluster
    before = _traces()
    how = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[seed % 3]
    step, again = STEPS[seed % len(STEPS)], seed // 15
    later = random.Random(seed).uniform(0, 3) if again else 0  # noqa: S311 - a test's choice, the same each run
    words = [str(ISTHMUS), "up", "--name", NAME, "--nodes", "1", "--publish", f"{PORT}:30022"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        assert any(line.strip() == f"… {step}" for line in process.stdout), "it ended before this step"
        time.sleep(later)
        process.send_signal(how)
        # Not to the end of what it prints: who goes on in the background may still hold that open.
        assert process.wait() != 0 or again
    _down_leaves(before)


def test_up_completes_what_a_killed_up_began(cluster: ClusterBed) -> None:
    assert cluster
    before = _traces()
    words = [str(ISTHMUS), "up", "--name", NAME, "--nodes", "1", "--publish", f"{PORT}:30022"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        eventually(
            lambda: list(Path(f"/var/lib/isthmus/{NAME}/nodes").glob("*/parts/containerd")), "containerd to start"
        )
        process.kill()
    try:
        with closing(ClusterBed(lifecycle.up(NAME, progress=PlainProgress()))) as again:
            assert again.node_ready(again.workers[0]) == "True"
    finally:
        _down_leaves(before)


def test_a_cluster_goes_with_the_process_that_wanted_it() -> None:
    script = (
        f"import os; from tests.bed.cluster import make_cluster; make_cluster({NAME!r}, workers=1);"
        "os.kill(os.getpid(), 9)"
    )
    python = Path(__file__).parents[2] / ".venv" / "bin" / "python"
    subprocess.run([python, "-c", script], check=False, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    eventually(
        lambda: ({NAME}.intersection(state.names()), _traces()["processes"]),
        "the guard to remove the cluster",
        holds=lambda it: not any(it),
    )
