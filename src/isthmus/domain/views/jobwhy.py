"""Why a Slurm job waits: gate by gate, who is before it, when it may begin, and what would help.

    submitted ─ eligible ─ allowed ─ priority ─ resources ─ allocated ─ running ─ ended

A pod that Slurm places has more gates, which `domain.bridge.explain` looks at; what is said here of its job holds
for it as well.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from isthmus.domain.bridge import jobstates, reasons
from isthmus.domain.bridge.explain import Gate, Mark, ago, place_in_queue
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.bridge.reasons import Outlook
from isthmus.domain.exporter import nodestates
from isthmus.domain.views import rows
from isthmus.model.slurm import Job, Node

GATES: Final = ("submitted", "eligible", "allowed", "priority", "resources", "allocated", "running", "ended")

_ELIGIBLE: Final = frozenset(
    {
        "BeginTime",
        "Cleaning",
        "DeadLine",
        "Dependency",
        "DependencyNeverSatisfied",
        "FedJobLock",
        "JobArrayTaskLimit",
        "JobHeldAdmin",
        "JobHeldUser",
        "JobHoldMaxRequeue",
        "JobLaunchFailure",
        "Reservation",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
_ALLOWED: Final = re.compile(r"QOS|Assoc|Account|Invalid|Max|Grp|Min|Partition", re.ASCII)
_PRIORITY: Final = frozenset({"None", "Priority", "SchedDefer"})
_CODE: Final = re.compile(r"[A-Za-z]*", re.ASCII)
_NAMED: Final = 3
_BEGIN_TIME: Final = "BeginTime"


class Blocker(msgspec.Struct, frozen=True):
    """A job that is in the way, and how: it is ahead in the queue, has the nodes, or has to end first."""

    job_id: int
    text: str


class Estimate(msgspec.Struct, frozen=True):
    """When a job may begin. Without a time, `text` says why there is none."""

    at: float = 0.0
    confidence: str = "none"
    """none, low, fair or good."""
    text: str = ""


def gate_of(reason: str) -> str:
    """The gate at which a job with this reason waits."""
    match = _CODE.match(reason.strip())
    code = match[0] if match and match[0] else "None"
    if code in _ELIGIBLE:
        return "eligible"
    if code in _PRIORITY:
        return "priority"
    return "allowed" if _ALLOWED.match(code) else "resources"


def gates(job: Job, jobs: Iterable[Job], *, now: float) -> tuple[Gate, ...]:
    """The state of each gate: those before the one where it waits are passed, those behind it are ahead."""
    phase = jobstates.phase(job.job_state)
    submitted = Gate("submitted", Mark.PASSED, _submitted(job, now))
    if phase is Phase.WAITING:
        at = gate_of(job.state_reason)
        blocked = _waiting(job, at, jobs)
        position = GATES.index(at)
        passed = (Gate(name, Mark.PASSED, _passed(name, job)) for name in GATES[1:position])
        return (submitted, *passed, blocked, *(Gate(name, Mark.AHEAD) for name in GATES[position + 1 :]))
    before = tuple(Gate(name, Mark.PASSED, _passed(name, job)) for name in GATES[1:5])
    began = job.start_time.value or 0
    if not job.nodes and phase is Phase.ENDED:
        end = Gate("ended", Mark.REFUSED, f"it {jobstates.end(job.job_state).text} before it had nodes")
        return (submitted, Gate("allocated", Mark.AHEAD), Gate("running", Mark.AHEAD), end)
    allocated = Gate("allocated", Mark.PASSED, job.nodes or "")
    if phase is Phase.UNKNOWN:
        unknown = Gate("running", Mark.UNKNOWN, f"it is {'+'.join(job.job_state) or 'in an unknown state'}")
        return (submitted, *before, allocated, unknown)
    if phase in {Phase.ENDED, Phase.ENDING}:
        took = max(0.0, (job.end_time.value or began) - began)
        return (submitted, *before, allocated, Gate("running", Mark.PASSED, f"for {ago(took)}"), _ended(job))
    if phase is Phase.SUSPENDED:
        held = Gate("running", Mark.WAITING, "it is suspended", f"scontrol resume {job.job_id}")
        return (submitted, *before, allocated, held, Gate("ended", Mark.AHEAD))
    booting = "" if jobstates.running(job.job_state) else ", its nodes are being prepared"
    runs = Gate("running", Mark.PASSED, f"for {ago(now - began)}{booting}")
    return (submitted, *before, allocated, runs, Gate("ended", Mark.AHEAD))


def blockers(job: Job, jobs: Collection[Job], *, now: float) -> tuple[Blocker, ...]:
    """Name the jobs for which this one waits."""
    if jobstates.phase(job.job_state) is not Phase.WAITING:
        return ()
    at = gate_of(job.state_reason)
    if at == "eligible" and job.dependency:
        wanted = {int(it) for it in re.findall(r"\d+", job.dependency)}
        return tuple(Blocker(it.job_id, _described(it, "has to end first")) for it in jobs if it.job_id in wanted)
    same = [it for it in jobs if it.partition == job.partition and it.job_id != job.job_id]
    ahead = [it for it in same if _pending(it) and _order(it) < _order(job) and it.priority.value]
    if at == "priority" and ahead:
        first = sorted(ahead, key=_order)[:_NAMED]
        return tuple(Blocker(it.job_id, _described(it, f"is ahead, with priority {_priority(it)}")) for it in first)
    if at not in {"priority", "resources"}:
        return ()
    running = sorted((it for it in same if jobstates.holds_nodes(it.job_state)), key=_latest_end)[:_NAMED]
    return tuple(Blocker(it.job_id, _described(it, _until(it, now))) for it in running)


def estimate(job: Job, *, now: float) -> Estimate:
    """When Slurm expects it to begin, and how much that is worth."""
    if jobstates.phase(job.job_state) is not Phase.WAITING:
        return Estimate()
    found = reasons.expected_start(job, now=now)
    outlook = reasons.sentence(job.state_reason).outlook
    if outlook is not Outlook.PASSES:
        return Estimate(text="it does not start on its own")
    if found is None or (job.state_reason == _BEGIN_TIME and not job.scheduled_nodes):
        return _unplanned(job, now)  # what Slurm then says is the time that was asked for
    if job.scheduled_nodes and job.state_reason == "Resources":
        return Estimate(found.timestamp(), "good", f"it is next, and planned on {job.scheduled_nodes}")
    if job.scheduled_nodes:
        text = f"it is planned on {job.scheduled_nodes}; jobs with a higher priority may still be submitted"
        return Estimate(found.timestamp(), "fair", text)
    return Estimate(found.timestamp(), "low", "at the latest, unless jobs with a higher priority are submitted")


def _unplanned(job: Job, now: float) -> Estimate:
    begins = job.eligible_time.value or 0
    if job.state_reason == _BEGIN_TIME and begins > now:
        return Estimate(begins, "low", "not before its begin time, and then in its turn")
    unbounded = (job.start_time.value or 0) > now
    return Estimate(
        text="jobs ahead of it have no time limit, so Slurm cannot estimate it"
        if unbounded
        else "Slurm has not planned it yet: backfill looks at the jobs with the highest priority first"
    )


def helps(job: Job, nodes: Collection[Node]) -> tuple[str, ...]:
    """What would let a waiting job begin sooner."""
    if jobstates.phase(job.job_state) is not Phase.WAITING:
        return ()
    return tuple(dict.fromkeys(_helps(job, nodes)))


def _helps(job: Job, nodes: Collection[Node]) -> Iterator[str]:
    found = reasons.sentence(job.state_reason, job_id=job.job_id)
    if found.remedy:
        yield _sentence(found.remedy)
    at = gate_of(job.state_reason)
    if at not in {"priority", "resources"}:
        return
    wanted = (job.partition or "").split(",")
    mine = [it for it in nodes if not set(wanted).isdisjoint(it.partitions)]
    if out := [it for it in mine if nodestates.state(it.state) in nodestates.OUT]:
        named = "; ".join(f"{it.name}: {it.reason or nodestates.state(it.state)}"[:80] for it in out[:_NAMED])
        yield f"Bring back {len(out)} of {len(mine)} nodes of partition {job.partition} ({named})"
    if job.time_limit.infinite:
        yield "Set a time limit: a short job fits into gaps that a job without one cannot use"
    elsewhere = [
        it for it in nodes if set(wanted).isdisjoint(it.partitions) and nodestates.state(it.state) == "idle"
    ]
    free = sorted({part for it in elsewhere for part in it.partitions})
    if free:
        yield f"Idle nodes are in other partitions: {', '.join(free[:_NAMED])}"


def _waiting(job: Job, at: str, jobs: Iterable[Job]) -> Gate:
    found = reasons.sentence(job.state_reason, job_id=job.job_id)
    text = f"{found.text} ({job.state_reason or 'None'})"
    if at in {"priority", "resources"} and (place := place_in_queue(job, jobs)):
        text += f"; number {place[0]} of {place[1]} in partition {job.partition}"
    mark = Mark.WAITING if found.outlook is Outlook.PASSES else Mark.REFUSED
    return Gate(at, mark, text, found.remedy or "wait")


def _passed(name: str, job: Job) -> str:
    match name:
        case "eligible":
            return "no dependency, hold or begin time keeps it back"
        case "allowed":
            return f"within the limits of partition {job.partition}{f' and QOS {job.qos}' if job.qos else ''}"
        case "priority":
            return f"priority {_priority(job)}" if job.priority.value else ""
    return ""


def _submitted(job: Job, now: float) -> str:
    when = f"{ago(now - job.submit_time.value)} ago" if job.submit_time.value else ""
    by = f" by {job.user_name}" if job.user_name else ""
    return f"{when}{by} to partition {job.partition}{f', account {job.account}' if job.account else ''}".strip()


def _ended(job: Job) -> Gate:
    text = f"it {jobstates.end(job.job_state).text}"
    code = job.exit_code.return_code.value
    if rows.job_phase(job) == "failed":
        why = f" with exit code {code:.0f}" if code else ""
        return Gate("ended", Mark.REFUSED, f"{text}{why}", reasons.sentence(job.state_reason).remedy)
    return Gate("ended", Mark.PASSED, text)


def _described(job: Job, how: str) -> str:
    return f"job {rows.job_label(job)} of {job.user_name or 'somebody'} {how}"


def _until(job: Job, now: float) -> str:
    end = _latest_end(job)
    if end == float("inf"):
        return "runs, without a time limit"
    return f"runs, and ends in {ago(end - now)} at the latest"


def _latest_end(job: Job) -> float:
    if job.time_limit.infinite or job.time_limit.value is None:
        return float("inf")
    return (job.start_time.value or 0) + job.time_limit.value * 60


def _pending(job: Job) -> bool:
    return jobstates.phase(job.job_state) is Phase.WAITING


def _order(job: Job) -> tuple[float, int]:
    return -(job.priority.value or 0), job.job_id


def _priority(job: Job) -> str:
    return f"{job.priority.value or 0:.0f}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def anonymous(found: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """The same for somebody who may not see others' jobs: how many there are, and nothing of them."""
    count = len(found)
    return (Blocker(0, f"{count} other {'job' if count == 1 else 'jobs'}"),) if found else ()
