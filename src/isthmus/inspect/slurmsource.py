"""Where a command asks Slurm.

In this order: the slurmrestd that is configured, Slurm's commands on this machine, and a login pod (or else
slurmctld's) of the cluster that the operator keeps.

So a user of a login node needs neither Kubernetes nor a token, and an administrator neither slurmrestd nor a login.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol

from isthmus import names
from isthmus.bridge.config import Config, tls, tokens
from isthmus.errors import Terminal
from isthmus.inspect.seen import PODS, SeenPod, main_container
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key, condition
from isthmus.model.slurm import Job, Node, NodeChange
from isthmus.slurm import client as rest
from isthmus.slurm import commands
from isthmus.slurm.commands import Done, SlurmCommands

_PATIENCE: Final = 60.0
_ASKED: Final = f"{names.MANAGED_BY_LABEL}=isthmus,{names.COMPONENT_LABEL} in (login,controller)"
_REMEDY: Final = "log in where squeue works, or set SLURM_REST_API and SLURM_JWT"


class SlurmSource(Protocol):
    """Jobs and nodes of one Slurm, and the nodes' state to change."""

    async def jobs(self) -> tuple[Job, ...]: ...

    async def nodes(self) -> tuple[Node, ...]: ...

    async def drain(self, name: str, reason: str) -> None: ...

    async def resume(self, name: str) -> None: ...


class RestSource:
    """slurmrestd."""

    def __init__(self, client: rest.Client) -> None:
        self._client = client

    async def jobs(self) -> tuple[Job, ...]:
        return await self._client.jobs()

    async def nodes(self) -> tuple[Node, ...]:
        listing = await self._client.nodes()
        return listing.nodes if listing else ()

    async def drain(self, name: str, reason: str) -> None:
        await self._client.update_node(name, NodeChange(state=("DRAIN",), reason=reason))

    async def resume(self, name: str) -> None:
        await self._client.update_node(name, NodeChange(state=("RESUME",)))


class PodCommands(SlurmCommands):
    """Slurm's commands in a pod of the cluster, where they run as root."""

    def __init__(self, client: Client, pod: Key, container: str) -> None:
        super().__init__(self._execute)
        self.client, self.pod, self.container = client, pod, container

    async def _execute(self, words: Sequence[str], fed: bytes) -> Done:
        output, errors = bytearray(), bytearray()

        async def feed() -> AsyncIterator[bytes]:
            yield fed

        try:
            async with asyncio.timeout(_PATIENCE):
                code = await stream.execute(
                    self.client,
                    self.pod,
                    words,
                    container=self.container,
                    stdin=feed() if fed else None,
                    stdout=output.extend,
                    stderr=errors.extend,
                )
        except TimeoutError:
            return Done(124, b"", f"no answer from {self.pod} within {_PATIENCE:.0f} s".encode())
        return Done(code, bytes(output), bytes(errors))


class NoSlurmError(Terminal):
    """Nothing here leads to a Slurm."""


class AmbiguousError(Terminal):
    """Several Slurm clusters could be meant."""


async def find(
    config: Config,
    client: Client | None,
    stack: AsyncExitStack,
    *,
    cluster: str = "",
) -> SlurmSource:
    """Choose whom to ask. Connections last as long as the stack."""
    if config.slurm_rest_api and not cluster:
        connection = rest.connect(config.slurm_rest_api, tokens(config), tls=tls(config))
        return RestSource(await stack.enter_async_context(connection))
    if commands.are_here() and not cluster:
        return SlurmCommands(commands.on_this_machine)
    if client is not None:
        return await in_kubernetes(client, cluster)
    raise NoSlurmError("no Slurm is set up here: there is no squeue", remedy=_REMEDY)


async def in_kubernetes(client: Client, cluster: str = "", *, namespace: str = "") -> PodCommands:
    """Choose a pod: one that is ready rather than one that is not, and a login node rather than slurmctld."""
    listing = await client.list(PODS, namespace=namespace, labels=_ASKED)
    running = [it for it in listing.items if it.status.phase == "Running" and not _leaves(it)]
    controllers = {_cluster(it) for it in running if it.component == "controller"}
    wanted = {it for it in controllers if not cluster or it.name == cluster}
    if not wanted:
        what = f"no slurmctld of a cluster {cluster!r}" if cluster else "no slurmctld of a Slurm cluster"
        raise NoSlurmError(f"{what} runs in this Kubernetes", remedy="isthmus cluster list" if cluster else _REMEDY)
    if len(wanted) > 1:
        raise AmbiguousError(
            f"there are {len(wanted)} Slurm clusters: {', '.join(map(str, sorted(wanted)))}",
            remedy="choose one: --cluster NAME",
        )
    (chosen,) = wanted
    alone = sum(it.namespace == chosen.namespace for it in controllers) == 1
    askable = [
        it
        for it in running
        if (_cluster(it) == chosen if it.component == "controller" else alone)
        and it.metadata.namespace == chosen.namespace
    ]
    pod = min(askable, key=lambda it: (not _is_ready(it), it.component != "login", it.metadata.name))
    return PodCommands(client, pod.metadata.key, main_container(pod))


def _cluster(pod: SeenPod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.labels.get(names.INSTANCE_LABEL, ""))


def _leaves(pod: SeenPod) -> bool:
    """Whether a pod ends, or only keeps a place warm for slurmctld."""
    return pod.metadata.deletion_timestamp is not None or "-placeholder-" in pod.metadata.name


def _is_ready(pod: SeenPod) -> bool:
    ready = condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"
