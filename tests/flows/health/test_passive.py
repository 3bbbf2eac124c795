"""Passive checks on nodes of a real Slurm: what slurmd runs before jobs, after them and in between.

n1, n2      run /opt/slurm_scripts of the shared root, as workers do; /bad-n1 makes n1 a bad node
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bed import logs, slurm
from tests.bed.jail import JAIL, SETTINGS, JailBed
from tests.bed.waiting import PATIENCE, eventually

SCRIPTS = Path(__file__).parents[3] / "charts" / "slurm-cluster" / "files" / "slurm_scripts"
PLACE = "/opt/slurm_scripts"
LOG = "/var/log/slurm_scripts/check_runner.log"

RUNS_EVERY = {
    "Prolog": f"{PLACE}/prolog.sh",
    "Epilog": f"{PLACE}/epilog.sh",
    "HealthCheckProgram": f"{PLACE}/hc_program.sh",
    # Not less: a node that is resumed or undrained takes no job before slurmctld has asked it to register, and it
    # does not ask in a second in which it begins health checks, nor before it has counted their answers, which it
    # does every two seconds.
    "HealthCheckInterval": "5",
    "HealthCheckNodeState": "ANY",
    "MessageTimeout": "60",
    "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,bf_interval=1,nohold_on_prolog_fail",
}
LOOK = "echo >> /ran-$CHECKS_NODE-$CHECKS_CONTEXT; [ ! -e /bad-$CHECKS_NODE ] || { echo found >&3; exit 1; }"
"""A check of a file that makes a node bad; how often it ran can be counted."""

# It is waited for in the kernel by its parent, in state D, until it ends.
STUCK = "import ctypes, time; ctypes.CDLL(None).vfork(); time.sleep(3600)"
# A file system whose server does not answer, and one second later is gone.
FUSE = """
import ctypes, os, sys, time
fd = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"nobody", sys.argv[1].encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
print("mounted", flush=True)
time.sleep(3600)
"""


class Nodes:
    """Two nodes with the scripts of the chart, and checks of a test's own."""

    def __init__(self, bed: JailBed) -> None:
        self.bed = bed
        shutil.copytree(SCRIPTS, bed.path(f"{JAIL}{PLACE}"))
        bed.path(PLACE).symlink_to(f"{JAIL}{PLACE}")

    def checks(self, *entries: dict[str, Any]) -> None:
        """Replace all checks, at one stroke."""
        defaults = {"on_fail": "drain", "on_ok": "undrain", "reason_append_details": True}
        path = self.bed.path(f"{JAIL}{PLACE}/checks.json")
        path.with_suffix(".new").write_text(json.dumps([{**defaults, **it} for it in entries]))
        path.with_suffix(".new").replace(path)

    def states(self) -> dict[str, tuple[str, str]]:
        """State and reason of each node; none if there is no reason. What is `idle*` takes no job yet."""
        lines = self.bed.command("sinfo", "-hN", "-O", "NodeList:8,StateLong:16,Reason:200").splitlines()
        found = (line.split(maxsplit=2) for line in lines)
        return {name: (state, reason.strip()) for name, state, reason in found}

    def drain(self, node: str) -> tuple[str, str]:
        """Say whether a node is drained, and why; whether it responds is all the same."""
        state, reason = self.states()[node]
        return state.rstrip("*"), reason

    def await_drain(self, node: str, reason: str) -> None:
        wanted = ("drained", reason)
        eventually(lambda: self.drain(node), f"{node} to be drained: {reason}", holds=lambda it: it == wanted)

    def await_open(self, node: str) -> None:
        """Wait until a node is in service. Slurm 24.11 without accounting keeps the reason until the next job."""
        eventually(self.states, f"{node} to be idle", holds=lambda it: it[node][0] == "idle")

    def count(self, node: str, context: str = "hc_program") -> int:
        path = self.bed.path(f"/ran-{node}-{context}")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def await_more_runs(self, node: str) -> None:
        """Wait until the health check has begun twice: one of them began after now, and has ended."""
        before = self.count(node)
        eventually(lambda: self.count(node), f"{node} to be checked", holds=lambda it: it >= before + 2)

    def is_bad(self, node: str, *, bad: bool = True) -> None:
        path = self.bed.path(f"/bad-{node}")
        path.touch() if bad else path.unlink(missing_ok=True)

    def submit(self, *options: str) -> str:
        words = ("--parsable", "--output=/dev/null", "--chdir=/", "--wrap=true", *options)
        return self.bed.command("sbatch", *words, user="alice").strip()

    def job(self, job: str) -> dict[str, Any]:
        (found,) = json.loads(self.bed.scontrol("show", "job", job, "--json"))["jobs"]
        return dict(found)

    def await_end(self, job: str) -> str:
        """Wait for the good end of a job, without the minutes for which Slurm holds back one that was requeued."""

        def state() -> str:
            found = self.job(job)
            if "PENDING" in found["job_state"] and found["state_reason"] == "BeginTime":
                self.bed.scontrol("update", f"jobid={job}", "starttime=now")
            return " ".join(found["job_state"])

        eventually(state, f"job {job} to end", holds=lambda it: it == "COMPLETED")
        return str(self.job(job)["nodes"])

    def check(self, name: str) -> tuple[int, str]:
        """Test one check, as the health loop does in a worker pod: its code, and what it printed last."""
        words = f"python3 {PLACE}/check_runner.py --check {name}; echo $?"
        *lines, code = self.bed.command("env", "ISTHMUS_NODE=n1", "sh", "-c", words).splitlines()
        return int(code), lines[-1]

    def log(self) -> str:
        return self.bed.path(LOG).read_text()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Leave the nodes as they were, and no job on them."""
        try:
            yield
        finally:
            for node in ("n1", "n2"):
                self.is_bad(node, bad=False)
            self.checks()
            self.bed.command("scancel", "--user=alice")
            eventually(self._settle, "idle nodes and no job", holds=lambda it: it == ("", {"idle"}))

    def _settle(self) -> tuple[str, set[str]]:
        """Undrain what a check that began before has drained; tell which jobs are left, and all states."""
        states = self.states()
        for node, (state, _) in states.items():
            if state.startswith("drain"):
                self.bed.scontrol("update", f"nodename={node}", "state=undrain")
        return self.bed.command("squeue", "-h"), {state for state, _ in states.values()}


@pytest.fixture(scope="module", params=slurm.VERSIONS)
def all_nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with (
        JailBed(request.param, settings={**SETTINGS, **RUNS_EVERY}) as bed,
        logs.shown(request.config, name=f"slurm-{request.param}-passive", directory=bed.log_directory),
    ):
        yield Nodes(bed)


# What a check runs as is the same in each release of Slurm.
one_release = pytest.mark.parametrize("all_nodes", slurm.VERSIONS[:1], indirect=True, scope="module")


@pytest.fixture
def nodes(all_nodes: Nodes) -> Iterator[Nodes]:
    with all_nodes.cleared():
        yield all_nodes


def test_a_failed_prolog_drains_the_node_and_the_job_runs_elsewhere(nodes: Nodes) -> None:
    nodes.bed.scontrol("update", "nodename=n2", "state=drain", "reason=lent to Anna")
    nodes.checks({"name": "disk", "command": LOOK, "contexts": ["prolog"]})
    nodes.is_bad("n1")
    job = nodes.submit()
    nodes.await_drain("n1", "[node_problem] disk: found [prolog]")
    found = eventually(
        lambda: nodes.job(job),
        "the job to be back in the queue",
        holds=lambda it: "PENDING" in it["job_state"] and it["restart_cnt"] == 1,
    )
    assert not found["hold"]
    nodes.bed.scontrol("update", "nodename=n2", "state=resume")
    assert nodes.await_end(job) == "n2"
    assert nodes.drain("n1") == ("drained", "[node_problem] disk: found [prolog]")


def test_the_waiting_user_is_told_why(nodes: Nodes) -> None:
    nodes.checks({"name": "disk", "command": LOOK, "contexts": ["prolog"]})
    nodes.is_bad("n1")
    with pytest.raises(RuntimeError, match=r"n1 failed a check before the job: \[node_problem\] disk: found"):
        nodes.bed.command("srun", "--nodelist=n1", "true", user="alice", timeout=PATIENCE)


def test_a_failed_epilog_drains_with_its_own_reason(nodes: Nodes) -> None:
    nodes.checks({"name": "left", "command": LOOK, "contexts": ["epilog"]})
    nodes.is_bad("n1")
    nodes.await_end(nodes.submit("--nodelist=n1"))
    nodes.await_drain("n1", "[node_problem] left: found [epilog]")


def test_the_health_check_drains_and_undrains(nodes: Nodes) -> None:
    nodes.checks({"name": "disk", "command": LOOK, "contexts": ["hc_program"]})
    nodes.is_bad("n1")
    nodes.await_drain("n1", "[node_problem] disk: found [hc_program]")
    assert nodes.drain("n2")[0] == "idle"
    nodes.is_bad("n1", bad=False)
    nodes.await_open("n1")


def test_a_drain_by_a_human_stays_whatever_checks_find(nodes: Nodes) -> None:
    nodes.checks({"name": "disk", "command": LOOK, "contexts": ["hc_program"]})
    theirs = ("drained", "fan is loud, Anna")
    nodes.bed.scontrol("update", "nodename=n1", "state=drain", f"reason={theirs[1]}")
    nodes.is_bad("n1")
    nodes.await_more_runs("n1")
    assert nodes.drain("n1") == theirs
    nodes.is_bad("n1", bad=False)
    nodes.await_more_runs("n1")
    assert nodes.drain("n1") == theirs


def test_a_job_that_says_so_is_not_checked(nodes: Nodes) -> None:
    nodes.checks({"name": "disk", "command": LOOK, "contexts": ["prolog", "epilog"]})
    nodes.is_bad("n1")
    before = nodes.count("n1", "prolog"), nodes.count("n1", "epilog")
    assert nodes.await_end(nodes.submit("--nodelist=n1", "--comment=skip_checks")) == "n1"
    nodes.await_open("n1")
    assert (nodes.count("n1", "prolog"), nodes.count("n1", "epilog")) == before


def test_checks_that_are_broken_hang_or_chatter_drain_nothing(nodes: Nodes) -> None:
    chatter = "head -c 5000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' x >&3; exit 4"
    nodes.checks(
        {"name": "broken", "command": "no-such-program"},
        {"name": "hanging", "command": "sleep 600", "timeout": 0.5},
        {"name": "chatter", "command": chatter},
        {"name": "counted", "command": LOOK},
    )
    nodes.await_end(nodes.submit("--nodelist=n1"))
    nodes.await_more_runs("n1")
    assert nodes.drain("n1")[0] == "idle"
    for name in ("broken", "hanging", "chatter"):
        assert f"{name}: error:" in nodes.log()
    nodes.bed.path(f"{JAIL}{PLACE}/checks.json").write_text("[{")
    nodes.await_end(nodes.submit("--nodelist=n1"))
    assert nodes.drain("n1")[0] == "idle"


@one_release
def test_the_shipped_checks_pass_on_a_good_node(nodes: Nodes) -> None:
    # The memory of this node is that of the machine, which other tests use, too.
    text = (SCRIPTS / "checks.json").read_text().replace("idle_memory.sh 50", "idle_memory.sh 98")
    shipped = json.loads(text)
    nodes.checks(*shipped, {"name": "counted", "command": LOOK})
    before = len(nodes.log().splitlines()) if nodes.bed.path(LOG).exists() else 0
    nodes.await_end(nodes.submit("--nodes=2"))
    for node in ("n1", "n2"):
        nodes.await_more_runs(node)
    assert [nodes.drain(it)[0] for it in ("n1", "n2")] == ["idle", "idle"]
    assert [it for it in nodes.log().splitlines()[before:] if ": failed:" in it] == []
    for name in (it["name"] for it in shipped if "GPU" not in it.get("platforms", ())):
        # An error may be a machine that is too busy for the time-out of a check.
        assert eventually(lambda: nodes.check(name), f"an answer of {name}", holds=lambda it: it[0] != 2)[0] == 0  # noqa: B023 - used at once


@one_release
def test_a_check_inside_the_shared_root_sees_what_jobs_see(nodes: Nodes) -> None:
    inside = "[ -e /.isthmus/ready ] && [ ! -e /outside ] && [ -d /proc/1 ] && [ -e checks.json ] || exit 2"
    nodes.checks({"name": "inside", "command": inside, "run_in_jail": True})
    assert nodes.check("inside") == (0, "inside: passed")


@one_release
def test_a_shared_root_that_is_not_filled_is_found(nodes: Nodes) -> None:
    nodes.checks({"name": "root", "command": "python3 -IS checks/shared_root.py 10"})
    ready = nodes.bed.path(f"{JAIL}/.isthmus/ready")
    ready.rename(ready.with_name("not-ready"))
    try:
        code, told = nodes.check("root")
    finally:
        ready.with_name("not-ready").rename(ready)
    assert (code, told) == (
        1,
        "root: failed: shared root /mnt/jail is not filled, or not mounted: it has no .isthmus/ready",
    )
    assert nodes.check("root")[0] == 0


@one_release
def test_a_process_that_is_stuck_in_the_kernel_is_found(nodes: Nodes) -> None:
    nodes.checks({"name": "stuck", "command": "python3 -IS checks/processes.py 0.2 500"})
    assert nodes.check("stuck")[0] == 0
    words = f"setsid python3 -c '{STUCK}' > /dev/null 2>&1 & echo $!"
    pid = nodes.bed.command("sh", "-c", words).strip()
    try:
        _, told = eventually(lambda: nodes.check("stuck"), "the process to be found", holds=lambda it: it[0] == 1)
        assert f"process {pid} (python3) is stuck in the kernel (state D)" in told
    finally:
        nodes.bed.command("sh", "-c", f"kill -9 -{pid}")
    eventually(lambda: nodes.check("stuck"), "it to be gone", holds=lambda it: it[0] == 0)


@one_release
def test_a_mount_that_hangs_or_is_stale_is_found(nodes: Nodes) -> None:
    nodes.checks({"name": "mounts", "command": "python3 -IS checks/mounts.py 1"})
    assert nodes.check("mounts")[0] == 0
    nodes.bed.path("/data").mkdir(exist_ok=True)
    nodes.bed.path("/fuse.py").write_text(FUSE)
    server = nodes.bed.command("sh", "-c", "setsid python3 /fuse.py /data > /fuse.out 2>&1 & echo $!").strip()
    try:
        eventually(nodes.bed.path("/fuse.out").read_text, "the mount", holds=lambda it: it == "mounted\n")
        assert nodes.check("mounts") == (1, "mounts: failed: /data (fuse) does not answer within 1 s")
        nodes.bed.command("kill", "-9", server)
        stale = "mounts: failed: /data (fuse) fails: Transport endpoint is not connected"
        eventually(lambda: nodes.check("mounts"), "it to be stale", holds=lambda it: it == (1, stale))
    finally:
        nodes.bed.command("umount", "--lazy", "/data")
    assert nodes.check("mounts")[0] == 0
