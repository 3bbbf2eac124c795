"""The Slurm of each Controller: how it is reached, its nodes, and whether it answers.

slurmrestd is found through the RestApis that name the Controller, all of them, so any may be away. Tokens are
minted from the cluster's key for the user `slurm`. When either changes, the connection is recreated and the nodes
are read again; what was known is not kept, because it may have been another cluster's.

"Out of touch" is not an answer: `of` gives None, or something whose `in_touch` is false.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

import msgspec
import structlog

from isthmus.domain.operator import partnames
from isthmus.model.meta import Key
from isthmus.model.slinky import Controller, RestApi
from isthmus.model.slurm import Node
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.nodewatch import NodeWatch
from isthmus.slurm.store import Store

log = structlog.get_logger()

USER: Final = "slurm"


class Address(msgspec.Struct, frozen=True):
    """Where a cluster's slurmrestd are, and the key of its tokens."""

    urls: tuple[str, ...]
    key: bytes

    def __repr__(self) -> str:
        return f"Address({', '.join(self.urls)})"


class Slurm:
    """One cluster's Slurm, while it is being followed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.accounting = Accounting(client.calls)
        self.watch = NodeWatch(client)
        self.asked_at = 0.0
        """When we last reconfigured slurmctld, in seconds since 1970."""

    @property
    def nodes(self) -> Store[str, Node]:
        """The nodes as of the latest reading."""
        return self.watch.nodes

    @property
    def in_touch(self) -> bool:
        """Whether it answers: only then does "not there" mean that it is gone."""
        return self.watch.contact.in_touch

    @property
    def trouble(self) -> str:
        """Why it does not answer."""
        return self.watch.contact.trouble

    @property
    def as_of(self) -> float | None:
        """When the reading began that `nodes` is from, by `time.monotonic`."""
        return self.watch.as_of

    def hurry(self) -> None:
        """Look again at once, and often for some seconds."""
        self.watch.hurry()

    async def reconfigure(self, *, now: float) -> None:
        """Let slurmctld and all nodes read their files again."""
        self.asked_at = now
        await self.client.reconfigure()
        self.hurry()


class _Following:
    """A connection that is being held, and the task that holds it."""

    def __init__(self, address: Address, task: asyncio.Task[None]) -> None:
        self.address = address
        self.task = task
        self.slurm: Slurm | None = None


Listener = Callable[[Key, str | None], None]
"""Called with the Controller and the node that changed; None if contact, or everything, did."""


class Slurms:
    """All clusters' Slurm. `follow` says where one is; `of` gives it."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._tasks: asyncio.TaskGroup | None = None
        self._stopped = asyncio.Event()
        self._followed: dict[Key, _Following] = {}
        self._wanted: dict[Key, Address] = {}
        self._why_not: dict[Key, str] = {}
        self._listeners: list[Listener] = []
        self._restart_listeners: list[Callable[[Key], None]] = []

    def of(self, controller: Key) -> Slurm | None:
        """The Slurm of a Controller; None while there is no way to it."""
        followed = self._followed.get(controller)
        return followed.slurm if followed else None

    def in_touch(self, controller: Key) -> bool:
        slurm = self.of(controller)
        return slurm is not None and slurm.in_touch

    def trouble(self, controller: Key) -> str:
        """Why a Slurm cannot be asked; empty if it can."""
        slurm = self.of(controller)
        if slurm is not None:
            return "" if slurm.in_touch else f"Slurm does not answer: {slurm.trouble}"
        return self._why_not.get(controller, "Slurm has not answered yet")

    def on_change(self, listener: Listener) -> None:
        """Call this when a node changes, or contact is lost or found."""
        self._listeners.append(listener)

    def on_restart(self, listener: Callable[[Key], None]) -> None:
        """Call this when a slurmctld has been restarted or has loaded another configuration."""
        self._restart_listeners.append(listener)

    def follow(self, controller: Key, address: Address | None, *, why_not: str = "") -> None:
        """Say where a Controller's Slurm is, or (None) that it is nowhere, and why."""
        if address is None:
            self._why_not[controller] = why_not
            self._wanted.pop(controller, None)
            self._end(controller)
        elif self._wanted.get(controller) != address:
            self._why_not.pop(controller, None)
            self._wanted[controller] = address
            self._begin(controller, address)

    async def run(self) -> None:
        """Hold connections until stopped or cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for controller, address in self._wanted.items():
                self._begin(controller, address)
            await self._stopped.wait()
            for followed in self._followed.values():
                followed.task.cancel()

    def stop(self) -> None:
        self._stopped.set()

    def _begin(self, controller: Key, address: Address) -> None:
        self._end(controller)
        if self._tasks is not None:
            task = self._tasks.create_task(self._follow(controller, address))
            self._followed[controller] = _Following(address, task)

    def _end(self, controller: Key) -> None:
        followed = self._followed.pop(controller, None)
        if followed:
            followed.task.cancel()
            self._tell(controller, None)

    async def _follow(self, controller: Key, address: Address) -> None:
        async with AsyncExitStack() as stack:
            observe = self._metrics.client("slurmrestd") if self._metrics else None
            tokens = MintedTokens(address.key, user=USER)
            client = await stack.enter_async_context(connect(address.urls, tokens, observe=observe))
            slurm = Slurm(client)
            slurm.nodes.on_change(lambda name, *_: self._tell(controller, name))
            slurm.watch.on_contact(lambda: self._contact_changed(controller, slurm))
            slurm.watch.on_restart(lambda: self._restarted(controller))
            self._followed[controller].slurm = slurm
            await slurm.watch.run()

    def _contact_changed(self, controller: Key, slurm: Slurm) -> None:
        log.info(
            "Slurm answers" if slurm.in_touch else "Slurm does not answer",
            controller=str(controller),
            trouble=slurm.trouble or None,
        )
        self._tell(controller, None)

    def _restarted(self, controller: Key) -> None:
        for listener in self._restart_listeners:
            listener(controller)

    def _tell(self, controller: Key, node: str | None) -> None:
        for listener in self._listeners:
            listener(controller, node)


def urls(restapis: Mapping[Key, RestApi], addresses: Mapping[Key, str]) -> tuple[str, ...]:
    """Make the URLs of a cluster's slurmrestd, the oldest first, from the addresses of their Services."""

    def age(it: RestApi) -> tuple[str, str]:
        return str(it.metadata.creation_timestamp or ""), it.metadata.name

    return tuple(
        f"http://{addresses[it.metadata.key]}:{it.spec.service.port or partnames.SLURMRESTD_PORT}"
        for it in sorted(restapis.values(), key=age)
        if it.metadata.key in addresses
    )


def why_unreachable(controller: Controller, restapis: int) -> str:
    """What is missing before a Slurm can be asked."""
    if not restapis:
        name = controller.metadata.name
        return (
            f"no RestApi has controllerRef.name: {name}; create one, so that nodes can be drained before "
            "they are deleted"
        )
    return "the Service of slurmrestd does not exist yet"
