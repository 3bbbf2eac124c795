"""External jobs, with their nodes in the answer if they start at once, through `isthmus-complete`.

    submit by slurmrestd       the job is looked at up to a second later, and a second call tells its nodes
    allocate by slurmrestd     the answer comes when the job starts, or the job fails; a second call tells its nodes
    allocate by the helper     the job starts, and the answer tells its nodes; or it waits, as if it were submitted

slurmrestd is asked where the helper cannot be: where that is not there or too old, or does not know the request.
"""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog

from isthmus.model.slurm import JobRequest, Number
from isthmus.slurm.calls import Answer
from isthmus.slurm.errors import AnswerLost, Garbled, Unreachable, failure
from isthmus.slurm.submitter import Submission
from isthmus.slurm.transport import Reply, Transport

log = structlog.get_logger()

_PAUSE: Final = 30.0
"""Seconds for which a helper is left alone that does not answer, or does not know the call."""

EXTERNAL_JOB: Final = "EXTERNAL_JOB"
_EXCLUSIVE: Final = ("none",)
_NO_NICE: Final = 0x80000000
_INFINITE: Final = 0xFFFFFFFF
_PER_CPU: Final = 1 << 63
"""NICE_OFFSET, INFINITE and MEM_PER_CPU of slurm.h."""

_UNKNOWN: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED})
"""How a helper says that it does not know the call: it is an older one, or one for an older Slurm."""


class _Given(Answer, frozen=True):
    job_id: int = 0
    nodes: str = ""


_decode = msgspec.json.Decoder(_Given).decode


class Allocator:
    """The helper, as far as the beginning of jobs is concerned."""

    def __init__(self, transport: Transport, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._not_before = 0.0

    @property
    def available(self) -> bool:
        """Whether the helper is there and knows the call, as far as we know."""
        return self._clock() >= self._not_before

    async def allocate(self, request: JobRequest, *, what: str) -> Submission | None:
        """Make a job. None: slurmctld was not asked, so slurmrestd has to be."""
        described = describe(request) if self.available else None
        if described is None:
            return None
        try:
            reply = await self._transport.request("POST", "/jobs/allocate", body=described)
        except Unreachable as error:
            self.leave_alone(error.what)
            return None
        if reply.status in _UNKNOWN:
            self.leave_alone(f"it answers {reply.status}")
            return None
        if reply.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return None
        return _read(reply, what=what)

    def leave_alone(self, why: str) -> None:
        """Ask slurmrestd for a while."""
        self._not_before = self._clock() + _PAUSE
        log.warning("isthmus-complete allocates no jobs, slurmrestd is asked instead", why=why)


def _read(reply: Reply, *, what: str) -> Submission:
    try:
        given = _decode(reply.body)
    except msgspec.DecodeError as error:
        raise AnswerLost(f"{what} failed: the response cannot be decoded ({error})") from error
    if refusal := failure(what, status=reply.status, problems=given.errors):
        raise refusal
    if not given.job_id:
        raise Garbled(f"{what} gave neither a job id nor an error")
    return Submission(given.job_id, (), given.nodes)


def describe(request: JobRequest) -> dict[str, str | int] | None:
    """Write a request in the fields of job_desc_msg_t; None where it has others than those."""
    if EXTERNAL_JOB not in request.flags:
        return None
    told: dict[str, str | int] = {}
    for name, value in msgspec.structs.asdict(request).items():
        if value is None or value == () or name in _IMPLIED:
            continue
        if name not in _FIELDS or (name == "shared" and value != _EXCLUSIVE):
            return None
        field, write = _FIELDS[name]
        told[field] = write(value)
    return told


def _number(value: Number) -> int:
    return _INFINITE if value.infinite else int(value.number)


_IMPLIED: Final = frozenset({"flags", "environment"})
"""What the helper sets by itself, or what only matters where Slurm itself runs something."""

_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], str | int]]]] = {
    **{
        name: (name, str)
        for name in (
            "account",
            "admin_comment",
            "comment",
            "licenses",
            "mcs_label",
            "name",
            "partition",
            "qos",
            "reservation",
            "tres_per_node",
            "tres_per_task",
            "wckey",
        )
    },
    "constraints": ("features", str),
    "cpus_per_task": ("cpus_per_task", int),
    "current_working_directory": ("work_dir", str),
    "excluded_nodes": ("exc_nodes", ",".join),
    "maximum_nodes": ("max_nodes", int),
    "memory_per_cpu": ("pn_min_memory", lambda value: _PER_CPU | _number(value)),
    "memory_per_node": ("pn_min_memory", _number),
    "minimum_nodes": ("min_nodes", int),
    "nice": ("nice", lambda nice: _NO_NICE + nice),
    "priority": ("priority", _number),
    "requeue": ("requeue", int),
    "shared": ("shared", lambda _exclusive: 0),
    "tasks": ("num_tasks", int),
    "tasks_per_node": ("ntasks_per_node", int),
    "time_limit": ("time_limit", _number),
}
"""The field of job_desc_msg_t for each of a request, and how a value is written there."""
