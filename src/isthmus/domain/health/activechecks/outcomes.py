"""What the end of a Slurm job says about the node that it ran on.

COMPLETED                                     passed
FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL …   failed
CANCELLED, PREEMPTED, DEADLINE                cancelled: it says nothing
anything else, no record, exit code 75        error: it is not known, which is not a pass

A script that could not check, as its tools are missing, exits with 75.
"""

from typing import Final, Literal

from isthmus.model.slurm import ENDED, Job, States
from isthmus.model.slurmdb import PastJob

Outcome = Literal["passed", "failed", "error", "cancelled"]

_FAILED: Final = frozenset({"FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"})
_CANCELLED: Final = frozenset({"CANCELLED", "PREEMPTED", "DEADLINE"})
_NO_VERDICT: Final = 75
"""EX_TEMPFAIL of sysexits.h: how a script says that it could not check."""

GONE: Final = "Slurm has no record of the job"


def of_states(states: States) -> Outcome | None:
    """How a job ended; None while it has not. It may still be COMPLETING, on a node that is slow to clean up."""
    base = states[0] if states else ""
    if base not in ENDED:
        return None
    if base == "COMPLETED":
        return "passed"
    if base in _FAILED:
        return "failed"
    return "cancelled" if base in _CANCELLED else "error"


def of_job(job: Job | PastJob) -> Outcome | None:
    """The same from its record, which also knows the exit code."""
    states = job.state.current if isinstance(job, PastJob) else job.job_state
    found = of_states(states)
    return "error" if found == "failed" and job.exit_code.return_code.value == _NO_VERDICT else found


def evidence(job: Job | PastJob) -> str:
    """What a record says of its end, for people."""
    states = job.state.current if isinstance(job, PastJob) else job.job_state
    reason = job.state.reason if isinstance(job, PastJob) else job.state_reason
    code, signal = job.exit_code.return_code.value, job.exit_code.signal.id.value
    said = [states[0] if states else "UNKNOWN"]
    if code:
        said.append(f"exit code {code:.0f}")
    if signal:
        said.append(f"signal {signal:.0f}")
    if reason not in {"", "None", said[0]} and reason != "NonZeroExitCode":
        said.append(reason)
    return ", ".join(said)


def ended_at(job: Job | PastJob) -> int:
    """When it ended, in seconds since 1970; 0 if that is not known."""
    return job.time.end if isinstance(job, PastJob) else int(job.end_time.value or 0)
