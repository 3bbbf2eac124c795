"""The key by which a submitted job is found again when the answer to its submission is lost.

It stands at the end of the job's comment, because that is a field which every user may set, which slurmctld and the
accounts both keep, and which survives requeueing. (`admin_comment` would be safer from the job's owner, but only
root and SlurmUser may set it.) What people wrote into the comment stays in front of it.

Two submissions with one key may both take effect when slurmctld was frozen and works off its backlog later. Then
the older job is the job, and the others are duplicates to be cancelled: `duplicates` says which.
"""

import re
from collections.abc import Iterable

from isthmus.errors import Terminal
from isthmus.model.slurm import Job

_MARK = "isthmus-key="
_KEY = re.compile(r"[A-Za-z0-9_.:/-]{1,200}", re.ASCII)
_KEY_IN_COMMENT = re.compile(rf"(?:^|\s){_MARK}({_KEY.pattern})$", re.ASCII)
_BASE_ID = re.compile(r"[0-9]{1,10}", re.ASCII)
_JOB_IDS = 1 << 26
"""Job ids are 26 bits wide; after the last one Slurm begins again."""


def with_key(comment: str | None, key: str) -> str:
    """Put the key behind a comment."""
    if not _KEY.fullmatch(key):
        raise Terminal(f"{key[:60]!r} is no submission key", remedy="use up to 200 letters, digits and _ . : / -")
    return f"{comment} {_MARK}{key}" if comment else f"{_MARK}{key}"


def key_of(comment: str | None) -> str | None:
    """Find the key in a comment."""
    match = _KEY_IN_COMMENT.search(comment or "")
    return match[1] if match else None


def newer(job_id: int, than: int) -> bool:
    """Tell whether a job was submitted after another, also when the ids have begun again in between."""
    return 0 < (job_id - than) % _JOB_IDS < _JOB_IDS // 2


def base_id(text: str) -> int:
    """Take the job id out of `17`, `12_3` (a task of an array) or `9+1` (a part of a heterogeneous job)."""
    match = _BASE_ID.match(text)
    return int(match[0]) if match else 0


def duplicates(jobs: Iterable[Job]) -> list[Job]:
    """Name the jobs whose key an older one has already: of those with one key, the oldest is the job."""
    firsts: dict[str, Job] = {}
    surplus = []
    for job in jobs:
        key = key_of(job.comment)
        if key is None:
            continue
        first = firsts.setdefault(key, job)
        if newer(first.job_id, job.job_id):
            firsts[key] = job
            surplus.append(first)
        elif first is not job:
            surplus.append(job)
    return surplus
