"""What Slurm does while slurmdbd or its database is away: the operator counts on it when it starts them anew."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from isthmus.errors import Terminal
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def bed(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    return slurm_bed(slurm_version, nodes=1)


def run_job(bed: SlurmBed) -> str:
    """Run a job to its end, as far as slurmctld knows."""
    job = bed.command("sbatch", "--parsable", "--wrap=true", "--output=/dev/null").strip()

    def over() -> bool:
        return "JobState=COMPLETED" in bed.scontrol("show", "job", job)

    wait_until(over, what=f"job {job} is over", within=90)
    return job


def accounted(bed: SlurmBed) -> dict[str, str]:
    printed = bed.command(
        "sacct", "--starttime=now-1hours", "--allocations", "--noheader", "--parsable2", "--format=jobid,state"
    )
    return dict(line.split("|") for line in printed.split())


def test_no_record_is_lost_while_slurmdbd_is_away_and_slurmctld_dies(bed: SlurmBed) -> None:
    before = run_job(bed)
    bed.stop("slurmdbd")
    meanwhile = run_job(bed)
    # What it could not tell is kept with its state.
    bed.restart("slurmctld")
    later = run_job(bed)
    bed.start("slurmdbd")
    wait_until(
        lambda: accounted(bed) == dict.fromkeys((before, meanwhile, later), "COMPLETED"),
        what="every job is in the accounts",
        within=90,
    )


def test_no_record_is_lost_while_the_database_is_away(bed: SlurmBed) -> None:
    bed.kill("mariadbd")
    job = run_job(bed)
    bed.start("mariadbd")

    def is_accounted_for() -> bool:
        # It may end when it finds its database gone or another, also while sacct asks it.
        with suppress(RuntimeError, Terminal):
            if not bed.is_healthy():
                bed.start("slurmdbd")  # as Kubernetes would, whenever it ends
            return accounted(bed).get(job) == "COMPLETED"
        return False

    wait_until(is_accounted_for, what="the job is in the accounts", within=90)
