"""The parts of an ActiveCheck's status, and of its Jobs', that are about runs."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from isthmus.domain.health.activechecks import plan as plans
from isthmus.domain.health.activechecks.plan import NodeVerdict, Plan
from isthmus.domain.languages import prose
from isthmus.model.activecheck import (
    MAX_NODES,
    JobAndReason,
    K8sJobsStatus,
    K8sJobStatus,
    RunStatus,
    SlurmJobsStatus,
)
from isthmus.model.meta import condition
from isthmus.model.pod import Pod
from isthmus.model.workload import CheckJob, CronJob

NO_JOB: Final = "No slurm job"
"""What Soperator writes as the id of a run without jobs."""

SKIPPED: Final = "CheckSkipped"
ERROR: Final = "CheckError"
"""Reasons of a Job that ended without a verdict: it was not to run, or the check itself failed."""

_MAX_MESSAGE: Final = 1024


class Ending(msgspec.Struct, frozen=True):
    """How the Job of a run ends: a reason in one word, and a message."""

    complete: bool
    reason: str
    message: str = ""


def slurm_status(name: str, plan: Plan, *, before: SlurmJobsStatus, now: datetime) -> SlurmJobsStatus:
    """How a run in Slurm stands."""
    told = SlurmJobsStatus(
        last_run_id=str(plan.jobs[0]) if plan.jobs else NO_JOB,
        last_run_name=name,
        last_run_status=plans.status(plan),
        last_run_fail_jobs_and_reasons=_jobs(plan, "failed"),
        last_run_error_jobs_and_reasons=_jobs(plan, "error"),
        last_run_cancelled_jobs=tuple(it.job_id for it in _jobs(plan, "cancelled")),
        last_run_submit_time=datetime.fromtimestamp(plan.begun, UTC) if plan.begun else None,
    )
    return _dated(told, before, now)


def unplanned_status(name: str, outcome: RunStatus, *, before: SlurmJobsStatus, now: datetime) -> SlurmJobsStatus:
    """Tell of a run without any job: it was skipped, or nothing could be submitted."""
    told = SlurmJobsStatus(last_run_id=NO_JOB, last_run_name=name, last_run_status=outcome)
    return _dated(told, before, now)


def _dated(told: SlurmJobsStatus, before: SlurmJobsStatus, now: datetime) -> SlurmJobsStatus:
    same = (told.last_run_name, told.last_run_status) == (before.last_run_name, before.last_run_status)
    since = before.last_transition_time if same else None
    return msgspec.structs.replace(told, last_transition_time=since or now.replace(microsecond=0))


def _jobs(plan: Plan, outcome: str) -> tuple[JobAndReason, ...]:
    found = (it for it in plan.parts if it.outcome == outcome)
    return tuple(JobAndReason(str(it.job) if it.job else NO_JOB, it.evidence) for it in found)[:MAX_NODES]


def ending(plan: Plan) -> Ending:
    """How the Job of a run that is over ends."""
    said = plans.verdicts(plan)
    failed = [it for it in said if it.result == "Failed"]
    errors = [it for it in said if it.result == "Error"]
    match plans.status(plan):
        case "Complete":
            passed = sum(it.result == "Passed" for it in said)
            return Ending(complete=True, reason="CheckPassed", message=f"{passed} nodes passed")
        case "Failed" if failed:
            return Ending(complete=False, reason="CheckFailed", message=_told(failed))
        case "Cancelled":
            return Ending(complete=False, reason="CheckCancelled", message="its Slurm jobs were cancelled")
        case _:
            return Ending(complete=False, reason=ERROR, message=_told(errors) or "nothing was tested")


def _told(found: Iterable[NodeVerdict]) -> str:
    return prose.some([f"{it.node}: {it.evidence}" for it in found], most=5)[:_MAX_MESSAGE]


def job_conditions(end: Ending, *, now: str) -> list[dict[str, Any]]:
    """Make the conditions of a Job that is over. The API server insists on the first of each pair."""
    types = ("SuccessCriteriaMet", "Complete") if end.complete else ("FailureTarget", "Failed")
    return [
        {
            "type": type_,
            "status": "True",
            "reason": end.reason,
            "message": end.message[:_MAX_MESSAGE],
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }
        for type_ in types
    ]


def k8s_state(job: CheckJob, pods: Iterable[Pod] = ()) -> K8sJobStatus:
    """How a Job of Kubernetes stands, in Soperator's words."""
    if job.complete:
        return "Complete"
    if job.failure is not None:
        return "Failed"
    held = condition(job.status.conditions, "Suspended")
    if job.spec.suspend or (held is not None and held.status == "True"):
        return "Suspended"
    if job.status.start_time is None:
        return "Pending"
    there = tuple(pods)
    if job.spec.managed_by or any(it.status.phase not in {"", "Pending"} for it in there):
        return "Active"
    return "Pending" if there else "Unknown"


def k8s_status(
    job: CheckJob, cron_job: CronJob | None, pods: Iterable[Pod], *, before: K8sJobsStatus, now: datetime
) -> K8sJobsStatus:
    told = K8sJobsStatus(
        last_job_name=job.metadata.name,
        last_job_status=k8s_state(job, pods),
        last_job_schedule_time=cron_job.status.last_schedule_time if cron_job else None,
        last_job_successful_time=cron_job.status.last_successful_time if cron_job else None,
        last_transition_time=before.last_transition_time,
    )
    if told == before:
        return before
    return msgspec.structs.replace(told, last_transition_time=now.replace(microsecond=0))


def pod_verdicts(job: CheckJob, pods: Iterable[Pod], slurm_nodes: Iterable[str]) -> tuple[NodeVerdict, ...]:
    """What a Job of Kubernetes that is over says of the Slurm nodes on the machine of its pod."""
    ended = job.status.completion_time or _failed_at(job)
    at = int(ended.timestamp()) if ended else 0
    if job.complete:
        return tuple(NodeVerdict(it, "Passed", job.metadata.name, "", at) for it in slurm_nodes)
    if job.failure is None:
        return ()
    codes = [
        it.state.terminated.exit_code
        for pod in pods
        for it in pod.status.container_statuses
        if it.state.terminated is not None and it.state.terminated.exit_code
    ]
    deadline = job.failure.reason == "DeadlineExceeded"
    if not codes or deadline:
        why = job.failure.message or job.failure.reason
        return tuple(NodeVerdict(it, "Error", job.metadata.name, why, at) for it in slurm_nodes)
    told = f"exit code {codes[0]}"
    return tuple(NodeVerdict(it, "Failed", job.metadata.name, told, at) for it in slurm_nodes)


def _failed_at(job: CheckJob) -> datetime | None:
    return job.failure.last_transition_time if job.failure else None
