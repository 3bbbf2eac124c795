"""The calls to slurmctld, one method each.

Methods return what Slurm answered or raise what `errors` makes of it; none repeats a request by itself, except that
reading continues with the next slurmrestd and that `submit` makes sure of exactly one job.
"""

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from isthmus.domain.languages.slurmconf import Directive
from isthmus.errors import IsthmusError, Terminal, Wait
from isthmus.model.slurm import (
    NOTHING,
    Job,
    JobRequest,
    JobState,
    License,
    Node,
    NodeChange,
    Number,
    Partition,
    Ping,
    Reservation,
    ReservationRequest,
    Share,
    Statistics,
)
from isthmus.slurm.allocation import EXTERNAL_JOB, Allocator
from isthmus.slurm.auth import TokenSource
from isthmus.slurm.calls import PATIENCE, Answer, Calls, in_path, in_query, present
from isthmus.slurm.errors import ControllerAway, ControllerUnreached, Garbled, NotFound, Problem, failure
from isthmus.slurm.submission import with_key
from isthmus.slurm.submitter import Submission, Submitter
from isthmus.slurm.transport import Observe, Transport
from isthmus.slurm.versions import Feature, Server
from isthmus.tasks import TaskGroup

_SIGNALS = frozenset(
    {
        "HUP",
        "INT",
        "QUIT",
        "ABRT",
        "KILL",
        "ALRM",
        "TERM",
        "USR1",
        "USR2",
        "URG",
        "CONT",
        "STOP",
        "TSTP",
        "TTIN",
        "TTOU",
    }
)
"""The signals that Slurm knows by name; others are sent by their number."""

_DETAILS_AT_ONCE = 8
_LONG_PATIENCE = 120.0
"""A list of every job takes slurmctld and slurmrestd seconds."""

_IDS_PER_REQUEST = 200
"""Keeps the request line below the 8 KiB that servers of HTTP expect."""


class _Submitted(Answer, frozen=True):
    job_id: int = 0


class _StatusError(msgspec.Struct, frozen=True):
    code: int = 0
    string: str | None = None


class _Status(msgspec.Struct, frozen=True):
    error: _StatusError = _StatusError()


class _Signalled(Answer, frozen=True):
    status: tuple[_Status, ...] = ()


class _Jobs(Answer, frozen=True):
    jobs: tuple[Job, ...] | None = None


class _JobStates(Answer, frozen=True):
    jobs: tuple[JobState, ...] | None = None


class _StatesText(Answer, frozen=True):
    jobs: msgspec.Raw = msgspec.Raw(b"null")


class _Nodes(Answer, frozen=True):
    nodes: tuple[Node, ...] | None = None
    last_update: Number = NOTHING


class _Partitions(Answer, frozen=True):
    partitions: tuple[Partition, ...] = ()


class _Reservations(Answer, frozen=True):
    reservations: tuple[Reservation, ...] = ()


class _Licenses(Answer, frozen=True):
    licenses: tuple[License, ...] | None = None


class _ShareList(msgspec.Struct, frozen=True):
    shares: tuple[Share, ...] | None = None


class _Shares(Answer, frozen=True):
    shares: _ShareList = _ShareList()


class _PortionGres(msgspec.Struct, frozen=True):
    name: str
    type: str | None = None
    count: int = 0
    index: str | None = None

    def __str__(self) -> str:
        """Write it as the record of a job does."""
        kind = f"{self.name}:{self.type}" if self.type else self.name
        return f"{kind}:{self.count}(IDX:{self.index})" if self.index else f"{kind}(CNT:{self.count})"


class _Portion(msgspec.Struct, frozen=True):
    node: str
    gres: tuple[_PortionGres, ...] | None = None
    core_bitmap: str | None = None
    sockets_per_node: int = 0
    cores_per_socket: int = 0


class Portion(NamedTuple):
    """A node of a job, and which GRES the job has there, as in `Job.gres_detail`."""

    node: str
    gres: str
    core_bitmap: str
    """Which of its cores, hexadecimal."""
    cores: int
    """How many cores the node has."""


class _Portions(Answer, frozen=True):
    nodes: tuple[_Portion, ...] | None = None


class _Pings(Answer, frozen=True):
    pings: tuple[Ping, ...] = ()


class _Diagnosis(Answer, frozen=True):
    statistics: Statistics = Statistics()


class NodeList(NamedTuple):
    """Every node, and the second (of slurmctld's clock) of the last change that the list contains."""

    nodes: tuple[Node, ...]
    last_update: int


@asynccontextmanager
async def connect(
    endpoints: Sequence[str],
    tokens: TokenSource,
    *,
    tls: ssl.SSLContext | None = None,
    observe: Observe | None = None,
    allocator: Allocator | None = None,
) -> AsyncIterator["Client"]:
    """Make a client of the slurmrestd at these endpoints, and close its connections in the end."""
    async with Transport(endpoints, tokens, tls=tls, observe=observe) as transport:
        yield Client(Calls(transport), allocator=allocator)


class Client:
    """The calls to slurmctld; external jobs are asked of an `allocator`, where there is one."""

    def __init__(self, calls: Calls, *, allocator: Allocator | None = None) -> None:
        self.calls = calls
        self._allocator = allocator
        self._submitter = Submitter(self)

    async def server(self) -> Server:
        return await self.calls.server()

    async def ping(self) -> tuple[Ping, ...]:
        """Ask slurmrestd which slurmctld answer. This works while none does."""
        return (await self.calls.call("GET", "ping/", _Pings, what="pinging slurmctld")).pings

    async def diagnose(self) -> Statistics:
        """Read slurmctld's statistics."""
        return (await self.calls.call("GET", "diag/", _Diagnosis, what="reading the statistics")).statistics

    async def licenses(self) -> tuple[License, ...]:
        what = "reading the licences"
        return present((await self.calls.call("GET", "licenses/", _Licenses, what=what)).licenses, what=what)

    async def shares(self) -> tuple[Share, ...]:
        """Read the fair share of every association; nothing where Slurm has no accounting."""
        answer = await self.calls.call("GET", "shares", _Shares, what="reading the fair shares")
        return answer.shares.shares or ()

    async def reconfigure(self) -> None:
        """Let slurmctld and the nodes read their configuration again."""
        await self.calls.call("GET", "reconfigure/", Answer, what="reconfiguring")

    # Jobs

    async def job_states(
        self, ids: Iterable[int] | None = None, *, patience: float = PATIENCE
    ) -> tuple[JobState, ...]:
        """Read the states of the jobs with these ids, or (None) of all: a hundredth of what `jobs` costs.

        Ids that Slurm does not know (any more) are missing from the answer.
        """
        if ids is None:
            return await self._job_states("", patience=patience)
        wanted = list(ids)
        states: list[JobState] = []
        for start in range(0, len(wanted), _IDS_PER_REQUEST):
            query = urlencode([("job_id", job_id) for job_id in wanted[start : start + _IDS_PER_REQUEST]])
            states.extend(await self._job_states(f"?{query}", patience=patience))
        return tuple(states)

    async def job_states_text(self, ids: Iterable[int] = (), *, patience: float = PATIENCE) -> bytes:
        """Read states, of these jobs or of all, as the JSON list that Slurm wrote: to compare it before reading it.

        Ask for a few hundred ids at most, since all of them stand in the first line of the request.
        """
        what = "reading the states of jobs"
        query = _query_of_ids(tuple(ids))
        path = f"jobs/state/?{query}" if query else "jobs/state/"
        answer = await self.calls.call("GET", path, _StatesText, what=what, patience=patience)
        text = bytes(answer.jobs)
        if not text.startswith(b"["):
            raise Garbled(f"{what} failed: the response contains no list")
        return text

    async def _job_states(self, query: str, *, patience: float) -> tuple[JobState, ...]:
        answer = await self.calls.call(
            "GET", f"jobs/state/{query}", _JobStates, what="reading the states of jobs", patience=patience
        )
        return present(answer.jobs, what="reading the states of jobs")

    async def jobs(self) -> tuple[Job, ...]:
        """Read every job in full. Costs slurmctld about half a millisecond a job: for a start, not for a loop."""
        answer = await self.calls.call("GET", "jobs/", _Jobs, what="reading all jobs", patience=_LONG_PATIENCE)
        return present(answer.jobs, what="reading all jobs")

    async def job(self, job_id: int) -> tuple[Job, ...]:
        """Read one job in full; of an array, every task that has a record of its own."""
        what = f"reading job {job_id}"
        answer = await self.calls.call("GET", f"job/{job_id:d}", _Jobs, what=what)
        if not answer.jobs:
            raise NotFound(f"{what} failed: Slurm does not know it (any more)")
        return answer.jobs

    async def submit(self, request: JobRequest, *more: JobRequest, key: str) -> Submission:
        """Submit a job so that exactly one exists with this key, whatever happens to requests and answers.

        With `more` it is a heterogeneous job, of which these are the further components.

        When an answer is lost, the job is looked for by its key, and submitted again only if it is not there; then
        this takes a quarter of a minute, for `submitter` lets no second job begin sooner. If Slurm is away for
        longer, this raises; calling it again with the same key begins by looking.
        """
        return await self._submitter.submit(request, *more, key=key)

    @property
    def allocates(self) -> bool:
        """Whether a plain external job starts when it is submitted, if it can, and its nodes are in the answer."""
        return self._allocator is not None and self._allocator.available

    def note_newest(self, job_id: int) -> None:
        """Say which job was the newest a while ago, 0 if that is not known: `submit` lists no jobs to find out."""
        self._submitter.note_newest(job_id)

    def forget_submission(self, key: str) -> None:
        """Record that `submit` will not be called again with this key, even if it failed the last time."""
        self._submitter.forget(key)

    async def submit_once(self, request: JobRequest, *more: JobRequest, key: str) -> Submission:
        """Submit a job and leave it at that: what a lost answer means is up to the caller."""
        if EXTERNAL_JOB in request.flags:
            (await self.calls.server()).require(Feature.EXTERNAL_COMPONENTS if more else Feature.EXTERNAL_JOBS)
        if request.group_id and not request.group_id.isdecimal():
            (await self.calls.server()).require(Feature.GROUP_NAMES)
        marked = [msgspec.structs.replace(it, comment=with_key(it.comment, key)) for it in (request, *more)]
        what = f"submitting job {request.name or key!r}"
        refusal: IsthmusError | None = None
        if self._allocator and not more:
            try:
                if given := await self._allocator.allocate(marked[0], what=what):
                    return given
            except (Terminal, Wait, ControllerUnreached) as error:
                # slurmrestd has the last word: it may reach slurmctld where the helper does not, and may be newer.
                refusal = error
        # A batch job is looked at by slurmctld's next round, up to a second later; an allocation at once.
        path = "job/allocate" if request.immediate else "job/submit"
        body = {"jobs": marked} if more else {"job": marked[0]}
        answer = await self.calls.call("POST", path, _Submitted, what=what, body=body)
        if not answer.job_id:
            raise Garbled(f"{what} gave neither a job id nor an error")
        if self._allocator and refusal:
            self._allocator.leave_alone(str(refusal))
        return Submission(answer.job_id, tuple(str(warning) for warning in answer.warnings))

    async def details(self, ids: Iterable[int]) -> list[Job]:
        """Read several jobs in full, a few at a time; jobs that are gone are left out."""
        gate = asyncio.Semaphore(_DETAILS_AT_ONCE)

        async def read(job_id: int) -> tuple[Job, ...]:
            async with gate:
                try:
                    return await self.job(job_id)
                except NotFound:
                    return ()

        try:
            async with TaskGroup() as group:
                reads = [group.create_task(read(job_id)) for job_id in ids]
        except* IsthmusError as failures:
            # One is enough: they have one cause, and callers decide by the class.
            raise _first(failures) from None
        return [job for finished in reads for job in finished.result()]

    async def nodes_of(self, job_id: int) -> tuple[Portion, ...]:
        """Read which nodes a running job has, in Slurm's order: at a third of what its full record costs."""
        (await self.calls.server()).require(Feature.ALLOCATIONS)
        what = f"reading the nodes of job {job_id}"
        answer = await self.calls.call("GET", f"resources/{job_id:d}", _Portions, what=what)
        return tuple(
            Portion(
                it.node,
                ",".join(map(str, it.gres or ())),
                it.core_bitmap or "",
                it.sockets_per_node * it.cores_per_socket,
            )
            for it in present(answer.nodes, what=what)
        )

    async def update_job(self, job_id: int, change: JobRequest) -> None:
        await self.calls.call("POST", f"job/{job_id:d}", Answer, what=f"changing job {job_id}", body=change)

    async def cancel_job(self, job_id: int, *, signal: str | None = None, batch: bool = False) -> None:
        """End a job, or send a signal such as TERM or USR1 to its processes.

        With `batch` the signal surely reaches the batch script and what it has started, so that a script with a
        `trap` can end the job with the exit code of its choice even while it waits for a `sleep`.

        Before v0.0.42, Slurm says nothing if there is no such job or if it is over.
        """
        what = f"sending {signal} to job {job_id}" if signal else f"cancelling job {job_id}"
        if signal and signal not in _SIGNALS and not signal.isdecimal():
            # slurmrestd would cancel the job.
            raise Terminal(
                f"{what} failed: Slurm does not support this signal", remedy=f"use {', '.join(sorted(_SIGNALS))}"
            )
        # BATCH_JOB would be for the shell alone, which heeds a signal only after its present command.
        parameters = {"signal": signal, "flags": "FULL_JOB" if batch else None}
        query = urlencode({name: value for name, value in parameters.items() if value})
        path = f"job/{job_id:d}?{query}" if query else f"job/{job_id:d}"
        answer = await self.calls.call("DELETE", path, _Signalled, what=what)
        # This call reports its failures in a place of its own, under a status of success.
        problems = [Problem(error_number=status.error.code, error=status.error.string) for status in answer.status]
        if error := failure(what, status=HTTPStatus.OK, problems=[it for it in problems if it.error_number]):
            raise error

    async def requeue_job(self, job_id: int) -> None:
        """Put a running job back into the queue. One that waits already, or may not be requeued, is refused."""
        (await self.calls.server()).require(Feature.REQUEUE)
        await self.calls.call("GET", f"job/{job_id:d}/requeue", Answer, what=f"requeueing job {job_id}")

    # Nodes

    async def nodes(self, *, newer_than: int | None = None, patience: float = PATIENCE) -> NodeList | None:
        """Read every node, or nothing (None) if none changed at or after the second `newer_than`."""
        query = "" if newer_than is None else f"?update_time={in_query(newer_than)}"
        try:
            answer = await self.calls.call_if_changed(
                "GET", f"nodes/{query}", _Nodes, what="reading all nodes", patience=patience
            )
        except ControllerAway:
            if newer_than is None or (await self.server()).has(Feature.NODE_CHANGES):
                raise
            return await self.nodes(patience=patience)
        if answer is None:
            return None
        return NodeList(present(answer.nodes, what="reading all nodes"), int(answer.last_update.value or 0))

    async def node(self, name: str) -> Node:
        """Read one node.

        Its counts, and so MIXED, are as of the last list of all nodes; flags are of this moment.
        """
        what = f"reading node {name}"
        # A node that does not exist is reported as "no error" and no node.
        answer = await self.calls.call("GET", f"node/{in_path(name)}", _Nodes, what=what, tolerate={0})
        if not answer.nodes:
            raise NotFound(
                f"{what} failed: Slurm does not know it", remedy="see scontrol show nodes for their names"
            )
        return answer.nodes[0]

    async def update_node(self, name: str, change: NodeChange) -> None:
        """Change a node: its state, reason, features."""
        await self.calls.call("POST", f"node/{in_path(name)}", Answer, what=f"changing node {name}", body=change)

    async def update_nodes(self, names: Sequence[str], change: NodeChange) -> None:
        """Change many nodes alike, in one request. Those that exist are changed even if another does not."""
        what = f"changing {names[0] if len(names) == 1 else f'{len(names)} nodes'}"
        body = {"name": list(names), **msgspec.to_builtins(change)}
        await self.calls.call("POST", "nodes/", Answer, what=what, body=body)

    async def create_node(self, line: Directive) -> None:
        """Make the node or nodes that a line such as `NodeName=n[1-4] CPUs=8` describes."""
        if line.key.lower() != "nodename":
            raise Terminal(f"{line.render()[:60]!r} does not describe a node", remedy="begin with NodeName=")
        (await self.calls.server()).require(Feature.NEW_NODES)
        what = f"making node {line.value}"
        await self.calls.call("POST", "new/node/", Answer, what=what, body={"node_conf": line.render()})

    async def delete_node(self, name: str) -> None:
        """Delete a node that was made while slurmctld ran."""
        await self.calls.call("DELETE", f"node/{in_path(name)}", Answer, what=f"deleting node {name}")

    async def delete_nodes(self, names: Sequence[str]) -> None:
        """Delete many such nodes, in one request. Those that can be are deleted even if another cannot."""
        what = f"deleting {names[0] if len(names) == 1 else f'{len(names)} nodes'}"
        await self.calls.call("DELETE", f"node/{in_path(*names)}", Answer, what=what)

    # Partitions and reservations

    async def partitions(self) -> tuple[Partition, ...]:
        return (await self.calls.call("GET", "partitions/", _Partitions, what="reading the partitions")).partitions

    async def reservations(self) -> tuple[Reservation, ...]:
        return (
            await self.calls.call("GET", "reservations/", _Reservations, what="reading the reservations")
        ).reservations

    async def save_reservation(self, request: ReservationRequest) -> None:
        """Make a reservation, or change the one of this name."""
        (await self.calls.server()).require(Feature.RESERVATIONS)
        what = f"saving reservation {request.name}"
        await self.calls.call("POST", "reservation", Answer, what=what, body=request)

    async def delete_reservation(self, name: str) -> None:
        (await self.calls.server()).require(Feature.RESERVATIONS)
        await self.calls.call("DELETE", f"reservation/{in_path(name)}", Answer, what=f"deleting reservation {name}")


@functools.lru_cache(maxsize=64)
def _query_of_ids(ids: tuple[int, ...]) -> str:
    """Write ids into a query; kept, since the poller asks about the same slices over and over."""
    return "&".join([f"job_id={job_id:d}" for job_id in ids])


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    error = failures.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
