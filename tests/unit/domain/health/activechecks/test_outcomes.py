"""What the end of a Slurm job says."""

import pytest

from isthmus.domain.health.activechecks import outcomes
from isthmus.model.slurm import ExitCode, Job, Number, Signal
from isthmus.model.slurmdb import PastJob, PastState, PastTimes


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        (("COMPLETED",), "passed"),
        (("COMPLETED", "COMPLETING"), "passed"),
        (("FAILED",), "failed"),
        (("TIMEOUT",), "failed"),
        (("OUT_OF_MEMORY",), "failed"),
        (("NODE_FAIL",), "failed"),
        (("CANCELLED",), "cancelled"),
        (("PREEMPTED",), "cancelled"),
        (("DEADLINE",), "cancelled"),
        (("RUNNING",), None),
        (("PENDING", "REQUEUED"), None),
        ((), None),
    ],
)
def test_each_state_has_a_meaning(states: tuple[str, ...], outcome: str | None) -> None:
    assert outcomes.of_states(states) == outcome


def test_a_script_can_say_that_it_could_not_check() -> None:
    code = ExitCode(return_code=Number.of(75))
    assert outcomes.of_job(Job(job_id=1, job_state=("FAILED",), exit_code=code)) == "error"
    assert (
        outcomes.of_job(Job(job_id=1, job_state=("FAILED",), exit_code=ExitCode(return_code=Number.of(1))))
        == "failed"
    )


def test_evidence_tells_state_code_signal_and_reason() -> None:
    code = ExitCode(return_code=Number.of(3), signal=Signal(id=Number.of(9)))
    job = Job(job_id=1, job_state=("FAILED",), exit_code=code, state_reason="RaisedSignal")
    assert outcomes.evidence(job) == "FAILED, exit code 3, signal 9, RaisedSignal"
    past = PastJob(job_id=1, state=PastState(("TIMEOUT",), "TimeLimit"), time=PastTimes(end=17))
    assert outcomes.evidence(past) == "TIMEOUT, TimeLimit"
    assert outcomes.ended_at(past) == 17
