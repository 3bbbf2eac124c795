"""The Slurm test bed keeps its promises: real jobs, real accounting, side by side, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from isthmus.errors import Terminal
from isthmus.local.progress import PlainProgress
from tests.bed import rootfs
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import wait_until

SlurmFactory = Callable[..., SlurmBed]


def job_state(bed: SlurmBed, job: str) -> str:
    return bed.command("squeue", "-h", "-tall", "-j", job, "-o%T").strip()


def wait_for_state(bed: SlurmBed, job: str, state: str) -> None:
    wait_until(lambda: job_state(bed, job) == state, what=f"job {job} is {state}", within=60)


def submit(bed: SlurmBed, *options: str, user: str = "root") -> str:
    return bed.command("sbatch", "--parsable", *options, user=user).strip()


def wait_until_saved(bed: SlurmBed, name: str) -> None:
    """Wait for slurmctld to write down a job, which it does within seconds; a crash before loses the newest."""
    job_state = bed.state_directory / "job_state"

    def has_it() -> bool:
        with suppress(FileNotFoundError):  # for a moment, while it is replaced
            return name.encode() in job_state.read_bytes()
        return False

    wait_until(has_it, what="jobs are saved", within=60)


# --- it is a real Slurm ------------------------------------------------------------------------------------------


def test_all_nodes_are_idle_when_it_has_started(slurm_bed: SlurmFactory, slurm_version: str) -> None:
    bed = slurm_bed(slurm_version)
    assert bed.command("sinfo", "-hN", "-o%N %T").split("\n")[:-1] == ["n1 idle", "n2 idle"]
    assert bed.command("sinfo", "--version").startswith(f"slurm-wlm {slurm_version}.")


def test_a_step_runs_on_both_nodes(slurm: SlurmBed) -> None:
    assert sorted(slurm.command("srun", "-N2", "hostname").split()) == ["n1", "n2"]


def test_a_batch_job_of_an_ordinary_user_runs_a_step_and_writes_its_file(slurm: SlurmBed) -> None:
    job = submit(slurm, "-N2", "-D/tmp", "-ojob_%j.out", "--wrap=id -un; srun hostname", user="alice")
    wait_for_state(slurm, job, "COMPLETED")
    output = slurm.path(f"/tmp/job_{job}.out")  # noqa: S108 - in the bed
    assert sorted(output.read_text().split()) == ["alice", "n1", "n2"]


def test_accounting_shows_finished_jobs(slurm: SlurmBed) -> None:
    job = submit(slurm, "-o/dev/null", "--wrap=exit 3")
    wait_until(
        lambda: slurm.command("sacct", "-nXP", "-j", job, "-oState,ExitCode").strip() == "FAILED|3:0",
        what="sacct shows the job's end",
        within=60,
    )


def test_slurmctld_hears_from_slurmdbd_what_an_administrator_changes(slurm: SlurmBed) -> None:
    slurm.command("sacctmgr", "-i", "add", "account", "physics")
    slurm.command("sacctmgr", "-i", "add", "user", "bob", "account=physics")
    try:
        wait_until(
            lambda: "Account=physics UserName=bob" in slurm.scontrol("show", "assoc_mgr", "flags=assoc"),
            what="slurmctld knows the new user",
            within=60,
        )
    finally:
        slurm.command("sacctmgr", "-i", "delete", "account", "physics")


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_slurmrestd_answers_who_has_a_token(slurm: SlurmBed, over: str) -> None:
    connector = aiohttp.UnixConnector(str(slurm.rest_socket)) if over == "unix" else None
    headers = {"X-SLURM-USER-TOKEN": slurm.token("alice")}
    async with (
        aiohttp.ClientSession(slurm.rest_url, connector=connector, headers=headers) as session,
        session.get("/slurm/v0.0.42/nodes/") as answer,
    ):
        assert answer.status == 200
        assert [node["name"] for node in (await answer.json())["nodes"]] == slurm.nodes


def test_slurmrestd_refuses_who_has_no_good_token(slurm: SlurmBed) -> None:
    assert slurm.get("/slurm/v0.0.42/nodes/")
    slurm_key = slurm.jwt_key.read_bytes()
    slurm.jwt_key.write_bytes(b"another key than the one that slurmctld has read")
    try:
        with pytest.raises(RuntimeError, match=r"was answered with [45]"):
            slurm.get("/slurm/v0.0.42/nodes/")
    finally:
        slurm.jwt_key.write_bytes(slurm_key)


async def test_external_nodes_take_external_jobs_that_nothing_runs(slurm_bed: SlurmFactory) -> None:
    bed = slurm_bed("26.05", nodes=0, external_nodes=3, accounting=False)
    job = {
        "name": "external",
        "flags": ["EXTERNAL_JOB"],
        "current_working_directory": "/",
        "environment": ["A=B"],
        "minimum_nodes": 2,
        "tasks": 2,
    }
    headers = {"X-SLURM-USER-TOKEN": bed.token()}
    async with (
        aiohttp.ClientSession(bed.rest_url, headers=headers) as session,
        session.post("/slurm/v0.0.45/job/submit", json={"job": job}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        job_id = str((await answer.json())["job_id"])
    wait_for_state(bed, job_id, "RUNNING")
    assert bed.command("squeue", "-h", "-j", job_id, "-o%D %N").strip() == "2 e[1-2]"


def test_external_nodes_are_refused_where_slurm_has_none() -> None:
    with pytest.raises(ValueError, match=r"24\.11 has no external nodes"):
        SlurmBed("24.11", external_nodes=1)


# --- daemons die and come back -----------------------------------------------------------------------------------


def test_jobs_survive_the_death_of_any_daemon(slurm_bed: SlurmFactory, slurm_version: str) -> None:
    bed = slurm_bed(slurm_version, nodes=1)
    running = submit(bed, "-o/dev/null", "--mem=10", "--wrap=sleep 300")
    wait_for_state(bed, running, "RUNNING")
    # What is saved with this one in it was written down after the other had begun.
    waiting = submit(bed, "-o/dev/null", "--mem=10", "--hold", "--job-name=the-one-that-waits", "--wrap=true")
    wait_until_saved(bed, "the-one-that-waits")
    for daemon in bed.daemons:
        bed.kill(daemon)
        assert not bed.is_healthy()
        bed.start(daemon)
        assert bed.is_healthy()
        assert job_state(bed, running) == "RUNNING"
    assert bed.get("/slurm/v0.0.42/jobs/state/")["jobs"]
    bed.scontrol("release", waiting)
    wait_for_state(bed, waiting, "COMPLETED")
    bed.command("scancel", running)
    wait_for_state(bed, running, "CANCELLED")


def test_settings_reach_slurm_conf(slurm_bed: SlurmFactory) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings={"MaxArraySize": "17"})
    assert "MaxArraySize            = 17\n" in bed.scontrol("show", "config")


def test_a_setting_cannot_be_more_than_a_line(slurm_bed: SlurmFactory) -> None:
    with pytest.raises(ValueError, match="would not be one line"):
        slurm_bed("26.05", accounting=False, settings={"MaxArraySize": "17\nSlurmUser=root"})


def test_a_daemon_that_does_not_start_says_why(slurm_bed: SlurmFactory) -> None:
    # Now and then slurmctld crashes (signal 11) on its way out, when its threads are still starting.
    with pytest.raises(Terminal, match=r"(?s)slurmctld ended with (1|-11);.*mcs/nonsense"):
        slurm_bed("26.05", accounting=False, settings={"MCSPlugin": "mcs/nonsense"})


# --- side by side, and nothing left ------------------------------------------------------------------------------


def test_two_beds_do_not_meet(slurm_bed: SlurmFactory) -> None:
    beds = [slurm_bed(version, nodes=1) for version in VERSIONS]
    jobs = [submit(bed, "-o/dev/null", f"--job-name=only-{bed.version}", "--wrap=sleep 300") for bed in beds]
    for bed, job in zip(beds, jobs, strict=True):
        wait_for_state(bed, job, "RUNNING")
        assert bed.command("squeue", "-h", "-o%j").split() == [f"only-{bed.version}"]
        assert len(bed.get("/slurm/v0.0.42/jobs/state/")["jobs"]) == 1


class Traces:
    """What a bed is made of, as the machine sees it; to be looked for as long as the `with` block lasts."""

    def __init__(self, pid: int, port: int) -> None:
        self.port = port
        self.namespaces = {kind: Path(f"/proc/{pid}/ns/{kind}").readlink() for kind in ("pid", "mnt", "uts", "ipc")}
        # Held open, since the kernel soon gives the number of a namespace that is gone to somebody else's.
        self._held = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in self.namespaces]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._held:
            os.close(held)

    @staticmethod
    def mounts(pid: int | str = "self") -> list[str]:
        """Find what a bed has mounted where that process sees it; others may mount and unmount meanwhile."""
        mounted = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        return [line for line in mounted if line.partition(" - ")[2].split()[1] in {"box", "host"}]

    def processes(self) -> Iterator[str]:
        """Find whoever is in a namespace of the bed; one that nobody is in goes with us, and its mounts with it."""
        for directory in Path("/proc").glob("[0-9]*"):
            for kind, identity in self.namespaces.items():
                with suppress(OSError):
                    if (directory / "ns" / kind).readlink() == identity:
                        yield directory.name

    def are_gone(self) -> bool:
        return not any(self.processes()) and self.claim_is_free()

    def claim_is_free(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(("127.0.0.1", self.port))
            except OSError:
                return False
            return True


def listing(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def test_nothing_is_left_when_a_bed_is_closed() -> None:
    shared_root = rootfs.ensure("slurm-26.05", PlainProgress())
    before = (
        listing(shared_root / "etc/slurm"),
        listing(shared_root / "var/lib/slurm"),
        listing(shared_root / "run"),
    )
    with ExitStack() as stack:
        with SlurmBed("26.05") as bed:
            submit(bed, "-o/dev/null", "--wrap=sleep 300")
            traces = stack.enter_context(Traces(bed.pid, bed.controller_port))
            assert len(set(traces.processes())) > 5
            assert traces.mounts(bed.pid)
            assert not traces.claim_is_free()
        assert traces.are_gone()
    assert not Traces.mounts()
    after = listing(shared_root / "etc/slurm"), listing(shared_root / "var/lib/slurm"), listing(shared_root / "run")
    assert after == before


def owner(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a process that owns a bed with a running job and waits."""
    program = tmp_path / "owner.py"
    program.write_text(
        textwrap.dedent("""
            import sys
            from tests.bed.slurm import SlurmBed
            with SlurmBed("26.05") as bed:
                bed.command("sbatch", "-o/dev/null", "--wrap=sleep 300")
                print(bed.pid, bed.controller_port, flush=True)
                sys.stdin.read()
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with owner(tmp_path) as process:
            assert process.stdout
            traces = stack.enter_context(Traces(*map(int, process.stdout.readline().split())))
            assert any(traces.processes())
            process.send_signal(signal.SIGKILL)
        wait_until(traces.are_gone, what="the bed is gone with its owner", within=60)
    assert not Traces.mounts()


def test_nothing_is_left_when_the_bed_itself_is_killed() -> None:
    with ExitStack() as stack:
        with SlurmBed("26.05", accounting=False) as bed:
            traces = stack.enter_context(Traces(bed.pid, bed.controller_port))
            os.kill(bed.pid, signal.SIGKILL)
            wait_until(lambda: not any(traces.processes()), what="the bed's processes are gone", within=60)
        assert traces.are_gone()
    assert not Traces.mounts()


def test_tests_share_a_bed_until_one_of_them_breaks_it(shared_slurm: Callable[..., Any]) -> None:
    options = {"nodes": 1, "accounting": False}
    bed = shared_slurm("26.05", **options)
    assert shared_slurm("26.05", **options) is bed
    bed.kill("slurmctld")
    healthy = shared_slurm("26.05", **options)
    assert healthy is not bed
    assert healthy.is_healthy()
