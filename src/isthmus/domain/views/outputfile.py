"""Where a batch job writes: Slurm's patterns in the name of the file, put out in full.

Newer Slurms tell the pattern (`slurm-%j.out`), older ones the file itself, in which nothing is left to replace.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from isthmus.domain.languages import hostlist
from isthmus.errors import Terminal
from isthmus.model.slurm import Job

_PATTERN: Final = re.compile(r"%(\d{0,2})([%AabJjNnstux])", re.ASCII)
_MOST_DIGITS: Final = 10
_MERGED: Final = 10
"""%b is the task modulo this."""


def output_file(job: Job) -> str:
    """The file of standard output; empty for a job that writes none, such as one of pods."""
    name = job.standard_output or ""
    if not name or not job.batch_flag:
        return ""
    if "\\" in name:
        name = name.replace("\\", "")  # it says that nothing is to be replaced
    else:
        values = _values(job)
        name = _PATTERN.sub(lambda found: _value(found, values), name)
    return str(PurePosixPath(job.work_directory or "/", name))


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    width, letter = found[1], found[2]
    value = values[letter]
    return value.zfill(min(int(width), _MOST_DIGITS)) if width and value.isdigit() else value


def _values(job: Job) -> dict[str, str]:
    task = job.array_task_id.value
    return {
        "%": "%",
        "A": str(job.queue_id if job.array_job_id.value else job.job_id),
        "a": f"{task:.0f}" if task is not None else "4294967294",
        "b": f"{task % _MERGED:.0f}" if task is not None else "4",
        "J": str(job.job_id),
        "j": str(job.job_id),
        "N": _first_host(job),
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user_name or "",
        "x": job.name or "",
    }


def _first_host(job: Job) -> str:
    try:
        return next(iter(hostlist.expand(job.nodes or "")), "").partition(".")[0]
    except Terminal:  # a list that we cannot read names nobody
        return ""
