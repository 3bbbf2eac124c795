"""However many jobs start and end, no mount, namespace, process or file of theirs is left."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.bed.jail import JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import run, submit, wait_for

# The socket of the step that holds a job's place. Slurm 24.11 sometimes forgets it, with and without our plugin.
_FORGOTTEN = f"*.{0xFFFF_FFFC}"


class Remains(NamedTuple):
    """What could be left behind on the nodes of a bed."""

    processes: frozenset[str]
    namespaces: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]


NOTHING = Remains(frozenset(), frozenset(), frozenset(), frozenset())


def remains(bed: JailBed) -> Remains:
    spool = bed.path("/var/spool/slurmd")
    inside = processes(bed)
    return Remains(
        processes=frozenset(process.name for process in inside),
        namespaces=frozenset(namespace(process, "mnt") for process in inside),
        mounts=frozenset(
            f"{node} {line}"
            for node in bed.nodes
            for line in bed.on_node(node, "cat", "/proc/self/mountinfo").splitlines()
        ),
        files=frozenset(str(path.relative_to(spool)) for path in below(spool) if not path.match(_FORGOTTEN)),
    )


def below(top: Path) -> Iterator[Path]:
    """List files and directories, some of which are just being removed; `Path.rglob` would fail at these."""
    for here, directories, names in os.walk(top):
        yield from (Path(here, name) for name in (*directories, *names))


def processes(bed: JailBed) -> list[Path]:
    own = namespace(Path(f"/proc/{bed.pid}"), "pid")
    return [path for path in Path("/proc").iterdir() if path.name.isdigit() and namespace(path, "pid") == own]


def namespace(process: Path, kind: str) -> str:
    try:
        return str((process / "ns" / kind).readlink())
    except OSError:  # it has ended by now
        return ""


def quiet(bed: JailBed) -> Remains:
    """What there is when no step runs, and all that Slurm makes only once is made."""
    run(bed, "srun true", "--nodes=2")

    def none_runs() -> bool:
        # slurmd cleans up after the last step of a job, and then says that the job is over.
        over = not bed.command("squeue", "-h", "--states=running,completing", "-o%i").strip()
        return over and "slurmstepd" not in bed.command("ps", "-eo", "comm")

    wait_until(none_runs, what="no step runs", within=60)
    return remains(bed)


def assert_nothing_left(bed: JailBed, before: Remains) -> None:
    """Give Slurm some time to clean up, and say what it did not.

    What was there before may be gone: a process that was about to end, and a file that it had.
    """
    left = NOTHING

    def none_left() -> bool:
        nonlocal left
        left = Remains(*(now - then for now, then in zip(remains(bed), before, strict=True)))
        return left == NOTHING

    with suppress(TimeoutError):
        wait_until(none_left, what="nothing is left", within=60)
    assert left == NOTHING


def test_many_jobs_at_once_leave_nothing_behind(jail: JailBed) -> None:
    before = quiet(jail)
    jail.scontrol("update", "partitionname=main", "oversubscribe=force:30")
    try:
        job = submit(jail, "srun --mem=1 --overlap sleep 0.1", "--array=1-20", "--mem=1", "--output=/dev/null")
        wait_for(jail, job, "COMPLETED", within=240)
    finally:
        jail.scontrol("update", "partitionname=main", "oversubscribe=no")
    assert_nothing_left(jail, before)


def test_a_job_that_is_killed_leaves_nothing_behind(jail: JailBed) -> None:
    before = quiet(jail)
    # Without control groups Slurm finds processes by their parents, and loses the child of a shell that it kills
    # just as that forks. So no shell is left to fork when the jobs are killed.
    script = "srun --mem=1 sleep 1000 & exec sleep 2000"
    jobs = [submit(jail, script, "--mem=1") for _ in range(4)]

    def all_sleep() -> bool:
        return jail.command("ps", "-eo", "args").splitlines().count("sleep 2000") == len(jobs)

    wait_until(all_sleep, what="no script is a shell any more", within=60)
    jail.command("scancel", "--signal=KILL", "--full", *jobs)
    assert_nothing_left(jail, before)
