"""Runs jobs on a bed with a shared root and says what came of them."""

from tests.bed.jail import JAIL, JailBed
from tests.bed.slurm_box import wait_until

HOME = "/home/alice"


def submit(bed: JailBed, script: str, *options: str, user: str = "alice") -> str:
    """Submit a script, whose output goes to job_ID.out in alice's home."""
    text = f"#!/bin/bash\n{script}\n"
    words = ("--parsable", f"--chdir={HOME}", "--output=job_%j.out", *options)
    return bed.command("sbatch", *words, user=user, stdin=text).strip()


def state(bed: JailBed, job: str) -> str:
    return " ".join(sorted(set(bed.command("squeue", "-h", "-tall", "-j", job, "-o%T").split())))


def wait_for(bed: JailBed, job: str, wanted: str, *, within: float = 60) -> None:
    """Wait until a job, and each task of an array, is in this state; notice when it ended in another."""

    def there_or_ended() -> bool:
        now = state(bed, job)
        return now == wanted or bool({"FAILED", "CANCELLED", "TIMEOUT"}.intersection(now.split()))

    wait_until(there_or_ended, what=f"job {job} is {wanted}", within=within)
    if state(bed, job) != wanted:
        raise AssertionError(f"job {job} is {state(bed, job)}, not {wanted}; it printed:\n{output(bed, job)}")


def output(bed: JailBed, job: str) -> str:
    file = bed.path(f"{JAIL}{HOME}/job_{job}.out")
    return file.read_text() if file.exists() else ""


def run(bed: JailBed, script: str, *options: str, user: str = "alice") -> str:
    """Run a script as a batch job to its good end, and return what it printed."""
    job = submit(bed, script, *options, user=user)
    wait_for(bed, job, "COMPLETED")
    return output(bed, job)


def run_alone(bed: JailBed, script: str) -> str:
    """Do the same, but begin only when `sbatch` has ended, which is a process of the user's outside."""
    job = submit(bed, script, "--hold")
    bed.scontrol("release", job)
    wait_for(bed, job, "COMPLETED")
    return output(bed, job)


def wait_for_second_try(bed: JailBed, job: str) -> None:
    """Wait for the good end of a job that Slurm may have put back, without the minutes for which it would wait."""

    def hurried() -> bool:
        if bed.command("squeue", "-h", "-j", job, "-tPENDING", "-o%r").strip() == "BeginTime":
            bed.scontrol("update", f"jobid={job}", "starttime=now")
        return state(bed, job) == "COMPLETED"

    wait_until(hurried, what=f"job {job} is COMPLETED", within=60)


def srun(bed: JailBed, script: str, *options: str, user: str = "alice") -> str:
    """Run a script as a step of its own, and return what it printed."""
    return bed.command("srun", f"--chdir={HOME}", *options, "bash", "-c", script, user=user)


def reason(bed: JailBed, node: str) -> str:
    """Say why a node is drained; empty if it is not."""
    drained = "DRAIN" in bed.command("sinfo", "-hN", "-n", node, "-o%T").upper()
    return bed.command("sinfo", "-hN", "-n", node, "-o%E").strip() if drained else ""
