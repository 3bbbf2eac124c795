"""A worker's devices on a real Slurm of each release: slurmd finds them, and jobs get those that they asked for.

Device files stand in for GPUs: nodes of /dev/null and its like, which any program can open.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.slurm_box import _claim, wait_until
from tests.flows.operator.worker_pod import NODE, SETTINGS, Pod, starting

DEVICES = "/srv/devices"
GPUS = {"resource": "example.org/gpu", "gres": "gpu", "files": [f"{DEVICES}/gpu[0-9]*"], "flags": "nvidia_gpu_env"}
GROUPS = Path("/sys/fs/cgroup")
OPENED = (7, 8, 11)
"""Files of the kernel that can be read, and that a job can do without: full, random, kmsg."""
ENVIRONMENT = "env | grep -E '^(CUDA|SLURM_(JOB|STEP|SHARD)|ROCR)' | sort"


@pytest.fixture
def kinds() -> str:
    """The GRES of the cluster. With both kinds of parts of GPUs, Slurm forgets CUDA_VISIBLE_DEVICES."""
    return "gpu,shard"


@pytest.fixture
def confined() -> bool:
    """Whether control groups keep jobs from devices that are not theirs."""
    return False


@pytest.fixture(params=VERSIONS)
def bed(
    request: pytest.FixtureRequest,
    kinds: str,
    confined: bool,  # noqa: FBT001 - a fixture
    slurm_bed: Callable[..., SlurmBed],
) -> Iterator[SlurmBed]:
    number, claim = _claim()
    settings = {**SETTINGS, "SlurmdPort": str(number), "GresTypes": kinds}
    if confined:
        settings |= {"TaskPlugin": "task/cgroup"}
    with claim:
        bed = slurm_bed(request.param, nodes=0, accounting=False, settings=settings)
        with bed.path("/etc/hosts").open("a") as hosts:
            hosts.write(f"127.0.0.1 {NODE}\n")
        bed.path("/etc/slurm/gres.conf").write_text("Include /etc/slurm/node-gres.conf\n")
        if confined:
            bed.path("/etc/slurm/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n")
        bed.scontrol("reconfigure")
        bed.command("mkdir", DEVICES)
        yield bed


@pytest.fixture
def started(bed: SlurmBed) -> Iterator[Callable[..., Pod]]:
    with starting(bed, 6818) as start:

        def with_gpus(count: int, **spec: Any) -> Pod:
            limits = {"cpu": "2", "memory": "512Mi", "example.org/gpu": str(count)}
            return start(**{"slurmd": {"resources": {"limits": limits}}, "devices": [GPUS], **spec})

        yield with_gpus


def plug_in(bed: SlurmBed, *names: str) -> None:
    for minor, name in enumerate(names, 3):
        bed.command("mknod", f"{DEVICES}/{name}", "c", "1", str(minor))


def shown(bed: SlurmBed) -> str:
    return bed.scontrol("--oneliner", "show", "node", NODE)


def given(bed: SlurmBed, *options: str, environment: str = ENVIRONMENT) -> list[dict[str, str]]:
    """Run a step, and return what each of its tasks has in its environment."""
    said = bed.command("srun", "--immediate=60", "--label", *options, "sh", "-c", environment)
    tasks: dict[str, dict[str, str]] = {}
    for line in said.splitlines():
        task, _, setting = line.partition(": ")
        name, _, value = setting.partition("=")
        tasks.setdefault(task, {})[name] = value
    return [tasks[it] for it in sorted(tasks)]


def test_jobs_get_the_devices_that_they_asked_for(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu1", "gpu4", "gpu10", "other")
    started(3, extraConf="Gres=gpu:fast:3,shard:6").await_start()
    # Shards take the type of their GPUs.
    assert " Gres=gpu:fast:3,shard:fast:6 " in shown(bed)
    assert [line.split("File=")[1] for line in written(bed) if "File=" in line] == [
        f"{DEVICES}/gpu{it}" for it in (1, 4, 10)
    ]
    (one,) = given(bed, "--gres=gpu:fast:1")
    assert (one["CUDA_VISIBLE_DEVICES"], one["SLURM_STEP_GPUS"]) == ("0", "0")
    assert "ROCR_VISIBLE_DEVICES" not in one
    (all_of_them,) = given(bed, "--gpus=3")
    assert all_of_them["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    tasks = given(bed, "-n2", "--gpus-per-task=1")
    assert sorted(it["CUDA_VISIBLE_DEVICES"] for it in tasks) == ["0", "1"]
    (share,) = given(bed, "--gres=shard:1", environment="env")
    assert share["CUDA_VISIBLE_DEVICES"] == "0"
    assert share["SLURM_SHARDS_ON_NODE"] == "1"


@pytest.mark.parametrize("kinds", ["gpu,mps"])
def test_processes_share_a_gpu_by_mps(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu0", "gpu1")
    started(2, extraConf="Gres=gpu:2,mps:200").await_start()
    (half,) = given(bed, "--gres=mps:50", environment="env")
    assert half["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert half["CUDA_VISIBLE_DEVICES"] == "0"


def test_two_jobs_never_have_the_same_device(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu0", "gpu1")
    started(2).await_start()
    script = "env > /tmp/$SLURM_JOB_ID; sleep 600"
    jobs = [
        bed.command("sbatch", "--parsable", "--gres=gpu:1", "--mem=10", f"--wrap={script}").strip()
        for _ in range(3)
    ]
    files = [bed.path(f"/tmp/{job}") for job in jobs[:2]]  # noqa: S108 - in the bed
    wait_until(lambda: all("SLURM_JOB_GPUS=" in text(it) for it in files), what="two run", within=60)
    found = {line for it in files for line in text(it).splitlines() if line.startswith("SLURM_JOB_GPUS=")}
    assert found == {"SLURM_JOB_GPUS=0", "SLURM_JOB_GPUS=1"}
    assert "JobState=PENDING" in bed.scontrol("show", "job", jobs[2])


class TestConfined:
    """With control groups, of the version that can be mounted beside others."""

    @pytest.fixture
    def confined(self) -> Iterator[bool]:
        if not (GROUPS / "devices/tasks").exists():
            pytest.skip("needs control groups of version 1 for devices")
        # They are the machine's, and in all beds they would have the same names.
        # Slurm itself locks the directory.
        one_at_a_time = os.open(GROUPS / "devices/tasks", os.O_RDONLY)
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        yield True
        # All processes of the bed are gone by now, and their groups are empty.
        for made in GROUPS.glob(f"*/slurm_{NODE}"):
            for directory, _, _ in os.walk(made, topdown=False):
                Path(directory).rmdir()
        os.close(one_at_a_time)

    def test_a_job_opens_the_devices_that_it_was_given_and_no_others(
        self, bed: SlurmBed, started: Callable[..., Pod]
    ) -> None:
        for number, minor in enumerate(OPENED):
            bed.command("mknod", f"{DEVICES}/gpu{number}", "c", "1", str(minor))
        started(len(OPENED)).await_start()
        script = (
            f"for it in {DEVICES}/gpu*; do (: < $it) 2> /dev/null && echo $it; done; echo gpus=$SLURM_STEP_GPUS"
        )
        for options in (["--gres=gpu:1"], ["--gres=gpu:2"], ["--gpus=3"], []):
            *opened, told = bed.command("srun", "--immediate=60", *options, "sh", "-c", script).split()
            given = told.removeprefix("gpus=")
            assert opened == [f"{DEVICES}/gpu{it}" for it in given.split(",") if it], options
            assert len(opened) == int(options[0][-1] if options else 0)


def test_a_node_that_lacks_a_device_gets_no_job(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu0")
    started(2)
    wait_until(lambda: "gres/gpu count reported lower than configured (1 < 2)" in nodes(bed), what="why", within=60)
    assert "DRAIN" in shown(bed)
    assert "gpu: 1 are there and 2 asked for" in bed.logs(NODE)


def test_devices_that_may_be_those_of_others_are_only_counted(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu0", "gpu1", "gpu2")
    started(2).await_start()
    (one,) = given(bed, "--gres=gpu:1", environment="env")
    assert "CUDA_VISIBLE_DEVICES" not in one
    assert one["SLURM_GPUS_ON_NODE"] == "1"
    why = "gpu: 3 are seen and 2 asked for, so they are only counted"
    assert why in bed.logs(NODE)
    assert f"Comment=isthmus devices: {why}" in shown(bed)


def test_what_was_wrong_with_devices_is_taken_back(bed: SlurmBed, started: Callable[..., Pod]) -> None:
    plug_in(bed, "gpu0", "gpu1")
    first = started(1)
    first.await_start()
    assert "Comment=isthmus devices: " in shown(bed)
    first.end()
    bed.command("rm", f"{DEVICES}/gpu1")
    second = started(1)
    wait_until(lambda: second.started and "Comment=" not in shown(bed), what="nothing is wrong", within=60)
    bed.scontrol("update", f"NodeName={NODE}", "Comment=mine")
    assert second.started
    assert "Comment=mine" in shown(bed)


def text(path: Any) -> str:
    return path.read_text() if path.exists() else ""


def nodes(bed: SlurmBed) -> str:
    return bed.scontrol("--oneliner", "show", "nodes")


def written(bed: SlurmBed) -> list[str]:
    return bed.path("/etc/slurm/node-gres.conf").read_text().splitlines()
