"""What people mean by a job or a pod: `12`, `12_3`, `job/12`, `NAME`, `pod/NAME`, `pod/NAMESPACE/NAME`."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from isthmus.domain.views import rows
from isthmus.errors import Terminal
from isthmus.model.slurm import Job

_JOB: Final = re.compile(r"(\d+)(?:_(\d+)|\+(\d+))?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_KINDS: Final = {"job": "job", "jobs": "job", "pod": "pod", "po": "pod", "pods": "pod"}


class JobTarget(msgspec.Struct, frozen=True):
    text: str

    @property
    def job_id(self) -> int:
        """The id of the job, or of the array or heterogeneous job that it belongs to."""
        return int(re.split(r"[_+]", self.text)[0])


class PodTarget(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    """Empty where it was not given."""


def parse(text: str) -> JobTarget | PodTarget:
    """Read a target. A number is a job, for pods are seldom called so; pod/12 is the pod."""
    head, slash, rest = text.partition("/")
    kind = _KINDS.get(head, "") if slash else ("job" if _JOB.fullmatch(text) else "pod")
    name = rest if slash else text
    if kind == "job" and _JOB.fullmatch(name):
        return JobTarget(name)
    namespace, _, pod = name.rpartition("/")
    if kind == "pod" and _NAME.fullmatch(pod) and (not namespace or _NAME.fullmatch(namespace)):
        return PodTarget(pod, namespace)
    raise Terminal(
        f"{text[:80]!r} is neither a job nor a pod",
        remedy="write 12 or job/12, NAME, pod/NAME or pod/NAMESPACE/NAME",
    )


def find_job(target: JobTarget, jobs: Iterable[Job]) -> Job | None:
    """The record of a job. Of an array or a heterogeneous job without a task: one that has not ended, if any."""
    mine = [it for it in jobs if target.job_id in {it.job_id, it.queue_id}]
    exact = [it for it in mine if rows.job_label(it) == target.text]
    if exact or not target.text.isdigit():
        # Tasks of an array that have not begun have one record together.
        together = [it for it in mine if it.array_tasks and it.array_task_id.value is None]
        return next(iter(exact or together), None)
    return min(mine, key=lambda it: (it.has_ended, it.job_id), default=None)
