"""What users of a login node do: no Kubernetes, no token, only Slurm's own commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.slurm import SlurmBed
from tests.bed.waiting import eventually
from tests.flows.slurm.login import LoginNode


@pytest.fixture
def login(slurm: SlurmBed, tmp_path: Path) -> Iterator[LoginNode]:
    yield LoginNode(slurm, tmp_path)
    slurm.command("scancel", "--user=alice")


def submit(bed: SlurmBed, *options: str) -> str:
    """Submit a job of alice, which waits because it is held."""
    words = ("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--wrap=true", *options)
    return bed.command(*words, user="alice").strip()


def without_slurmctld(bed: SlurmBed) -> dict[str, str]:
    """A configuration that names a port where nobody listens."""
    conf = bed.path("/etc/slurm/slurm.conf").read_text()
    bed.path("/etc/slurm/silent.conf").write_text(conf.replace(str(bed.controller_port), "1"))
    return {"SLURM_CONF": "/etc/slurm/silent.conf"}


def test_jobs_and_nodes_are_listed_without_kubernetes(login: LoginNode) -> None:
    job_id = submit(login.bed, "--job-name=mine")
    done = login.isthmus("jobs", "--user=alice")
    assert done.returncode == 0, done.stderr
    (line,) = (it for it in done.stdout.splitlines() if f" {job_id} " in it)
    assert line.split()[:6] == ["slurm", job_id, "mine", "alice", "main", "PENDING"]
    assert line.endswith("(JobHeldUser)")
    assert not login.isthmus("jobs", "--user=bob", "-o", "name").stdout
    named = login.isthmus("jobs", "-o", "name")
    assert f"job/{job_id}" in named.stdout.splitlines()

    found = json.loads(login.isthmus("nodes", "-o", "json").stdout)
    assert [it["id"] for it in found["items"]] == ["n1", "n2"]
    assert found["absent"].keys() == {"kubernetes"}


def test_a_silent_slurmctld_is_no_empty_table(login: LoginNode) -> None:
    silent = without_slurmctld(login.bed)
    for command in ("jobs", "nodes", "why 1"):
        done = login.isthmus(*command.split(), env=silent)
        assert done.returncode == 4
        assert not done.stdout
        assert "Unable to contact slurm controller" in done.stderr


def test_why_needs_nothing_but_slurm(login: LoginNode) -> None:
    job_id = submit(login.bed)
    done = login.isthmus("why", job_id)
    assert done.returncode == 0, done.stderr
    assert "✗ eligible    its owner holds it (JobHeldUser)" in done.stdout
    assert f"scontrol release {job_id}" in done.stdout
    found = json.loads(login.isthmus("why", f"job/{job_id}", "-o", "json").stdout)
    assert [it["mark"] for it in found["gates"]][:2] == ["passed", "refused"]
    unknown = login.isthmus("why", "999999")
    assert unknown.returncode == 1
    assert "Slurm does not know job 999999 (any more)" in unknown.stderr


def test_a_script_is_submitted_and_followed_to_its_end(login: LoginNode) -> None:
    script = "#!/bin/sh\n#SBATCH --mem=16 --output=/tmp/people-%j.out --chdir=/tmp\necho begun\nexit 3\n"
    done = login.isthmus("submit", "-", "--follow", stdin=script)
    assert (done.returncode, done.stdout) == (3, "begun\n"), done.stderr
    ref = done.stderr.splitlines()[0]
    again = login.isthmus("logs", ref, "--tail=1")
    assert (again.returncode, again.stdout) == (0, "begun\n"), again.stderr

    refused = login.isthmus("submit", "-", stdin="#!/bin/sh\n#SBATCH --partition=nowhere\n")
    assert refused.returncode == 1
    assert "sbatch refused it" in refused.stderr
    held = submit(login.bed)
    early = login.isthmus("logs", held)
    assert early.returncode == 1
    assert f"job {held} has no log: it has not started" in early.stderr


def test_nodes_are_drained_by_those_who_may_and_used_again(slurm: SlurmBed, tmp_path: Path) -> None:
    def state() -> str:
        return slurm.command("sinfo", "-hN", "-n", "n2", "-o%T %E").strip()

    (tmp_path / "alice").mkdir()
    refused = LoginNode(slurm, tmp_path / "alice").isthmus("drain", "n2", "--reason=mine")
    assert refused.returncode == 1
    assert "only Slurm's operators and administrators may change nodes" in refused.stderr
    (tmp_path / "root").mkdir()
    root = LoginNode(slurm, tmp_path / "root", user="root")
    job = submit_running(slurm)
    assert root.isthmus("drain", "n2", "n9", "--reason=disk").stderr.startswith("isthmus: Slurm has no node n9")
    assert root.isthmus("drain", "n2", "--reason=swap the disk").stdout == "node/n2 drains\n"
    assert state() == "draining swap the disk"
    with root.terminal("drain", "n2", "--reason=swap the disk", "--wait") as terminal:
        terminal.until("jobs are still on n2")
        slurm.command("scancel", job)
        terminal.until("node/n2 drained")
        assert terminal.end() == 0
    assert root.isthmus("resume", "n2").stdout == "node/n2 resumed\n"
    assert "drain" not in state()


def submit_running(bed: SlurmBed) -> str:
    job = bed.submit("--nodelist=n2", user="alice")
    eventually(lambda: bed.command("squeue", "-ho%T", "-j", job).strip(), "a job", holds=lambda it: it == "RUNNING")
    return job


def test_top_is_live_in_a_real_terminal(login: LoginNode) -> None:
    job_id = submit(login.bed, "--job-name=top-first")
    with login.terminal("top", "--interval=1", "--no-color") as terminal:
        terminal.type("/top-\r")  # others left more jobs than a screen shows
        terminal.until("top-first")
        submit(login.bed, "--job-name=top-second")
        terminal.until("top-second")
        terminal.type("/first\r\r")
        terminal.until(f"scontrol release {job_id}")
        terminal.type("\x1b")
        terminal.until("first")
        terminal.type("l")
        terminal.until(f"job {job_id} has no log: it has not started")
        terminal.type("\x1b:people\r")
        terminal.until("LONGEST WAIT")
        terminal.type(":q\r")
        assert terminal.end() == 0
    assert b"\x1b[32m" not in terminal.seen


def test_top_says_that_slurm_is_silent(login: LoginNode) -> None:
    with login.terminal("top", "--interval=1", env=without_slurmctld(login.bed)) as terminal:
        terminal.until("cannot be read")
        terminal.type("q")
        assert terminal.end() == 0
