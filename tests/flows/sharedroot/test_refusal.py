"""A root that cannot be entered drains the node with the reason, and no job ever runs outside instead."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bed.jail import JAIL, OPTIONS, READY, JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import HOME, output, reason, srun, submit, wait_for, wait_for_second_try

JailFactory = Callable[..., JailBed]


def refused(bed: JailBed, node: str = "n1") -> str:
    """Run a step that must not run, and return why its node is drained now."""
    with pytest.raises(RuntimeError):
        bed.command("srun", f"--nodelist={node}", "touch", "/var/tmp/ran", user="alice")  # noqa: S108 - in the bed
    for place in ("", JAIL):
        assert not bed.path(f"{place}/var/tmp/ran").exists()  # noqa: S108
    return reason(bed, node)


@pytest.fixture
def bed(jail_bed: JailFactory, slurm_version: str) -> JailBed:
    return jail_bed(slurm_version)


def test_a_root_that_is_not_filled_drains_the_node(bed: JailBed) -> None:
    bed.path(READY).unlink()
    assert refused(bed) == f"shared root {JAIL} is not filled, or not mounted: it has no .isthmus/ready"
    assert reason(bed, "n2") == ""


def test_the_user_is_told_what_the_administrator_reads(bed: JailBed) -> None:
    """The message and the end of `srun` come on different ways: on a busy machine the end may come first."""
    bed.path(READY).unlink()

    def told() -> bool:
        if reason(bed, "n1"):
            bed.scontrol("update", "nodename=n1", "state=resume")
        with pytest.raises(RuntimeError) as failed:
            bed.command("srun", "--nodelist=n1", "true", user="alice")
        return f"srun: {reason(bed, 'n1')}\n" in str(failed.value)

    wait_until(told, what="the user is told", within=60)


def test_a_batch_job_goes_back_to_the_queue_and_runs_when_the_root_is_good_again(bed: JailBed) -> None:
    ready = bed.path(READY).rename(bed.path(f"{JAIL}/.isthmus/away"))
    job = submit(bed, "echo ran", "--nodelist=n1")
    wait_until(lambda: reason(bed, "n1"), what="the node is drained", within=60)
    wait_for(bed, job, "PENDING")
    assert "Restarts=1" in bed.scontrol("show", "job", job)
    ready.rename(bed.path(READY))
    bed.scontrol("update", "nodename=n1", "state=resume")
    wait_for_second_try(bed, job)
    assert output(bed, job) == "ran\n"


def test_jobs_do_not_fail_one_after_the_other(bed: JailBed) -> None:
    """Only n1 lost its root: whatever comes next runs on n2."""
    bed.on_node("n1", "mount", "-t", "tmpfs", "empty", JAIL)
    jobs = [submit(bed, "echo $SLURMD_NODENAME", "--mem=1") for _ in range(8)]
    wait_until(lambda: reason(bed, "n1"), what="the node is drained", within=60)
    for job in jobs:
        wait_for_second_try(bed, job)
        assert output(bed, job) == "n2\n"


def test_an_administrators_reason_is_kept(bed: JailBed) -> None:
    held = submit(bed, "touch started; until [ -e go ]; do sleep 0.05; done; srun true", "--nodelist=n1")
    wait_until(bed.path(f"{JAIL}{HOME}/started").exists, what="the job runs", within=60)
    bed.scontrol("update", "nodename=n1", "state=drain", "reason=new memory")
    bed.path(READY).unlink()
    bed.path(f"{JAIL}{HOME}/go").touch()
    wait_for(bed, held, "FAILED")
    assert reason(bed, "n1") == "new memory"


def spoiled(bed: JailBed, how: str) -> None:
    root, ready = bed.path(JAIL), bed.path(READY)
    match how:
        case "missing":
            bed.configure("root=/mnt/nothing", *OPTIONS[1:])
        case "a file":
            bed.configure("root=/outside", *OPTIONS[1:])
        case "open to all":
            root.chmod(0o777)
        case "a user's":
            bed.command("chown", "alice", JAIL)
        case "marked by a link":
            ready.unlink()
            ready.symlink_to("/etc/passwd")
        case "marked by a user":
            bed.command("chown", "alice", READY)
        case "without a marker's directory":
            ready.unlink()
            ready.parent.rmdir()
            ready.parent.touch()


@pytest.mark.parametrize("slurm_version", ["26.05"])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("missing", "shared root /mnt/nothing is missing on this node"),
        ("a file", "shared root /outside cannot be opened: Not a directory"),
        ("open to all", f"shared root {JAIL} is not root's alone: it needs owner root and mode 755"),
        ("a user's", f"shared root {JAIL} is not root's alone: it needs owner root and mode 755"),
        ("marked by a link", f"shared root {JAIL}: .isthmus/ready is not a file of root's alone"),
        ("marked by a user", f"shared root {JAIL}: .isthmus/ready is not a file of root's alone"),
        (
            "without a marker's directory",
            f"shared root {JAIL} is not filled, or not mounted: it has no .isthmus/ready",
        ),
    ],
)
def test_no_job_enters_a_root_that_is(bed: JailBed, how: str, why: str) -> None:
    spoiled(bed, how)
    assert refused(bed) == why


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "plugstack.conf: isthmus_jail.so needs root=, the directory of the shared root"),
        ((*OPTIONS, "tmp=yes"), "plugstack.conf: tmp=yes is no option of isthmus_jail.so, only root= and bind="),
        (("root=mnt/jail",), "plugstack.conf: root=mnt/jail is no absolute path without . and .."),
        (("root=/mnt/../etc",), "plugstack.conf: root=/mnt/../etc is no absolute path without . and .."),
        (("root=/",), "plugstack.conf: root=/ is no absolute path without . and .."),
        (
            (*OPTIONS, "bind=/only-on-others"),
            "/only-on-others, which jobs are to see, cannot be opened on this node: No such file or directory",
        ),
        (
            (*OPTIONS, "bind=/etc/passwd", "bind=/outside", "bind=/etc/hostname/x"),
            "/etc/hostname/x, which jobs are to see, cannot be opened on this node: Not a directory",
        ),
    ],
)
@pytest.mark.parametrize("slurm_version", ["24.11"])
def test_wrong_options_drain_the_node_and_run_nothing(bed: JailBed, options: tuple[str, ...], why: str) -> None:
    bed.configure(*options)
    assert refused(bed) == why


def test_a_script_that_would_not_be_found_tells_what_option_is_missing(bed: JailBed) -> None:
    bed.configure(f"root={JAIL}", "bind=/run/slurm")
    submit(bed, "true", "--nodelist=n1")
    wait_until(lambda: reason(bed, "n1"), what="the node is drained", within=60)
    assert reason(bed, "n1").startswith("plugstack.conf: isthmus_jail.so needs bind= for SlurmdSpoolDir, as ")


def test_places_for_mounts_are_made_where_they_are_missing(bed: JailBed) -> None:
    bed.path("/opt/node/deep").mkdir(parents=True)
    bed.path("/opt/node/deep/file").write_text("of the node\n")
    bed.path("/etc/node.conf").write_text("of the node\n")
    bed.configure(*OPTIONS, "bind=/opt/node/deep", "bind=/etc/node.conf")
    assert srun(bed, "cat /opt/node/deep/file /etc/node.conf", "--nodes=2") == "of the node\n" * 4
    made = bed.path(f"{JAIL}/opt/node/deep")
    assert list(made.iterdir()) == []
    assert made.stat().st_mode & 0o777 == 0o755
    assert bed.path(f"{JAIL}/etc/node.conf").read_text() == ""


def test_a_link_in_the_shared_root_cannot_draw_a_mount_out_of_it(bed: JailBed) -> None:
    """`/data` inside is a link to /var/lib: what is bound there lands in the /var/lib of the shared root."""
    bed.path("/data").mkdir()
    bed.path("/data/of-node").touch()
    bed.path(f"{JAIL}/data").symlink_to("/var/lib")
    bed.configure(*OPTIONS, "bind=/data")
    before = bed.on_node("n1", "cat", "/proc/self/mounts")
    assert srun(bed, "ls /var/lib", "--nodelist=n1") == "of-node\n"
    assert bed.on_node("n1", "cat", "/proc/self/mounts") == before
    assert Path(bed.path("/var/lib/dpkg")).exists()


def test_a_root_that_cannot_be_written_is_entered_if_nothing_has_to_be_made(bed: JailBed) -> None:
    srun(bed, "true", "--nodes=2")
    bed.on_node("n1", "mount", "-o", "remount,bind,ro", JAIL)
    assert bed.command("srun", "--nodelist=n1", "ls", "/.isthmus", user="alice") == "ready\n"
    bed.configure(*OPTIONS, "bind=/outside")
    assert refused(bed) == "shared root: file /outside is missing and cannot be made: Read-only file system"
