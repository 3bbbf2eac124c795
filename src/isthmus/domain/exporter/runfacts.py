"""What the record of a job says about its latest run: whose it is, when it was submitted, how long it ran."""

from isthmus.model.slurm import Job

Whose = tuple[str, str, str]
"""Partition, account and QOS."""


def whose(job: Job) -> Whose:
    # A job may wait for several partitions; it is counted in the one that it names first.
    return (job.partition or "").partition(",")[0], job.account or "", job.qos or ""


def submitted_at(job: Job) -> int:
    return int(job.submit_time.value or 0)


def has_started(job: Job) -> bool:
    """Whether a run has begun. Slurm sets a start also for a job that is cancelled while it waits.

    A job whose nodes are still being powered on has not: it starts anew when they are there.
    """
    if not job.nodes or not job.start_time.value:
        return False
    return job.has_ended or (job.job_state[:1] not in {(), ("PENDING",)} and "CONFIGURING" not in job.job_state)


def ran(job: Job) -> int:
    """How long a run that is over took, in seconds, without the time that it was suspended, as sacct does."""
    end, suspended = int(job.end_time.value or 0), int(job.suspend_time.value or 0)
    if suspended:
        return max(0, end - suspended) + int(job.ran_before_suspension.value or 0)
    return max(0, end - int(job.start_time.value or end))
