"""One run of a job that is over, as the usage store keeps it: who, what was asked for, what was used, how it went.

slurmctld tells most of it at once. What was used is known to slurmdbd alone, a little later, and stays empty
without accounting. Pods are here as well: a job of the bridge names its workload in the admin comment.
"""

from typing import Final

import msgspec

from isthmus.domain.bridge import marker
from isthmus.domain.exporter.arraytasks import key
from isthmus.domain.exporter.jobfacts import counted
from isthmus.domain.exporter.jobledger import Ending, Run
from isthmus.domain.exporter.runfacts import has_started, ran, submitted_at, whose
from isthmus.model.slurm import ExitCode, Job, States
from isthmus.model.slurmdb import PastJob, PastStep, PastTres

REQUEUED: Final = "requeued"
_MEMORY: Final = "mem"


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the usage store. Times are seconds since 1970 and 0 for what never happened; memory is in bytes."""

    job_id: int
    submit: int
    cluster: str = ""
    name: str = ""
    """As sacct writes the id: `17`, `12_3`."""
    het_id: int = 0
    het_offset: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    job_name: str = ""
    kind: str = "slurm"
    """`pod` for a job of the bridge."""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    nodes: str = ""
    eligible: int = 0
    start: int = 0
    end: int = 0
    elapsed: int = 0
    """Without the time that it was suspended."""
    state: str = ""
    """In lower case."""
    exit_code: int = 0
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    restarts: int = 0
    cpu_seconds: float | None = None
    """Used; None where nobody measured it."""
    max_memory: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.job_id, self.submit

    @property
    def ending(self) -> Ending:
        return Ending(self.state, self.start, self.elapsed)

    @property
    def run(self) -> Run:
        return Run(self.job_id, self.submit, self.restarts, (self.partition, self.account, self.qos))


def of_record(job: Job, *, cluster: str) -> JobRun:
    """Make the row of a run that is over from slurmctld's record."""
    began = has_started(job)
    partition, account, qos = whose(job)
    has = counted(job.tres_allocated or job.tres_requested)
    return _with_workload(
        JobRun(
            job_id=job.job_id,
            submit=submitted_at(job),
            cluster=cluster,
            name=key(job),
            het_id=int(job.het_job_id.value or 0),
            het_offset=int(job.het_job_offset.value or 0),
            user=job.user_name or "",
            account=account,
            partition=partition,
            qos=qos,
            job_name=job.name or "",
            nodes=(job.nodes or "") if began else "",
            eligible=int(job.eligible_time.value or 0),
            start=int(job.start_time.value or 0) if began else 0,
            end=int(job.end_time.value or 0),
            elapsed=ran(job) if began else 0,
            state=job.job_state[0].lower(),
            exit_code=_exit_code(job.exit_code),
            cpus=has.cpus or int(job.cpus.value or 0),
            memory=has.memory,
            gpus=has.gpus,
            restarts=job.restarts,
        ),
        job.admin_comment,
    )


def of_account(past: PastJob) -> JobRun:
    """Make the row of a run that is over from slurmdbd's record."""
    tres = past.tres.allocated or past.tres.requested
    task = past.array.task_id.value
    began = bool(past.time.start and past.tres.allocated)
    return _with_workload(
        JobRun(
            job_id=past.job_id,
            submit=past.time.submission,
            cluster=past.cluster,
            name=f"{past.array.job_id}_{task:.0f}" if past.array.job_id and task is not None else str(past.job_id),
            het_id=past.het.job_id,
            het_offset=int(past.het.job_offset.value or 0),
            user=past.user or "",
            account=past.account,
            partition=past.partition.partition(",")[0],
            qos=past.qos,
            job_name=past.name,
            nodes=past.nodes if began else "",
            eligible=past.time.eligible,
            start=past.time.start if began else 0,
            end=past.time.end,
            elapsed=past.time.elapsed if began else 0,
            state=_past_state(past.state.current),
            exit_code=_exit_code(past.exit_code),
            cpus=_count(tres, "cpu"),
            memory=_count(tres, _MEMORY) << 20,
            gpus=_count(tres, "gres", "gpu"),
            restarts=past.restarts,
            cpu_seconds=sum(map(_cpu_seconds, past.steps)) if past.steps else None,
            max_memory=max(map(_max_memory, past.steps), default=0) or None,
        ),
        past.comment.administrator,
    )


def _with_workload(run: JobRun, admin_comment: str | None) -> JobRun:
    found = marker.read(admin_comment)
    if found is None:
        return run
    return msgspec.structs.replace(
        run, kind="pod", namespace=found.namespace, workload_kind=found.kind, workload=found.name
    )


def _exit_code(code: ExitCode) -> int:
    return int(code.return_code.value or 0) or (
        int(code.signal.id.value or 0) and 128 + int(code.signal.id.value or 0)
    )


def _past_state(states: States) -> str:
    """How a run ended. One that went back to the queue stands as PENDING and REQUEUED in the accounts."""
    if REQUEUED.upper() in states:
        return REQUEUED
    return states[0].lower() if states else ""


def _count(tres: tuple[PastTres, ...], type_: str, name: str = "") -> int:
    """Count a resource; of GRES with types, Slurm lists the sum and each type."""
    found = [it.count for it in tres if it.type == type_ and (it.name or "").partition(":")[0] == name]
    return max(found, default=0)


def _cpu_seconds(step: PastStep) -> float:
    return step.time.total.seconds + step.time.total.microseconds / 1e6


def _max_memory(step: PastStep) -> int:
    """Add up what the tasks of a step had at most, as seff does."""
    return max((it.count for it in step.tres.requested.total if it.type == _MEMORY), default=0)
