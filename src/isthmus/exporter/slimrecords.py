"""What is kept of a job's record: a few hundred bytes instead of thousands.

What no family and no report shows is left out, and equal values are shared: most jobs of a queue are of a few
users, in a few partitions, and of the same size.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from isthmus.model.slurm import Job
from isthmus.slurm.calls import Answer, present
from isthmus.slurm.client import Client
from isthmus.slurm.errors import Garbled

_MAX_SHARED: Final = 50_000
_PATIENCE: Final = 120.0
"""A list of every job takes slurmctld and slurmrestd seconds."""

_LEFT_OUT: Final[dict[str, Any]] = {
    "scheduled_nodes": None,
    "excluded_nodes": None,
    "comment": None,
    "mcs_label": None,
    "features": None,
    "licenses": None,
    "wckey": None,
    "dependency": None,
    "work_directory": None,
    "resources": None,
}

# Texts, numbers of Slurm and tuples of texts; no plain numbers, since 1 and True are equal.
_SHARED: Final = (
    "state_reason",
    "user_name",
    "mail_user",
    "account",
    "partition",
    "qos",
    "reservation",
    "nodes",
    "flags",
    "array_job_id",
    "array_task_id",
    "het_job_id",
    "het_job_offset",
    "priority",
    "cpus",
    "node_count",
    "time_limit",
    "submit_time",
    "start_time",
    "end_time",
    "eligible_time",
    "preempt_time",
    "suspend_time",
    "ran_before_suspension",
    "deadline",
    "tasks",
    "cpus_per_task",
    "memory_per_node",
    "exit_code",
    "tres_requested",
    "tres_allocated",
)


class Slimmer:
    """Makes records small; remembers values that may come again."""

    def __init__(self, *, keep: Collection[str] = ()) -> None:
        """Leave out what nothing shows, except for the fields in `keep`."""
        self._known: dict[object, object] = {}
        self._left_out = {field: empty for field, empty in _LEFT_OUT.items() if field not in keep}

    def __call__(self, job: Job) -> Job:
        if len(self._known) > _MAX_SHARED:
            self._known.clear()
        # Only where the TRES do not name GPUs is this the place to find them.
        detail = () if "gres/gpu" in job.tres_allocated else job.gres_detail
        shared = {field: self._share(getattr(job, field)) for field in _SHARED}
        return msgspec.structs.replace(job, gres_detail=detail, **shared, **self._left_out)

    def _share(self, value: object) -> object:
        return self._known.setdefault(value, value)


class _Records(Answer, frozen=True):
    jobs: tuple[msgspec.Raw, ...] | None = None


class SlimRecords:
    """Reads records of jobs, and keeps little of each before it reads the next: all at once are 40 MB more."""

    def __init__(self, client: Client, slim: Callable[[Job], Job]) -> None:
        self._client = client
        self._slim = slim
        self._decode = msgspec.json.Decoder(Job).decode

    async def jobs(self) -> list[Job]:
        what = "reading all jobs"
        answer = await self._client.calls.call("GET", "jobs/", _Records, what=what, patience=_PATIENCE)
        try:
            return [self._slim(self._decode(record)) for record in present(answer.jobs, what=what)]
        except msgspec.DecodeError as error:
            raise Garbled(f"{what} failed: a record cannot be decoded ({error})") from error

    async def details(self, ids: Iterable[int]) -> list[Job]:
        return [self._slim(job) for job in await self._client.details(ids)]
