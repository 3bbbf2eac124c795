"""Actions in Slurm for the health of nodes: drains and returns them, reserves them for a test, requeues their jobs.

Before a node is shut or opened, Slurm is asked once more. If somebody has changed its drain or its reason since the
decision, the node is left alone: the change wakes the loop, and it is decided anew.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from isthmus.domain.languages.hostlist import expand
from isthmus.domain.operator.nodeset.drains import is_shut
from isthmus.health.reservations import Run, reservation_name, reservations
from isthmus.model.slurm import Job, Node, NodeChange, Number, ReservationRequest
from isthmus.slurm.client import Client
from isthmus.slurm.errors import AlreadyDone, ControllerAway, NotFound, NotNow, Refused
from isthmus.slurm.versions import Feature

log = structlog.get_logger()

_MAX_NODES_PER_REQUEST: Final = 500
"""slurmctld answers no other request while it changes them."""

_USERS: Final = ("root", "slurm")
"""Who may run jobs in the reservation of a test, beside the users of checks."""

_RUNNING: Final = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"})
_INFINITE: Final = Number.of(math.inf)
_CLOCK_SKEW_S: Final = 60


class SlurmActions:
    """Carries out actions in one Slurm, for one decision; `seen` are the nodes as the decision saw them."""

    def __init__(self, client: Client, seen: Mapping[str, Node | None], run: Run) -> None:
        self._client = client
        self._run = run
        self._seen = seen
        self._ours: set[str] = set()
        """Nodes that we have changed since."""

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        found = await self._unchanged(nodes)
        await self._update(tuple(found), NodeChange(state=("DRAIN",), reason=reason))

    async def release(self, nodes: Sequence[str], reason: str) -> None:
        """Open nodes, or leave them drained with another owner's reason."""
        found = await self._unchanged(nodes)
        if reason:
            await self._update(tuple(found), NodeChange(state=("DRAIN",), reason=reason))
            return
        # What is down stays so without a drain, until somebody says otherwise.
        down = [name for name, it in found.items() if "DOWN" in it.state]
        await self._update(tuple(it for it in found if it not in down), NodeChange(state=("UNDRAIN",)))
        await self._update(down, NodeChange(state=("RESUME",)))

    async def comment(self, node: str, text: str) -> None:
        await self._update((node,), NodeChange(comment=text))

    async def reserve(self, node: str, *, users: Collection[str] = ()) -> None:
        """Keep a node for its test, then open it."""
        found = await self._unchanged((node,))
        if node not in found:
            return
        name = reservation_name(node)
        there = [it for it in await self._client.reservations() if it.name == name]
        if not there:
            await self._save(name, node, users)
        elif node not in expand(there[0].node_list):
            made = await reservations(self._client, self._run)
            await made.save(ReservationRequest(name=name, node_list=(node,)), new=False)
        await self.release((node,), "")

    async def unreserve(self, node: str) -> None:
        with suppress(NotFound):
            await (await reservations(self._client, self._run)).delete(reservation_name(node))

    async def requeue(self, node: str) -> str:
        """Put the jobs of a node back into the queue; return what became of them.

        Before Slurm 26.05 there is no call for it, and a node that is set down puts its jobs back, but ends those
        that may not be: it is done only if none of them would be lost.
        """
        jobs = [it for it in await self._client.jobs() if _is_on(it, node)]
        if not jobs:
            return "no job is left on it"
        if (await self._client.server()).has(Feature.REQUEUE):
            done = [it.job_id for it in jobs if await self._requeue(it.job_id)]
            return f"requeued {len(done)} of {len(jobs)} jobs"
        if all(it.requeue and it.batch_flag for it in jobs):
            found = await self._unchanged((node,))
            if found:
                await self._update((node,), NodeChange(state=("DOWN",), reason=found[node].reason))
            return f"requeued {len(jobs)} jobs"
        return "its jobs cannot be requeued and keep running"

    async def _requeue(self, job: int) -> bool:
        try:
            await self._client.requeue_job(job)
        except (NotFound, NotNow, AlreadyDone, Refused) as error:
            log.info("a job was not requeued", job=job, error=error.what)
            return False
        return True

    async def _save(self, name: str, node: str, users: Collection[str]) -> None:
        def request(allowed: Collection[str]) -> ReservationRequest:
            return ReservationRequest(
                name=name,
                node_list=(node,),
                users=tuple(dict.fromkeys((*_USERS, *allowed))),
                flags=("MAINT", "IGNORE_JOBS"),
                # A little in the past, so that it holds at once though Slurm's clock may be behind ours.
                start_time=Number.of(int(time.time()) - _CLOCK_SKEW_S),
                duration=_INFINITE,
            )

        made = await reservations(self._client, self._run)
        try:
            await made.save(request(users), new=True)
        except (Refused, ControllerAway):
            if not users:
                raise
            # One of them may be unknown to Slurm, which it calls an unspecified error; whose check that is hears of
            # it when its job is refused.
            await made.save(request(()), new=True)

    async def _unchanged(self, nodes: Sequence[str]) -> dict[str, Node]:
        """Ask Slurm once more; keep nodes that are as the decision saw them, or as we have made them since."""
        now = await self._now(nodes)
        kept: dict[str, Node] = {}
        for name in nodes:
            node, seen = now.get(name), self._seen.get(name)
            if node is None:
                continue
            if name in self._ours or (seen is not None and _shut(node) == _shut(seen)):
                kept[name] = node
            else:
                log.info("node changed in Slurm since the decision", node=name, reason=node.reason)
        return kept

    async def _now(self, nodes: Sequence[str]) -> dict[str, Node]:
        if len(nodes) == 1:
            with suppress(NotFound):
                return {nodes[0]: await self._client.node(nodes[0])}
            return {}
        listing = await self._client.nodes()
        return {it.name: it for it in listing.nodes} if listing else {}

    async def _update(self, nodes: Sequence[str], change: NodeChange) -> None:
        for start in range(0, len(nodes), _MAX_NODES_PER_REQUEST):
            some = nodes[start : start + _MAX_NODES_PER_REQUEST]
            self._ours.update(some)
            # Those that exist are changed even if another is gone; the next reading shows that.
            with suppress(NotFound):
                await self._client.update_nodes(some, change)


def _shut(node: Node) -> tuple[bool, str]:
    return is_shut(node), node.reason


def _is_on(job: Job, node: str) -> bool:
    return bool(job.nodes) and not _RUNNING.isdisjoint(job.job_state) and node in expand(job.nodes or "")
