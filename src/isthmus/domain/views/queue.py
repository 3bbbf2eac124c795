"""The queue of both worlds as one list: jobs of Slurm, pods, and pods that are jobs of Slurm, each of them once."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from isthmus.domain.bridge import marker, podrules
from isthmus.domain.bridge.explain import ago
from isthmus.domain.bridge.marker import Marker
from isthmus.domain.views import rows
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job

_ORDER: Final = ("running", "ending", "suspended", "waiting", "unknown", "failed", "cancelled", "completed")
LIVING: Final = frozenset({"running", "ending", "suspended", "waiting", "unknown"})
ALL: Final = "all"

_STATES: Final = {
    "pending": "waiting",
    "pd": "waiting",
    "r": "running",
    "s": "suspended",
    "cg": "ending",
    "completing": "ending",
    "terminating": "ending",
    "cd": "completed",
    "succeeded": "completed",
    "ca": "cancelled",
    "canceled": "cancelled",
    "f": "failed",
}
"""What people of both worlds call a phase."""
_OF_BOTH: Final = ("workload", "phase", "reason", "cpus", "memory", "gpus")
"""Columns of `rows` that an entry takes as they are."""
_OF_JOBS: Final = (*_OF_BOTH, "user", "account", "qos", "priority", "nodes", "hosts", "limit")


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of the queue. Times are seconds since 1970, and 0 where there is none; memory is in bytes."""

    ref: str
    """What `why` and `logs` take: job/12, or pod/NAMESPACE/NAME."""
    kind: str
    """`slurm`, or `pod` for one or several pods, whether Slurm has a job for them or not."""
    job: int = 0
    label: str = ""
    """The job's id as squeue writes it."""
    name: str = ""
    namespace: str = ""
    workload: str = ""
    pods: tuple[str, ...] = ()
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: str = ""
    """As squeue or kubectl calls it."""
    phase: str = ""
    """The same word in both worlds, see `rows.job_phase`."""
    reason: str = ""
    priority: int = 0
    cpus: float = 0
    memory: int = 0
    gpus: int = 0
    nodes: int = 0
    hosts: str = ""
    submitted: int = 0
    started: int = 0
    """For what waits: when Slurm expects it to start."""
    ended: int = 0
    limit: int = 0
    """In seconds; -1 for none, 0 where there is no such thing."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    user: str = ""
    states: tuple[str, ...] = ()
    """Empty for what is not over yet."""
    partition: str = ""
    namespace: str = ""
    """Of pods. What is no pod has none, and is left out if one is asked for."""
    home: str = ""
    """Pods that Slurm does not place are shown if they are in this namespace; empty for those of all."""


def entries(jobs: Iterable[Job], pods: Iterable[Pod], *, now: float) -> tuple[Entry, ...]:
    """All of them, what runs first, and what waits by priority."""
    there = {it.metadata.key: it for it in pods}
    claimed: dict[int, list[Key]] = {}
    for key, pod in there.items():
        if job_id := podrules.claimed_job(pod):
            claimed.setdefault(job_id, []).append(key)
    found: list[Entry] = []
    shown: set[Key] = set()
    for job in jobs:
        mark = marker.read(job.admin_comment)
        keys = claimed.get(job.job_id, [])
        if mark and not job.has_ended:
            keys = [*keys, *(it for it in mark.keys if it not in keys and it in there)]
        shown.update(keys)
        found.append(_job(job, mark, keys, now=now))
    found += [_pod(pod) for key, pod in there.items() if key not in shown]
    return tuple(sorted(found, key=_rank))


def select(found: Iterable[Entry], by: Filter) -> Iterator[Entry]:
    wanted = {_STATES.get(it.lower(), it.lower()) for it in by.states}
    for it in found:
        if (
            it.phase not in LIVING
            if not wanted
            else ALL not in wanted and not wanted & {it.phase, it.state.lower()}
        ):
            continue
        if by.user and it.user != by.user:
            continue
        if by.partition and by.partition not in it.partition.split(","):
            continue
        if by.namespace and it.namespace != by.namespace:
            continue
        if not it.job and by.home and it.namespace != by.home:
            continue
        yield it


def age(entry: Entry, *, now: float) -> str:
    """For how long it runs or waits; of what is over, how long it ran."""
    if entry.phase == "waiting" or not entry.started:
        began, until = entry.submitted, now
    else:
        began, until = entry.started, entry.ended or now
    return short(until - began) if began else "-"


def short(seconds: float) -> str:
    """A duration in one word: 5m, 3h."""
    return ago(seconds).replace(" ", "").replace("min", "m")


def where(entry: Entry) -> str:
    """The last column of squeue: nodes of what has some, the reason of what has none."""
    return entry.hosts or (f"({entry.reason})" if entry.reason else "-")


def _job(job: Job, mark: Marker | None, keys: list[Key], *, now: float) -> Entry:
    row = dict(zip(rows.JOB_COLUMNS, rows.job_row(job, now=now), strict=True))
    pods = tuple(map(str, keys)) or (mark.pods if mark else ())
    return Entry(
        ref=f"job/{job.job_id}",
        kind="pod" if mark else "slurm",
        job=job.job_id,
        label=row["label"],
        name=_name_of_pods(mark, pods) if mark else row["name"],
        namespace=mark.namespace if mark else "",
        pods=pods,
        partition=job.partition or "",
        state=row["state"].upper(),
        submitted=row["submit"],
        started=row["start"],
        ended=row["end"],
        **{it: row[it] for it in _OF_JOBS},
    )


def _name_of_pods(mark: Marker, pods: tuple[str, ...]) -> str:
    return pods[0] if mark.group.single and pods else f"{mark.namespace}/{mark.name}"


def _pod(pod: Pod) -> Entry:
    job_id = podrules.claimed_job(pod)
    row = dict(zip(rows.POD_COLUMNS, rows.pod_row(pod, job_id=job_id, ours=False), strict=True))
    return Entry(
        ref=f"pod/{row['id']}",
        kind="pod",
        job=job_id or 0,
        label=str(job_id) if job_id else "",
        name=row["id"],
        namespace=row["namespace"],
        pods=(row["id"],),
        state=row["state"],
        nodes=1 if row["node"] else 0,
        hosts=row["node"],
        submitted=row["created"],
        started=row["started"],
        **{it: row[it] for it in _OF_BOTH},
    )


def _rank(entry: Entry) -> tuple[int, int, bool, int, str]:
    first = -entry.priority if entry.phase == "waiting" else 0
    return _ORDER.index(entry.phase), first, not entry.job, entry.job, entry.name
