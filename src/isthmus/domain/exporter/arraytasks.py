"""The tasks of job arrays: what they are called, and which of them share a record.

Slurm keeps the tasks of an array that have not begun in one record, and writes them as `1-9,12,20-40:2%4`. An array
may have millions of them, so a set of tasks is a number here, with a bit for each.
"""

import functools
from collections.abc import Iterator
from typing import Final

from isthmus.model.slurm import Job

_CUT: Final = "..."
_MAX_TASK: Final = 4_000_001
"""Slurm takes no greater number (MaxArraySize)."""


def key(job: Job) -> str:
    """Name a job as sacct does: `17`, or `12_3` for the third task of an array."""
    array_id, task = job.array_job_id.value, job.array_task_id.value
    return f"{array_id:.0f}_{task:.0f}" if array_id and task is not None else str(job.job_id)


@functools.lru_cache(maxsize=1024)
def task_mask(text: str) -> int:
    """Read the tasks that share a record. Slurm cuts a long text and ends it in dots."""
    mask = 0
    for item in text.partition("%")[0].strip("[]").split(","):
        span, _, step = item.partition(":")
        low, dash, high = span.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or (step and not step.isdecimal()):
            continue
        first, last = int(low), int(high or low)
        if first > last or last > _MAX_TASK:
            continue
        if step and int(step) > 1:
            mask |= sum(1 << task for task in range(first, last + 1, int(step)))
        else:
            mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


def still_waiting(text: str, before: int) -> int:
    """Which tasks share a record. Tasks behind a cut come to light later; being cut off is not leaving."""
    mask = task_mask(text)
    return mask | (before >> mask.bit_length() << mask.bit_length()) if _CUT in text else mask


def tasks_of(mask: int) -> Iterator[int]:
    """List the tasks of a set, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
