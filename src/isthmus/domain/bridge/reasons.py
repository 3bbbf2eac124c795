"""Slurm's reasons why a job waits, in words: what it waits for, whether that passes, and what to do.

Slurm has some two hundred codes. Those with a meaning of their own stand in a table; most of the others are limits,
whose names are put together from parts (`QOSMaxCpuPerUserLimit`) and are read part by part, so that limits which a
later Slurm adds are understood, too.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from isthmus.model.slurm import Job


class Outlook(StrEnum):
    """What happens to the job without intervention."""

    PASSES = "passes"
    HELD = "held"
    STUCK = "stuck"


class Reason(msgspec.Struct, frozen=True):
    """A code in words: `text` continues "it waits because", `remedy` is what a person can do, if anything."""

    text: str
    remedy: str = ""
    outlook: Outlook = Outlook.PASSES


_HELD, _STUCK = Outlook.HELD, Outlook.STUCK
_RELEASE: Final = "release it: scontrol release JOBID"
_ADJUST: Final = "ask for less, or for what the cluster has"

_REASONS: Final = {
    "None": Reason("Slurm has not looked at it yet"),
    "Priority": Reason("other jobs are ahead of it in the queue", "wait, or ask for a higher priority or QOS"),
    "Resources": Reason("it is next, but too few CPUs, memory or devices are free", "wait, or ask for less"),
    "Dependency": Reason("another job has to end first", "see scontrol show job JOBID for which one"),
    "DependencyNeverSatisfied": Reason(
        "the job that it depends on did not end as the dependency requires", "correct its dependency", _STUCK
    ),
    "BeginTime": Reason("its begin time has not come yet"),
    "SchedDefer": Reason("it waits for Slurm's next full scheduling cycle"),
    "Cleaning": Reason("its previous run is still being cleaned up"),
    "Prolog": Reason("the prolog runs on its nodes"),
    "JobHeldUser": Reason("its owner holds it", _RELEASE, _HELD),
    "JobHeldAdmin": Reason("an administrator holds it", "ask an administrator for: scontrol release JOBID", _HELD),
    "JobHoldMaxRequeue": Reason("it was requeued too often", _RELEASE, _HELD),
    "JobLaunchFailure": Reason(
        "it could not be started on its nodes", "see the logs of slurmctld and slurmd on these nodes", _HELD
    ),
    "PartitionNodeLimit": Reason(
        "it asks for more or fewer nodes than its partition allows, or for more than are in service there",
        "choose another partition, or ask for another number of nodes",
        _STUCK,
    ),
    "PartitionTimeLimit": Reason(
        "its time limit is longer than its partition allows",
        "lower the time limit or choose another partition",
        _STUCK,
    ),
    "PartitionDown": Reason("its partition is DOWN", "wait until an administrator sets it UP, or choose another"),
    "PartitionInactive": Reason(
        "its partition is INACTIVE", "wait until an administrator sets it UP, or choose another"
    ),
    "PartitionConfig": Reason(
        "its partition does not admit such a job", "see scontrol show partition, or choose another", _STUCK
    ),
    "ReqNodeNotAvail": Reason(
        "nodes that it needs are down, drained or reserved", "see sinfo -R for why, and bring them back"
    ),
    "NodeDown": Reason("a node that it needs is down", "see sinfo -R for why, and bring it back"),
    "BadConstraints": Reason(
        "no node has what it asks for", "check its constraints, CPUs, memory and GRES against sinfo -N -l", _STUCK
    ),
    "Licenses": Reason("licences that it needs are in use", "wait, or see scontrol show licenses"),
    "Reservation": Reason("its reservation has not begun, or is fully used", "see scontrol show reservation"),
    "ReservationDeleted": Reason("its reservation was deleted", "choose another or none", _HELD),
    "ReservationInvalid": Reason(
        "its reservation does not exist or is not for it", "choose another or none", _STUCK
    ),
    "JobArrayTaskLimit": Reason("its array already runs its maximum number of tasks"),
    "InvalidAccount": Reason("its account does not exist in Slurm", "see sacctmgr show account", _STUCK),
    "InvalidQOS": Reason("its QOS does not exist in Slurm", "see sacctmgr show qos", _STUCK),
    "QOSNotAllowed": Reason(
        "its QOS may not be used in this partition or by this account", "choose another QOS", _STUCK
    ),
    "AccountNotAllowed": Reason("its account may not use this partition", "choose another of the two", _STUCK),
    "AccountingPolicy": Reason("a limit of its account or user is reached", "see sacctmgr show assoc"),
    "QOSUsageThreshold": Reason("its QOS asks for more fair-share than is left", "wait, or choose another QOS"),
    "MaxMemPerLimit": Reason(
        "it asks for more memory per CPU or node than is allowed", "ask for less memory, or for more CPUs", _STUCK
    ),
    "MaxPoweredUpNodes": Reason("the maximum number of nodes is already powered up"),
    "BurstBufferResources": Reason("its burst buffer has too little room"),
    "BurstBufferStageIn": Reason("its data is being staged into the burst buffer"),
    "BurstBufferOperation": Reason("its burst buffer failed", "see the log of slurmctld", _HELD),
    "DeadLine": Reason("it cannot end before its deadline", "submit it again with a later one", _STUCK),
    "FedJobLock": Reason("another cluster of the federation decides about it"),
    "MpiPortsBusy": Reason("its nodes have no free ports for MPI"),
    "NvidiaImexChannels": Reason("no IMEX channel is free"),
    "SystemFailure": Reason("Slurm, a file system or a network failed", "see the log of slurmctld", _STUCK),
    # The rest are reasons why a job ended, and are seen on jobs that are over or were requeued.
    "NonZeroExitCode": Reason("it ended with an exit code other than 0", "", _STUCK),
    "TimeLimit": Reason("it ran into its time limit", "ask for more time", _STUCK),
    "InactiveLimit": Reason("it was inactive for longer than allowed", "", _STUCK),
    "RaisedSignal": Reason("a signal ended it", "", _STUCK),
    "OutOfMemory": Reason("it ran out of memory", "ask for more memory", _STUCK),
}

_THINGS: Final = {
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "GRES": "GPUs and other devices",
    "License": "licences",
    "BB": "burst buffer",
    "Energy": "energy",
    "Billing": "billing units",
    "Jobs": "running jobs",
    "SubmitJobs": "jobs in the queue",
    "SubmitJob": "jobs in the queue",
    "Wall": "wall time",
    "WallDuration": "wall time",
    "Unknown": "some resource",
}
_PEOPLE: Final = {
    "Job": "for one job",
    "User": "for one user",
    "Account": "for one account",
    "Node": "of one node",
}
_LIMIT: Final = re.compile(
    r"(?P<whose>QOS|Assoc|)(?P<kind>Grp|Max|Min)"
    rf"(?P<thing>{'|'.join(sorted(_THINGS, key=len, reverse=True))})"
    r"(?P<minutes>(?:Run)?(?:Minutes|Mins))?(?:Per(?P<per>Job|User|Account|Node))?"
    r"(?P<ending>NotSatisfied|Limit|)",
    re.ASCII,
)
_OLD_LIMIT: Final = re.compile(r"(?P<whose>QOS|Association)(?P<thing>Job|Resource|Time)Limit", re.ASCII)
_WHOSE: Final = {
    "QOS": ("its QOS", "sacctmgr show qos"),
    "Assoc": ("its account and user", "sacctmgr show assoc"),
    "Association": ("its account and user", "sacctmgr show assoc"),
    "": ("its QOS", "sacctmgr show qos"),
}
_NEVER: Final = 360 * 86400.0
"""Slurm counts jobs without a time limit as if they had a year: a start that far off is not an estimate."""

_CODE: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_FOR_NODES: Final = frozenset({"Resources", "Priority", "ReqNodeNotAvail", "NodeDown"})
_TOO_LARGE: Final = "PartitionNodeLimit"


def sentence(reason: str, *, job_id: int | None = None) -> Reason:
    """Put a code in words. What Slurm adds to the code, such as `ReqNodeNotAvail, UnavailableNodes:n1`, is kept.

    With a job's id, commands in the remedy can be used as they stand.
    """
    reason = reason.strip().removeprefix("(").removesuffix(")")
    code = _code(reason)
    found = _REASONS.get(code) or _limit(code) or Reason(f"Slurm gives the reason {reason[:200]}")
    _, _, more = reason.partition(", ")
    return Reason(
        text=f"{found.text} ({more[:200]})" if more else found.text,
        remedy=found.remedy if job_id is None else found.remedy.replace("JOBID", str(job_id)),
        outlook=found.outlook,
    )


def waits_for_nodes(job: Job, *, nodes: Callable[[], int]) -> bool:
    """Whether a job that waits may start if there were more nodes; `nodes` counts those of its partitions.

    One that a limit, a dependency or a person holds would not. Slurm has one reason for jobs that are larger than
    their partition is, and for those that are larger than it allows: only the former get smaller with more nodes.
    """
    code = _code(job.state_reason or "")
    return code in _FOR_NODES or (code == _TOO_LARGE and (job.node_count.value or 0) > nodes())


def expected_start(job: Job, *, now: float) -> datetime | None:
    """When Slurm thinks that a waiting job will start; None where it does not say, or has no estimate."""
    start = job.start_time.value or 0
    return datetime.fromtimestamp(start, UTC) if now < start <= now + _NEVER else None


def waiting(job: Job, *, now: float) -> tuple[str, bool]:
    """Why a job waits and when it may start, and whether a user has to release it."""
    found = sentence(job.state_reason or "", job_id=job.job_id)
    message = f"Slurm job {job.job_id} waits because {found.text} ({job.state_reason or 'None'})"
    if start := expected_start(job, now=now):
        message += f", and is expected to start at {start:%Y-%m-%d %H:%M} UTC"
    if found.remedy and found.outlook is not Outlook.PASSES:
        message += f". {found.remedy[:1].upper()}{found.remedy[1:]}"
    return message, found.outlook is Outlook.HELD


def _code(reason: str) -> str:
    match = _CODE.match(reason)
    return match[0] if match and match[0] != "null" else "None"


def _limit(code: str) -> Reason | None:
    if match := _OLD_LIMIT.fullmatch(code):
        whose, see = _WHOSE[match["whose"]]
        return Reason(f"a limit of {whose} on {match['thing'].lower()}s is reached", f"wait, or see {see}")
    match = _LIMIT.fullmatch(code)
    if match is None:
        return None
    whose, see = _WHOSE[match["whose"]]
    thing = f"{_THINGS[match['thing']]}{' over time' if match['minutes'] else ''}"
    if match["kind"] == "Min":
        return Reason(
            f"{whose} requires more {thing} than the job requests", f"ask for more, or see {see}", Outlook.STUCK
        )
    if match["kind"] == "Grp":
        return Reason(f"all jobs of {whose} together have reached the limit on {thing}", f"wait, or see {see}")
    per = _PEOPLE.get(match["per"] or "", "in all")
    # What one job asks for does not change while it waits.
    alone = match["per"] in {"Job", "Node"}
    return Reason(
        f"{whose} allows no more {thing} {per}",
        f"{_ADJUST}; see {see}" if alone else f"wait, or see {see}",
        Outlook.STUCK if alone else Outlook.PASSES,
    )
