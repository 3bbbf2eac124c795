"""Where a pod stands on its way from being created to running: gate by gate, why, and what one can do.

    created ─ admitted ─ ungated ─ complete ─ allowed ─ nodes ─ submitted ─ queue ─ allocated ─ volumes ─ devices
            ─ room ─ bound ─ running

All that is known about the pod comes in as `Facts`; what could not be looked at is among them, with the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.bridge import jobstates, reasons
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.bridge.placement import Demand
from isthmus.domain.bridge.reasons import Outlook
from isthmus.domain.languages import hostlist
from isthmus.model.base import EMPTY
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Mark(StrEnum):
    """The state of a gate."""

    PASSED = "passed"
    WAITING = "waiting"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It could not be looked at."""
    AHEAD = "ahead"
    """It is not this gate's turn yet."""


class Gate(msgspec.Struct, frozen=True):
    """One step on the way, its state, and what to do about it."""

    name: str
    mark: Mark
    text: str = ""
    remedy: str = ""


class Trouble(msgspec.Struct, frozen=True):
    what: str
    remedy: str = ""


class Devices(msgspec.Struct, frozen=True):
    """What the claims of a pod have, or else what they wait for, and whether that needs somebody's help."""

    held: str = ""
    waiting: str = ""
    remedy: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    scheduler_name: str
    now: float
    """Seconds since 1970."""
    managed: bool = False
    """Whether new pods in its namespace are given to Slurm."""
    group: GroupKey
    members: tuple[Pod, ...] = ()
    demand: Demand | None = None
    gang: Trouble | None = None
    """Why the group is not known."""
    policy: str = ""
    """The BridgePolicy that holds; empty where none does."""
    refusal: Trouble | None = None
    """Why what the pod asks for cannot be sent to Slurm."""
    fit: int = 0
    nodes: str = ""
    """How many nodes fit, and why the others do not."""
    job: Job | None = None
    place: tuple[int, int] | None = None
    """Its place among the jobs that wait in its partition, and how many those are."""
    kube_nodes: Mapping[str, str] = EMPTY
    """What the nodes that Slurm gave are in Kubernetes."""
    blocks: Mapping[str, str] = EMPTY
    """In which block of the network each of them stands, where that is known."""
    volumes: str = ""
    """What its volumes wait for."""
    devices: Devices | None = None
    """Of a pod with claims on devices."""
    room: str = ""
    """What the node that Slurm gave lacks in Kubernetes."""
    blind: Mapping[str, str] = EMPTY
    """Gates that could not be looked at, and why."""


def gates(facts: Facts) -> tuple[Gate, ...]:
    """The state of each gate. Those behind a closed one are ahead, unless their state is known already."""
    found: list[Gate] = []
    closed = False
    for name, look in _GATES.items():
        if name == "devices" and facts.devices is None:
            continue
        gate = _look(facts, name, look)
        if closed and gate.mark in {Mark.WAITING, Mark.UNKNOWN} and not gate.remedy:
            gate = Gate(name, Mark.AHEAD)
        closed = closed or gate.mark is not Mark.PASSED
        found.append(gate)
        if name == "admitted" and gate.mark is Mark.REFUSED:
            break
    return tuple(found)


def place_in_queue(job: Job, jobs: Iterable[Job]) -> tuple[int, int] | None:
    """A waiting job's place in its partition, where Slurm goes by priority, and how many wait there."""
    if not _pending(job):
        return None
    waiting = [it for it in jobs if _pending(it) and it.partition == job.partition and it.priority.value != 0]
    if all(it.job_id != job.job_id for it in waiting):
        return None
    ahead = sum(1 for it in waiting if _order(it) < _order(job))
    return ahead + 1, len(waiting)


def ago(seconds: float) -> str:
    """Put a duration in words, roughly."""
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def _look(facts: Facts, name: str, look: Callable[[Facts], Gate]) -> Gate:
    if name in facts.blind:
        # A pod that has a node came through here, whether we can see that or not.
        past = facts.pod.bound and name not in {"bound", "running"}
        told = _told(facts.pod) if name == "submitted" and not past else ""
        text = f"unknown: {facts.blind[name]}{f'; last known: {told}' if told else ''}"
        return Gate(name, Mark.PASSED if past else Mark.UNKNOWN, text)
    return look(facts)


def _created(facts: Facts) -> Gate:
    meta = facts.pod.metadata
    when = f"{ago(facts.now - meta.creation_timestamp.timestamp())} ago" if meta.creation_timestamp else ""
    by = f", by {meta.controller.kind} {meta.controller.name}" if meta.controller else ""
    if facts.pod.leaving and not facts.pod.bound:
        return Gate("created", Mark.REFUSED, f"{when}{by}; it is being deleted")
    return Gate("created", Mark.PASSED, f"{when}{by}{'; it is being deleted' if facts.pod.leaving else ''}")


def _admitted(facts: Facts) -> Gate:
    spec = facts.pod.spec
    if spec.scheduler_name == facts.scheduler_name:
        tolerates = any(
            it.key in {names.MANAGED_TAINT, ""} for it in spec.tolerations if it.operator == "Exists" or it.key
        )
        also = ", the taint of Slurm's nodes is tolerated" if tolerates else ""
        return Gate("admitted", Mark.PASSED, f"its scheduler is {facts.scheduler_name}{also}")
    text = f"its scheduler is {spec.scheduler_name or 'none'}, so Slurm does not place it"
    if facts.managed:
        return Gate(
            "admitted",
            Mark.REFUSED,
            f"{text}, although namespace {facts.pod.metadata.namespace} is managed",
            "create the pod again: it is older than the setting, or sets another schedulerName itself",
        )
    return Gate(
        "admitted",
        Mark.REFUSED,
        text,
        f"set spec.schedulerName to {facts.scheduler_name}, or create it in a managed namespace",
    )


def _ungated(facts: Facts) -> Gate:
    if held := [gate.name for gate in facts.pod.spec.scheduling_gates]:
        return Gate(
            "ungated",
            Mark.WAITING,
            f"held back by {', '.join(held)}",
            "wait until the controllers that set these scheduling gates remove them",
        )
    return Gate("ungated", Mark.PASSED, "no scheduling gates")


def _complete(facts: Facts) -> Gate:
    if facts.group.single:
        return Gate("complete", Mark.PASSED, "it is placed alone")
    if facts.gang or facts.demand is None:
        trouble = facts.gang or Trouble(f"{facts.group} is not known")
        return Gate("complete", Mark.WAITING, trouble.what, trouble.remedy)
    living = [pod for pod in facts.members if not pod.finished and not pod.leaving]
    there = sum(1 for pod in living if not pod.spec.scheduling_gates)
    needed = facts.demand.minimum
    text = f"{there} of {needed} pods of {facts.group} exist"
    if there >= needed or facts.pod.bound:
        return Gate("complete", Mark.PASSED, text)
    gated = len(living) - there
    return Gate(
        "complete",
        Mark.WAITING,
        f"{text}{f', {gated} more are held back' if gated else ''}",
        f"see kubectl get pods -n {facts.group.namespace} for those that are missing",
    )


def _allowed(facts: Facts) -> Gate:
    if facts.refusal:
        return Gate("allowed", Mark.REFUSED, facts.refusal.what, facts.refusal.remedy)
    by = (
        f"BridgePolicy {facts.policy}"
        if facts.policy
        else "Slurm's own limits: no BridgePolicy applies to this namespace"
    )
    return Gate("allowed", Mark.PASSED, f"by {by}")


def _nodes(facts: Facts) -> Gate:
    if facts.fit or facts.pod.bound:
        return Gate("nodes", Mark.PASSED, facts.nodes)
    return Gate(
        "nodes",
        Mark.REFUSED,
        facts.nodes or "there is no node",
        "change what the pod asks of nodes, or the nodes: label, untaint, uncordon, free or register them in Slurm",
    )


def _submitted(facts: Facts) -> Gate:
    job = facts.job
    if job is None:
        if facts.pod.bound:
            return Gate("submitted", Mark.PASSED, "its job is over, and Slurm has forgotten it")
        told = _told(facts.pod)
        return Gate("submitted", Mark.WAITING, f"it has no job in Slurm{f': {told}' if told else ' yet'}")
    details = [f"to partition {job.partition}"] if job.partition else []
    details += [f"account {job.account}"] if job.account else []
    details += [f"as {job.user_name}"] if job.user_name else []
    if job.het_job_id.value:
        details.append(f"component {job.het_job_offset.value or 0:.0f} of heterogeneous job {job.queue_id}")
    return Gate("submitted", Mark.PASSED, f"job {job.job_id} {', '.join(details)}".rstrip())


def _queue(facts: Facts) -> Gate:
    job = facts.job
    if job is None:
        return Gate("queue", Mark.PASSED if facts.pod.bound else Mark.WAITING)
    match jobstates.phase(job.job_state):
        case Phase.ENDING | Phase.ENDED:
            mark = Mark.PASSED if facts.pod.finished else Mark.REFUSED
            return Gate("queue", mark, f"job {job.job_id} {jobstates.end(job.job_state).text}")
        case Phase.SUSPENDED:
            return Gate("queue", Mark.WAITING, "the job is suspended", f"scontrol resume {job.job_id}")
        case Phase.RUNNING:
            started = job.start_time.value
            booting = "" if jobstates.running(job.job_state) else ", its nodes are being prepared"
            return Gate("queue", Mark.PASSED, f"started {ago(facts.now - (started or facts.now))} ago{booting}")
        case Phase.UNKNOWN:
            return Gate("queue", Mark.UNKNOWN, f"the job is {'+'.join(job.job_state) or 'in an unknown state'}")
    reason = reasons.sentence(job.state_reason, job_id=job.job_id)
    text = ", ".join([f"waits because {reason.text} ({job.state_reason or 'None'})", *_prospects(facts, job)])
    mark = Mark.WAITING if reason.outlook is Outlook.PASSES else Mark.REFUSED
    return Gate("queue", mark, text, reason.remedy or "wait")


def _prospects(facts: Facts, job: Job) -> Iterator[str]:
    if facts.place:
        yield f"number {facts.place[0]} of {facts.place[1]} in partition {job.partition}"
    if priority := job.priority.value:
        yield f"priority {priority:.0f}"
    if when := reasons.expected_start(job, now=facts.now):
        yield f"expected to start in {ago(when.timestamp() - facts.now)} ({when:%Y-%m-%d %H:%M} UTC)"
    elif (job.start_time.value or 0) > facts.now:
        yield "with no estimated start, since jobs ahead of it have no time limit"


def _allocated(facts: Facts) -> Gate:
    pod = facts.pod
    if facts.job and facts.job.nodes and not _pending(facts.job):
        unmapped = [name for name, kube in facts.kube_nodes.items() if not kube]
        if unmapped:
            return Gate(
                "allocated",
                Mark.WAITING,
                f"Slurm gave {facts.job.nodes}; {', '.join(unmapped)} is not a node of this Kubernetes cluster",
                f"label the node {names.NODE_NAME_LABEL}, or take it out of the partition",
            )
        renamed = ", ".join(f"{name} is {kube}" for name, kube in facts.kube_nodes.items() if kube != name)
        text = f"{facts.job.nodes}{f' ({renamed})' if renamed else ''}"
        return Gate("allocated", Mark.PASSED, "; ".join(filter(None, (text, _blocks(facts.blocks)))))
    given = pod.metadata.annotations.get(names.POD_SLURM_NODE_ANNOTATION, "")
    return Gate("allocated", Mark.PASSED if pod.bound else Mark.WAITING, given)


def _blocks(blocks: Mapping[str, str]) -> str:
    """Put into words how close its nodes are to each other."""
    found: dict[str, list[str]] = {}
    for node, block in blocks.items():
        found.setdefault(block, []).append(node)
    return ", ".join(f"{hostlist.fold(nodes)} in block {block}" for block, nodes in sorted(found.items()))


def _volumes(facts: Facts) -> Gate:
    if facts.volumes and not facts.pod.bound:
        return Gate("volumes", Mark.WAITING, facts.volumes, "see kubectl describe pvc")
    return Gate("volumes", Mark.PASSED, "ready" if facts.pod.spec.volumes else "none")


def _devices(facts: Facts) -> Gate:
    found = facts.devices or Devices()
    if found.held:
        return Gate("devices", Mark.PASSED, found.held)
    return Gate("devices", Mark.PASSED if facts.pod.bound else Mark.WAITING, found.waiting, found.remedy)


def _room(facts: Facts) -> Gate:
    if facts.room and not facts.pod.bound:
        return Gate(
            "room", Mark.WAITING, facts.room, "wait until pods there have terminated, or see kubectl describe node"
        )
    reached = facts.pod.bound or (facts.job is not None and not _pending(facts.job))
    return Gate("room", Mark.PASSED if reached else Mark.WAITING)


def _bound(facts: Facts) -> Gate:
    if facts.pod.bound:
        return Gate("bound", Mark.PASSED, f"to {facts.pod.spec.node_name}")
    return Gate("bound", Mark.WAITING, _told(facts.pod))


def _running(facts: Facts) -> Gate:
    pod, status = facts.pod, facts.pod.status
    why = ": ".join(filter(None, (status.reason, status.message)))
    match status.phase:
        case "Running":
            return Gate("running", Mark.PASSED, "it runs")
        case "Succeeded":
            return Gate("running", Mark.PASSED, "it has succeeded")
        case "Failed":
            return Gate("running", Mark.REFUSED, f"it has failed{f': {why}' if why else ''}", _logs(pod))
    if not pod.bound:
        return Gate("running", Mark.WAITING)
    text = f"waiting for the kubelet of {pod.spec.node_name} to start it{f': {why}' if why else ''}"
    return Gate(
        "running", Mark.WAITING, text, f"see kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
    )


def _logs(pod: Pod) -> str:
    return f"see kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"


def _told(pod: Pod) -> str:
    """The latest message of the scheduler for the pod."""
    told = (it.message for it in pod.status.conditions if it.type == "PodScheduled" and it.status == "False")
    return next(told, "")


def _pending(job: Job) -> bool:
    return jobstates.phase(job.job_state) is Phase.WAITING


def _order(job: Job) -> tuple[float, int]:
    return -(job.priority.value or 0), job.job_id


_GATES: Final[Mapping[str, Callable[[Facts], Gate]]] = {
    "created": _created,
    "admitted": _admitted,
    "ungated": _ungated,
    "complete": _complete,
    "allowed": _allowed,
    "nodes": _nodes,
    "submitted": _submitted,
    "queue": _queue,
    "allocated": _allocated,
    "volumes": _volumes,
    "devices": _devices,
    "room": _room,
    "bound": _bound,
    "running": _running,
}
