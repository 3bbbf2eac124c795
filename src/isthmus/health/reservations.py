"""Private reservations, which keep nodes for their tests: who makes and ends them.

Slurm 25.05 and later   its REST API
before                  scontrol, in a worker pod of the cluster: the API only lists reservations
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from isthmus import names
from isthmus.domain.languages.hostlist import expand
from isthmus.errors import Retry, Wait
from isthmus.health.passivetests import Execute
from isthmus.health.world import HealthWorld
from isthmus.model.meta import Key
from isthmus.model.slurm import ReservationRequest
from isthmus.operator.nodesets.gatherer import is_ready
from isthmus.slurm.client import Client
from isthmus.slurm.errors import Refused
from isthmus.slurm.versions import Feature

Run = Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
"""Runs a command where there is Slurm; returns its exit code and what it printed."""

_SCONTROL: Final = ("sh", "-c", 'exec scontrol "$@" 2>&1', "scontrol")
_USER: Final = re.compile(r"[\w][\w.-]*", re.ASCII)
_NO_POD_AGAIN_S: Final = 5.0
_MAX_CHARS: Final = 200


def reservation_name(node: str) -> str:
    """The reservation that keeps a node for its test."""
    return f"{names.HEALTH_RESERVATION_PREFIX}{node}"


async def reserved_nodes(client: Client) -> frozenset[str]:
    """Nodes that our reservations hold now."""
    ours = (it for it in await client.reservations() if it.name.startswith(names.HEALTH_RESERVATION_PREFIX))
    found = ((it.name.removeprefix(names.HEALTH_RESERVATION_PREFIX), it.node_list) for it in ours)
    return frozenset(node for node, held in found if node in expand(held))


class Reservations(Protocol):
    """Makes or changes the reservation of a name, and deletes it."""

    async def save(self, request: ReservationRequest, *, new: bool) -> None: ...
    async def delete(self, name: str) -> None: ...


class RestReservations:
    """Reservations by Slurm's REST API."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def save(self, request: ReservationRequest, *, new: bool) -> None:
        del new  # one call does both
        await self._client.save_reservation(request)

    async def delete(self, name: str) -> None:
        await self._client.delete_reservation(name)


class CommandReservations:
    """Reservations by scontrol."""

    def __init__(self, client: Client, run: Run) -> None:
        self._client = client
        self._run = run

    async def save(self, request: ReservationRequest, *, new: bool) -> None:
        code, said = await self._run((*_SCONTROL, *words(request, new=new)))
        if code:
            raise Refused(f"scontrol cannot save reservation {request.name}: {_line(said)}")

    async def delete(self, name: str) -> None:
        if name not in {it.name for it in await self._client.reservations()}:
            return
        code, said = await self._run((*_SCONTROL, "delete", f"ReservationName={name}"))
        if code and name in {it.name for it in await self._client.reservations()}:
            raise Retry(f"scontrol cannot delete reservation {name}: {_line(said)}")


async def reservations(client: Client, run: Run) -> Reservations:
    """Choose how reservations are made in a Slurm."""
    if (await client.server()).has(Feature.RESERVATIONS):
        return RestReservations(client)
    return CommandReservations(client, run)


def words(request: ReservationRequest, *, new: bool) -> tuple[str, ...]:
    """Write a request for scontrol. A user whose name would mean something else there is left out."""
    users = [it for it in request.users if _USER.fullmatch(it)]
    # scontrol takes times of its own clock; the request's start is no later than now.
    begin = ("StartTime=now-1minute", "Duration=infinite") if new else ()
    return (
        "create" if new else "update",
        *(("reservation",) if new else ()),
        f"ReservationName={request.name}",
        f"Nodes={','.join(request.node_list)}",
        *((f"Users={','.join(users)}",) if users else ()),
        *((f"Flags={','.join(request.flags)}",) if request.flags else ()),
        *begin,
    )


def in_workers(world: HealthWorld, execute: Execute, cluster: Key) -> Run:
    """Run commands in some worker pod of a cluster: all have Slurm's commands, and root there may do this."""

    async def run(command: Sequence[str]) -> tuple[int, str]:
        workers = (
            it.metadata.key
            for it in world.operator.pods.values()
            if it.metadata.namespace == cluster.namespace
            and it.metadata.labels.get(names.COMPONENT_LABEL) == "worker"
            and it.metadata.labels.get(names.CLUSTER_LABEL) == cluster.name
            and is_ready(it)
        )
        pod = next(workers, None)
        if pod is None:
            raise Wait(f"no worker pod of {cluster} is ready to run {command[0]}", after=_NO_POD_AGAIN_S)
        said = bytearray()
        code = await execute(pod, command, said.extend)
        return code, said.decode(errors="replace")

    return run


def _line(said: str) -> str:
    return " ".join(said.split())[:_MAX_CHARS] or "no reason given"
