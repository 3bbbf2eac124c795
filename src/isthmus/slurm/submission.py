"""The key by which a submitted job is found again when the answer to its submission is lost.

It stands at the end of the job's comment, because that is a field which every user may set, which slurmctld and the
accounts both keep, and which survives requeueing. (`admin_comment` would be safer from the job's owner, but only
root and SlurmUser may set it.) What people wrote into the comment stays in front of it.

Two submissions with one key may both take effect when slurmctld was frozen and works off its backlog later. Then
one is the job, and the others are duplicates to be cancelled. All must choose the same one, or nothing would
be left: one that has begun rather than one that has not, then one that is free to begin rather than one that
`submitter` holds until it is sure, then the oldest. `duplicates` says which are left over. What is to run a second
time needs a new key.
"""

import re
from collections.abc import Iterable, Sequence

from isthmus.errors import Terminal
from isthmus.model.slurm import Job

_MARK = "isthmus-key="
_HELD = "isthmus-held"
_KEY = re.compile(r"[A-Za-z0-9_.:/-]{1,200}", re.ASCII)
_KEY_IN_COMMENT = re.compile(rf"(?:^|\s){_MARK}({_KEY.pattern})$", re.ASCII)
_HOLD_IN_COMMENT = re.compile(rf"(?:^|\s){_HELD} {_MARK}")
_BASE_ID = re.compile(r"([0-9]{1,10})(?:\+([0-9]{1,4})$)?", re.ASCII)
JOB_IDS = 1 << 26
"""Job ids are 26 bits wide; after the last one Slurm begins again."""


def with_key(comment: str | None, key: str) -> str:
    """Put the key behind a comment."""
    if not _KEY.fullmatch(key):
        raise Terminal(
            f"{key[:60]!r} is not a valid submission key", remedy="use up to 200 letters, digits and _ . : / -"
        )
    return f"{comment} {_MARK}{key}" if comment else f"{_MARK}{key}"


def key_of(comment: str | None) -> str | None:
    match = _KEY_IN_COMMENT.search(comment or "")
    return match[1] if match else None


def newer(job_id: int, than: int) -> bool:
    """Whether a job was submitted after another, also when the ids have begun again in between."""
    return 0 < (job_id - than) % JOB_IDS < JOB_IDS // 2


def base_id(text: str) -> int:
    """Take the job id out of `17`, `12_3` (a task of an array) or `10+1` (a component of the heterogeneous job 9).

    `jobs/state` writes the component's own id in front of its offset, where `squeue` has that of the leader.
    """
    match = _BASE_ID.match(text)
    return max(0, int(match[1]) - int(match[2] or 0)) if match else 0


def with_hold(comment: str | None) -> str:
    """Mark the comment of a submission that may be one too many, until that is known."""
    return f"{comment} {_HELD}" if comment else _HELD


def duplicates(jobs: Iterable[Job]) -> list[Job]:
    """The jobs to be cancelled because another one has their key."""
    by_key: dict[str, list[Job]] = {}
    for job in jobs:
        if key := key_of(job.comment):
            by_key.setdefault(key, []).append(job)
    surplus = []
    for same in by_key.values():
        if len(same) > 1:
            best, *others = best_first(same)
            # The tasks of an array have one key between them, and are one job.
            surplus += [job for job in others if job.queue_id != best.queue_id and not job.has_ended]
    return surplus


def best_first(same: Sequence[Job]) -> list[Job]:
    """Put jobs with one key into the order in which they may claim to be the job."""
    # Ids may have begun again, so smaller does not mean older.
    reference = same[0].job_id - JOB_IDS // 2

    def rank(job: Job) -> tuple[bool, float, bool, int]:
        has_begun = bool(job.nodes)
        began = (job.start_time.value or 0) if has_begun else 0
        is_held = _HOLD_IN_COMMENT.search(job.comment or "") is not None
        return not has_begun, began, is_held, (job.job_id - reference) % JOB_IDS

    return sorted(same, key=rank)
