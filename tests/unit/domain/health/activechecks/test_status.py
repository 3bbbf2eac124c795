"""What is told of runs."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from isthmus.domain.health.activechecks import status
from isthmus.domain.health.activechecks.plan import Part, Plan
from isthmus.model.activecheck import K8sJobsStatus, SlurmJobsStatus
from isthmus.model.pod import Pod
from isthmus.model.workload import CheckJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def plan(*outcomes: Any) -> Plan:
    return Plan(
        parts=tuple(Part(f"n{at}", at + 10, it, "why", 5) for at, it in enumerate(outcomes)), each=True, begun=7
    )


def job(*conditions: dict[str, str], start: str | None = "2026-01-01T00:00:00Z", **spec: Any) -> CheckJob:
    told: dict[str, Any] = {"conditions": list(conditions)}
    if start:
        told["startTime"] = start
    return msgspec.convert({"metadata": {"name": "j"}, "spec": spec, "status": told}, CheckJob, strict=False)


def pod(code: int, *, phase: str = "Failed") -> Pod:
    ended = {"state": {"terminated": {"exitCode": code}}}
    return msgspec.convert({"status": {"phase": phase, "containerStatuses": [ended]}}, Pod)


COMPLETE = {"type": "Complete", "status": "True"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}


def test_jobs_are_sorted_by_their_ends() -> None:
    told = status.slurm_status(
        "run", plan("passed", "failed", "error", "cancelled"), before=SlurmJobsStatus(), now=NOW
    )
    assert (told.last_run_id, told.last_run_name, told.last_run_status) == ("10", "run", "Failed")
    assert [it.job_id for it in told.last_run_fail_jobs_and_reasons] == ["11"]
    assert [it.reason for it in told.last_run_error_jobs_and_reasons] == ["why"]
    assert told.last_run_cancelled_jobs == ("13",)
    assert told.last_run_submit_time == datetime.fromtimestamp(7, UTC)


def test_a_transition_is_dated_once() -> None:
    first = status.slurm_status("run", plan(""), before=SlurmJobsStatus(), now=NOW)
    same = status.slurm_status("run", plan(""), before=first, now=LATER)
    over = status.slurm_status("run", plan("passed"), before=same, now=LATER)
    assert (first.last_transition_time, same.last_transition_time, over.last_transition_time) == (NOW, NOW, LATER)


def test_a_run_without_jobs() -> None:
    told = status.unplanned_status("run", "Skipped", before=SlurmJobsStatus(), now=NOW)
    assert (told.last_run_id, told.last_run_status) == ("No slurm job", "Skipped")


@pytest.mark.parametrize(
    ("outcomes", "complete", "reason"),
    [
        (("passed", "passed"), True, "CheckPassed"),
        (("failed", "error"), False, "CheckFailed"),
        (("passed", "error"), False, "CheckError"),
        (("passed", "cancelled"), False, "CheckCancelled"),
    ],
)
def test_the_end_of_the_job(outcomes: tuple[str, ...], reason: str, *, complete: bool) -> None:
    end = status.ending(plan(*outcomes))
    assert (end.complete, end.reason) == (complete, reason)


def test_a_failure_that_nobody_is_to_blame_for_is_an_error() -> None:
    parts = (Part("n[1-2]", 1, "failed", "x"), Part("n1", 2, "error", "late"), Part("n2", 3, "passed"))
    assert status.ending(Plan(parts=parts)).reason == "CheckError"


def test_the_conditions_that_the_api_server_insists_on() -> None:
    done = status.job_conditions(status.Ending(complete=True, reason="r"), now="t")
    assert [it["type"] for it in done] == ["SuccessCriteriaMet", "Complete"]
    failed = status.job_conditions(status.Ending(complete=False, reason="r"), now="t")
    assert [it["type"] for it in failed] == ["FailureTarget", "Failed"]


@pytest.mark.parametrize(
    ("it", "pods", "state"),
    [
        (job(COMPLETE), (), "Complete"),
        (job(FAILED), (), "Failed"),
        (job(suspend=True), (), "Suspended"),
        (job(start=None), (), "Pending"),
        (job(), (), "Unknown"),
        (job(), (pod(0, phase="Pending"),), "Pending"),
        (job(), (pod(0, phase="Running"),), "Active"),
    ],
)
def test_a_job_of_kubernetes_in_soperators_words(it: CheckJob, pods: tuple[Pod, ...], state: str) -> None:
    assert status.k8s_state(it, pods) == state


def test_a_status_that_says_nothing_new_stays() -> None:
    first = status.k8s_status(job(COMPLETE), None, (), before=K8sJobsStatus(), now=NOW)
    assert first.last_transition_time == NOW
    assert status.k8s_status(job(COMPLETE), None, (), before=first, now=LATER) is first


def test_what_a_pod_says_of_the_nodes_of_its_machine() -> None:
    assert [it.result for it in status.pod_verdicts(job(COMPLETE), (), ["n1"])] == ["Passed"]
    (failed,) = status.pod_verdicts(job(FAILED), [pod(3)], ["n1"])
    assert (failed.result, failed.evidence, failed.job) == ("Failed", "exit code 3", "j")
    assert status.pod_verdicts(job(), [pod(3)], ["n1"]) == ()


def test_a_pod_that_never_ran_or_was_stopped_is_an_error() -> None:
    assert [it.result for it in status.pod_verdicts(job(FAILED), (), ["n1"])] == ["Error"]
    late = {**FAILED, "reason": "DeadlineExceeded"}
    assert [it.result for it in status.pod_verdicts(job(late), [pod(137)], ["n1"])] == ["Error"]
