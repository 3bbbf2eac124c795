"""How long a draining node may finish its jobs, and what happens to them then.

The clock is Slurm's own: a drain of ours says since when. When it has taken longer than the policy allows:

    Wait       nothing; an Event names the jobs
    Requeue    jobs that can be are put back into the queue; the others are waited for
    Cancel     the jobs are ended

A cloud that takes a machine back waits for no job. Whatever the policy, jobs there are put back into the queue when
the time is up that the notice leaves them.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.languages import gotime
from isthmus.domain.languages.hostlist import expand
from isthmus.domain.operator.nodeset.actions import CancelJobs, RequeueJobs, SetDeadline
from isthmus.domain.operator.nodeset.drains import is_occupied, notice_reason, says_leaving
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.errors import Terminal
from isthmus.model.slurm import Job

ASK_AGAIN: Final = 60.0
"""After so many seconds the jobs of nodes that are overdue are read again, though nothing has changed."""

_ON_NODES: Final = frozenset(
    {"RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "STOPPED", "SIGNALING", "RESIZING"}
)
_FAR_AWAY: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a job without a time limit."""

_NAMED: Final = 8


class Overdue(msgspec.Struct, frozen=True):
    """What to do about jobs that delay a drain, and what to report."""

    actions: tuple[RequeueJobs | CancelJobs, ...] = ()
    note: str = ""
    wants_jobs: bool = False
    look_again: float | None = None


def jobs_by_node(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Sort the jobs that hold nodes by the nodes that they hold."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.nodes and not _ON_NODES.isdisjoint(job.job_state):
            for name in expand(job.nodes):
                found.setdefault(name, []).append(job)
    return found


def deadlines(view: View) -> dict[str, datetime]:
    """When the last job on each pod's node ends at the latest, where jobs were read."""
    by_node = jobs_by_node(view.jobs or ())
    ends = {pod.name: [_end(job) for job in by_node.get(pod.slurm_name, ())] for pod in view.pods}
    return {name: max(found) for name, found in ends.items() if found}


def marks(view: View, departing: Collection[str]) -> tuple[SetDeadline, ...]:
    """Annotate pods to delete with the latest end of their jobs, and remove it from the others."""
    ends = deadlines(view)
    changes = []
    for pod in view.pods:
        written = pod.annotations.get(names.POD_DEADLINE_ANNOTATION)
        waits = pod.name in departing and pod.busy and not pod.leaving
        if written and not waits and view.slurm_in_touch:
            changes.append(SetDeadline(pod.name, pod.uid, None))
        elif waits and pod.name in ends and not _says(written, ends[pod.name]):
            changes.append(SetDeadline(pod.name, pod.uid, ends[pod.name]))
    return tuple(changes)


def overdue(view: View, departing: Collection[str]) -> Overdue:
    """Decide about jobs on nodes whose drain takes too long."""
    policy = view.nodeset.spec.drain
    if not policy.timeout or not view.slurm_in_touch:
        return Overdue()
    try:
        allowed = gotime.parse_duration(policy.timeout)
    except Terminal as error:
        return Overdue(note=f"spec.drain.timeout: {error.what}")
    waited = {
        pod.slurm_name: view.now.timestamp() - since
        for pod in view.pods
        if pod.name in departing and not pod.leaving and (since := _draining_since(pod)) is not None
    }
    late = [name for name, seconds in waited.items() if seconds >= allowed]
    if not late:
        return Overdue(look_again=min((allowed - seconds for seconds in waited.values()), default=None))
    if view.jobs is None:
        return Overdue(look_again=view.jobs_in) if view.jobs_in else Overdue(wants_jobs=True)
    return _after_time(view, late)


def taken_back(view: View) -> Overdue:
    """Decide about jobs on machines that go at a certain time, whether their jobs have ended or not."""
    if not view.slurm_in_touch:
        return Overdue()
    left = {pod.slurm_name: seconds for pod in view.pods if (seconds := _left(view, pod)) is not None}
    late = [name for name, seconds in left.items() if seconds <= 0]
    if not late:
        return Overdue(look_again=min(left.values(), default=None))
    if view.jobs is None:
        return Overdue(look_again=view.jobs_in) if view.jobs_in else Overdue(wants_jobs=True)
    by_node = jobs_by_node(view.jobs)
    held = {name: jobs for name in late if (jobs := by_node.get(name))}
    if not held:
        return Overdue(look_again=ASK_AGAIN)
    return _requeued(held, "their machines are being reclaimed", f"NodeSet {view.nodeset.metadata.key}")


def _left(view: View, pod: PodView) -> float | None:
    """How many seconds jobs have before their machine goes; None if there are none, or it does not."""
    notice = pod.notice
    if notice is None or notice.seconds is None or pod.slurm is None or not is_occupied(pod.slurm):
        return None
    if pod.slurm.reason != notice_reason(pod, notice):
        return None  # It is drained first.
    since = pod.slurm.reason_changed_at.value
    return None if since is None else since + notice.seconds - view.now.timestamp()


def _requeued(held: Mapping[str, list[Job]], when: str, who: str) -> Overdue:
    """Requeue jobs that can be, and name the others."""
    all_jobs = {job.job_id: job for jobs in held.values() for job in jobs}
    able = [job_id for job_id, job in all_jobs.items() if job.batch_flag and job.requeue]
    stuck = [job_id for job_id in all_jobs if job_id not in able]
    cleared = tuple(name for name, jobs in held.items() if all(job.job_id in able for job in jobs))
    where = f"{_some(held)} cannot be drained because of {_some(f'job {it}' for it in all_jobs)}"
    note = f"requeueing jobs, as {when}: {where}"
    if stuck:
        note += f"; {_some(f'job {it}' for it in stuck)} cannot be requeued and is waited for"
    actions = (RequeueJobs(tuple(able), f"{who} requeues jobs on nodes, as {when}", cleared),) if able else ()
    return Overdue(actions, note, look_again=ASK_AGAIN)


def _after_time(view: View, late: Iterable[str]) -> Overdue:
    by_node = jobs_by_node(view.jobs or ())
    held = {name: jobs for name in late if (jobs := by_node.get(name))}
    if not held:
        return Overdue(look_again=ASK_AGAIN)  # What is left is cleaning up.
    all_jobs = {job.job_id: job for jobs in held.values() for job in jobs}
    where = f"{_some(held)} cannot be drained because of {_some(f'job {it}' for it in all_jobs)}"
    timeout = view.nodeset.spec.drain.timeout
    match view.nodeset.spec.drain.on_timeout:
        case "Cancel":
            why = f"NodeSet {view.nodeset.metadata.key} cancels jobs on nodes that are drained after {timeout}"
            return Overdue(
                (CancelJobs(tuple(all_jobs), why),),
                f"cancelling jobs after {timeout}: {where}",
                look_again=ASK_AGAIN,
            )
        case "Requeue":
            return _requeued(held, f"a drain takes longer than {timeout}", f"NodeSet {view.nodeset.metadata.key}")
        case _:
            remedy = "end them, or set spec.drain.onTimeout"
            return Overdue(note=f"after {timeout}, {where}: {remedy}", look_again=ASK_AGAIN)


def unmarked(view: View, departing: Collection[str]) -> bool:
    """Whether jobs have to be read to know until when some pod waits."""
    if view.jobs is not None or view.jobs_in or not view.slurm_in_touch:
        return False
    return any(
        pod.name in departing
        and not pod.leaving
        and pod.slurm_has("ALLOCATED", "MIXED")
        and names.POD_DEADLINE_ANNOTATION not in pod.annotations
        for pod in view.pods
    )


def _draining_since(pod: PodView) -> float | None:
    if pod.slurm is None or not is_occupied(pod.slurm) or not says_leaving(pod.slurm.reason):
        return None
    return pod.slurm.reason_changed_at.value


def _end(job: Job) -> datetime:
    end, limit, start = job.end_time.value, job.time_limit.value, job.start_time.value
    if limit is None or limit == float("inf") or not start:
        return _FAR_AWAY
    moment = max(start + 60 * limit, end or 0)
    return datetime.fromtimestamp(int(moment), UTC) if moment < _FAR_AWAY.timestamp() else _FAR_AWAY


def _says(written: str | None, end: datetime) -> bool:
    try:
        return written is not None and datetime.fromisoformat(written) == end
    except (ValueError, TypeError):
        return False


def _some(told: Iterable[str]) -> str:
    """Name a few, and count the rest."""
    everything = list(told)
    rest = f" and {len(everything) - _NAMED} more" if len(everything) > _NAMED else ""
    return ", ".join(everything[:_NAMED]) + rest
