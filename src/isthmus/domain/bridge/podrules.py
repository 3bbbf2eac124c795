"""What to do about a job of ours and its pods, from the binding to the end of both.

    the job lives,  none of its pods does                  end the job, and say in it how the pods ended
    the job lives,  without the node of one of its pods    evict that pod
    the job waits again, or is over, and pods live         evict them
    somebody cancelled the job while its pods waited       evict them, rather than submit what is not wanted
    the job is suspended, or resumed                       tell its pods

Slurm ends the components of a heterogeneous job with its leader, so the pods of all of them decide about that one.

A pod lives until its containers have ended: one that was deleted keeps its job during its grace time, because its
node is still in use. Only if that node is dead is the job ended, since no kubelet would confirm the end of the pod.

Nothing here remembers anything, and what was done once leaves nothing to do: see the tests of properties.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.exitstatus import exit_status
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.bridge.marker import Marker
from isthmus.domain.bridge.outcome import Outcome, Result, outcome
from isthmus.domain.bridge.placement import seat_of
from isthmus.domain.languages import hostlist
from isthmus.model.meta import Key, condition
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job

SUSPENDED_CONDITION: Final = "scheduler.slinky.slurm.net/JobSuspended"
"""On a pod: whether its Slurm job is suspended. Missing if it never was."""

OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
"""On a node: an administrator says that it is off, and that nothing runs there."""

_CONFIRMATION: Final = timedelta(seconds=30)
"""So long after the end of a pod's grace time a dead node still keeps its job: it may come back."""

_COUNTS_WITHIN: Final = 2.0
"""Seconds after its start in which slurmctld begins to count."""


class JobView(msgspec.Struct, frozen=True):
    """A job and all that bears on it."""

    job: Job
    marker: Marker
    now: datetime
    bound: tuple[Pod, ...] = ()
    """Pods that have a node by this job."""
    loose: tuple[Pod, ...] = ()
    """Pods of its group that have no node."""
    departed: tuple[Pod, ...] = ()
    """Pods that it was for and that are gone, as they were last seen."""
    missing: tuple[Key, ...] = ()
    """Pods that it was submitted for and that no cache has shown."""
    elsewhere: tuple[Pod, ...] = ()
    """Of the leader of a heterogeneous job: pods that have a node by its other components."""
    led: bool = False
    """Whether it is a component that ends with its leader."""
    dead_nodes: Collection[str] = ()
    """Kubernetes nodes that are gone or whose kubelet does not answer."""
    slurm_names: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What Kubernetes nodes are called in Slurm."""
    superseded: bool = False
    """Whether the group was recreated under the same name, and has a job of its own."""
    surplus: bool = False
    """Whether another job with the same submission key is the job."""
    withdrawn: bool = False
    """Whether a user cancelled the job (`bridge.withdrawal`)."""


class EndJob(msgspec.Struct, frozen=True):
    """End the job. Pods in `missing` must be looked for first: a cache may be behind."""

    outcome: Outcome
    missing: tuple[Key, ...] = ()
    status: int | None = None
    """The exit status that accounting is to show (`exitstatus`); None if the job is cancelled."""


class Evict(msgspec.Struct, frozen=True):
    """Make a pod leave, because it has no allocation any more; `label` names the cause in metrics."""

    pod: Pod
    reason: str
    message: str
    label: str


class ReportSuspension(msgspec.Struct, frozen=True):
    """Report on a pod that its job is suspended, or no longer."""

    pod: Pod
    suspended: bool
    reason: str
    message: str


Action = EndJob | Evict | ReportSuspension


class Decision(msgspec.Struct, frozen=True):
    """What to do now, and after how many seconds to look again even if nothing changes.

    If it is `doubtful`, the job's state may be older than what its pods say: decide again with a fresh one.
    """

    actions: tuple[Action, ...] = ()
    again: float | None = None
    doubtful: bool = False


NOTHING: Final = Decision()


def decide(view: JobView) -> Decision:
    phase = jobstates.phase(view.job.job_state)
    if phase is Phase.UNKNOWN:
        return NOTHING
    if phase in {Phase.ENDING, Phase.ENDED}:
        end = jobstates.end(view.job.job_state)
        unwanted = _unwanted(view)
        leaving = [pod for pod in (*view.bound, *unwanted) if _stays(pod)]
        return Decision(tuple(_evict(pod, view.job, end) for pod in leaving), doubtful=bool(unwanted))
    held = [pod for pod in view.bound if _holds(pod, view)]
    in_use = held or view.led or any(_holds(pod, view) for pod in view.elsewhere)
    if not in_use and (view.surplus or not _is_awaited(view, phase)):
        has_run = any(pod.bound for pod in (*view.bound, *view.elsewhere, *view.departed))
        return Decision((_end(view),), doubtful=has_run and phase is Phase.WAITING)
    evictions = _without_node(held, view, phase)
    if evictions:
        return Decision(tuple(evictions), doubtful=True)
    return Decision(tuple(_about_suspension(held, view, phase)), again=_next_look((*held, *view.elsewhere), view))


def belongs(pod: Pod, marker: Marker) -> bool:
    """Whether a job with this marker can be the pod's. A label is not enough: any user can write labels.

    Who was there when it was submitted belongs to it, under whatever group's label by now.
    """
    if pod.metadata.namespace != marker.namespace:
        return False
    if marker.group.single:
        return pod.metadata.uid == marker.uid
    return pod.metadata.uid in marker.uids or group_of(pod) == marker.group


def is_seated(pod: Pod, job_id: int, marker: Marker) -> bool:
    """Whether a bound pod can have its node by this job.

    One that joined a gang later, and has another group's label by now, is known by what the binding wrote.
    """
    if belongs(pod, marker):
        return True
    seat = seat_of(pod)
    joined = not marker.group.single and pod.metadata.namespace == marker.namespace
    return joined and seat is not None and seat[0] == job_id == claimed_job(pod)


def claimed_job(pod: Pod) -> int | None:
    """Read the id of the job that a pod's label names."""
    label = pod.metadata.labels.get(names.JOB_ID_LABEL, "")
    return int(label) if label.isascii() and label.isdigit() else None


def true_job(pod: Pod, jobs: Collection[tuple[Job, Marker]]) -> int | None:
    """Find the job of a bound pod among those that it may have: of its group, and the one that its label names.

    It is the one in the pod's label, if that can be. Otherwise somebody has changed the label, and it is the one
    that names the pod's uid: one that lives rather than one that does not, then the youngest.
    """
    candidates = [(job, marker) for job, marker in jobs if is_seated(pod, job.job_id, marker)]
    claimed = claimed_job(pod)
    if any(job.job_id == claimed for job, _ in candidates):
        return claimed
    named = [job for job, marker in candidates if pod.metadata.uid in {marker.uid, *marker.uids}]
    best = max(named, key=lambda job: (jobstates.living(job.job_state), job.job_id), default=None)
    return best.job_id if best else None


def has_id_of_another(job: Job, *, bound: datetime, counts_since: float) -> bool:
    """Whether Slurm gave a job the id of another that it forgot: that of a pod which was bound at that time.

    Such a job is younger than the binding. But both times are whole seconds, and a pod often has its node in the
    second in which its job was submitted. Where they are the same, slurmctld must have started then, too: nothing
    else makes it forget.
    """
    submitted, then = job.submit_time.value or 0, int(bound.timestamp())
    if submitted == then:
        return 0 <= counts_since - then <= _COUNTS_WITHIN
    return submitted > then


def is_dead(node: Node | None) -> bool:
    """Whether no kubelet on this node would confirm the end of a pod."""
    if node is None or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints):
        return True
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status != "True"


def evict_orphan(pod: Pod, job_id: int) -> Evict:
    """Make a pod leave whose job Slurm does not know any more."""
    return _evict(pod, Job(job_id=job_id), jobstates.GONE)


def _stays(pod: Pod) -> bool:
    """Whether a pod runs, or will, and is not being deleted."""
    return not (pod.finished or pod.leaving)


def _holds(pod: Pod, view: JobView) -> bool:
    """Whether a bound pod may still use its node."""
    return not pod.finished and _patience(pod, view) > 0


def _patience(pod: Pod, view: JobView) -> float:
    """For how many seconds a pod keeps its job at least, as far as its node's death would matter."""
    deadline = pod.metadata.deletion_timestamp
    if deadline is None or pod.spec.node_name not in view.dead_nodes:
        return float("inf")
    # Kubernetes sets the timestamp to the end of the grace time, not to its beginning.
    return (deadline + _CONFIRMATION - view.now).total_seconds()


def _next_look(held: Collection[Pod], view: JobView) -> float | None:
    soonest = min((it for pod in held if (it := _patience(pod, view)) > 0), default=float("inf"))
    return soonest if soonest < float("inf") else None


def _is_awaited(view: JobView, phase: Phase) -> bool:
    """Whether pods without a node may still get one by this job.

    Pods that are held by a scheduling gate do not keep nodes that are allocated already.
    """
    if view.superseded:
        return False
    return any(_stays(pod) and (phase is Phase.WAITING or not pod.spec.scheduling_gates) for pod in view.loose)


def _end(view: JobView) -> EndJob:
    if view.surplus:
        return EndJob(Outcome(Result.DELETED, "another job was submitted under the same key"))
    here = (*view.bound, *view.elsewhere)
    told = outcome(here=here, gone=view.departed, missing=view.missing)
    status = exit_status(here=here, gone=view.departed, missing=view.missing)
    return EndJob(told, view.missing, status)


def _unwanted(view: JobView) -> tuple[Pod, ...]:
    """The pods that waited for this job when a user cancelled it."""
    if not view.withdrawn:
        return ()
    return tuple(pod for pod in view.loose if _stays(pod) and pod.metadata.uid in view.marker.uids)


def _without_node(held: Collection[Pod], view: JobView, phase: Phase) -> list[Evict]:
    """The pods whose node is not the job's, though the job lives."""
    job = view.job
    staying = [pod for pod in held if _stays(pod)]
    if phase is Phase.WAITING:
        # A pod is bound only when its job runs: it ran, and was put back.
        return [_evict(pod, job, jobstates.REQUEUED) for pod in staying]
    if phase is not Phase.RUNNING or not job.nodes or not staying:
        return []
    nodes = set(hostlist.expand(job.nodes))
    end = jobstates.REQUEUED if job.restarts else jobstates.MOVED
    return [_evict(pod, job, end) for pod in staying if (on := _slurm_nodes(pod, view)) and nodes.isdisjoint(on)]


def _slurm_nodes(pod: Pod, view: JobView) -> set[str]:
    """The Slurm node of a pod: what it was when it was bound, and what it is now."""
    then = pod.metadata.annotations.get(names.POD_SLURM_NODE_ANNOTATION, "")
    return {name for name in (then, view.slurm_names.get(pod.spec.node_name, "")) if name}


def _about_suspension(held: Collection[Pod], view: JobView, phase: Phase) -> list[ReportSuspension]:
    suspended = phase is Phase.SUSPENDED
    job_id = view.job.job_id
    if suspended:
        reason, text = "SlurmJobSuspended", "is suspended; pods cannot be paused, so this one keeps running"
    else:
        reason, text = "SlurmJobResumed", "is no longer suspended"
    return [
        ReportSuspension(pod, suspended, reason, f"Slurm job {job_id} {text}")
        for pod in held
        if _stays(pod) and _knows_of_suspension(pod) != suspended
    ]


def _knows_of_suspension(pod: Pod) -> bool:
    told = condition(pod.status.conditions, SUSPENDED_CONDITION)
    return told is not None and told.status == "True"


def _evict(pod: Pod, job: Job, end: jobstates.End) -> Evict:
    return Evict(pod, end.reason, f"Slurm job {job.job_id} {end.text}", end.label)
