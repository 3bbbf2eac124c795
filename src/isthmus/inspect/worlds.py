"""Slurm and Kubernetes at one moment, for commands: what each answered, or why it did not.

One that is not configured here (no kubeconfig on a login node) is `absent`, which is normal. One that is configured
and does not answer is among `troubles`, which a command must report: an empty table would be wrong.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from isthmus.bridge.cache.nodemap import OWNERS
from isthmus.bridge.config import Config, tls, tokens
from isthmus.domain.views import queue, rows
from isthmus.domain.views.queue import Entry
from isthmus.domain.views.rows import Row
from isthmus.errors import IsthmusError, Retry, Terminal
from isthmus.inspect import machines, slurmsource, snapshot
from isthmus.inspect.slurmsource import AmbiguousError, NoSlurmError, SlurmSource
from isthmus.inspect.snapshot import Snapshot
from isthmus.kube import config as kube_config
from isthmus.kube.client import Client
from isthmus.model.base import EMPTY
from isthmus.model.health import NODE_HEALTHS, NodeHealth
from isthmus.model.slurm import Job, Node
from isthmus.slurm.client import connect

KUBERNETES: Final = "kubernetes"
SLURM: Final = "slurm"

JOB_KINDS: Final = frozenset({"pods"})
NODE_KINDS: Final = frozenset({"pods", "nodes", *(f"{it.plural}.{it.group}" for it in OWNERS)})
"""Worker pods, and what owns them, say which Slurm node is which Kubernetes node."""


class SilentError(Retry):
    """The server that has the answer does not respond."""

    exit_code = 4
    """Of a command that fails by it."""


class Observation(msgspec.Struct, frozen=True):
    """What was read."""

    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    source: SlurmSource | None = None
    kube: Snapshot | None = None
    healths: tuple[NodeHealth, ...] = ()
    namespace: str = ""
    """The one that the kubeconfig, or the user, means."""
    troubles: Mapping[str, str] = EMPTY
    """Why something could not be read, by "slurm", "pods" or "nodes"."""
    absent: Mapping[str, str] = EMPTY
    """Why one of the two is not read, by `SLURM` or `KUBERNETES`."""

    @property
    def blind(self) -> bool:
        """Whether nothing could be read."""
        return (SLURM in self.absent or SLURM in self.troubles) and (
            KUBERNETES in self.absent or "pods" in self.troubles
        )


@asynccontextmanager
async def look(
    config: Config,
    *,
    kubeconfig: Path | None = None,
    namespace: str = "",
    cluster: str = "",
    kinds: Collection[str] | None = None,
) -> AsyncIterator[Observation]:
    """Read Slurm and Kubernetes once; of Kubernetes everything, or only these kinds."""
    missing = _Missing()
    absent, troubles = missing.absent, missing.troubles
    source: SlurmSource | None = None
    async with AsyncExitStack() as stack:
        kube = _kube(kubeconfig, absent)
        client = await stack.enter_async_context(Client(kube)) if kube else None
        with missing.noting(strict=bool(cluster)):
            source = await slurmsource.find(config, client, stack, cluster=cluster)
        place = namespace or (kube.namespace if kube else "")
        if client is None:
            jobs, nodes = await _slurm_alone(source, troubles)
            yield Observation(jobs, nodes, source, namespace=place, troubles=troubles, absent=absent)
            return
        # The bridge's caches want a client of slurmrestd, which is not asked where the source is another one.
        endpoints = config.slurm_rest_api or (snapshot.USUAL_REST_API,)
        slurm = await stack.enter_async_context(connect(endpoints, tokens(config), tls=tls(config)))
        found = await snapshot.read(
            client, slurm, config, namespace=place, source=source or _NoSlurm(), kinds=kinds
        )
        healths = await _healths(client) if kinds is NODE_KINDS else ()
        yield Observation(
            found.jobs,
            tuple(found.world.slurm_nodes.values()),
            source,
            found,
            healths,
            place,
            {**found.troubles, **troubles},
            absent,
        )


def entries(observed: Observation, *, now: float) -> tuple[Entry, ...]:
    """Jobs and pods in one list; a pod that has a job is shown as that job."""
    pods = tuple(observed.kube.world.pods.values()) if observed.kube else ()
    return queue.entries(observed.jobs, pods, now=now)


def node_rows(observed: Observation) -> tuple[Row, ...]:
    if observed.kube is None:
        return tuple(rows.node_row(it.name, it, None) for it in observed.nodes)
    healths = {it.spec.node: it for it in observed.healths}
    return machines.node_rows(observed.kube.world, healths)


class _NoSlurm:
    async def jobs(self) -> tuple[Job, ...]:
        return ()

    async def nodes(self) -> tuple[Node, ...]:
        return ()

    async def drain(self, name: str, reason: str) -> None:
        raise NoSlurmError(f"node {name} cannot be drained ({reason}): there is no Slurm here")

    async def resume(self, name: str) -> None:
        raise NoSlurmError(f"node {name} cannot be resumed: there is no Slurm here")


def _kube(kubeconfig: Path | None, absent: dict[str, str]) -> kube_config.Config | None:
    """Who names a kubeconfig means it; otherwise there may be none, as on a login node."""
    try:
        return kube_config.load(kubeconfig)
    except Terminal as error:
        if kubeconfig or os.environ.get("KUBECONFIG"):
            raise
        absent[KUBERNETES] = error.what
        return None


class _Missing:
    """Notes why there is no Slurm to ask."""

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self.troubles: dict[str, str] = {}

    @contextmanager
    def noting(self, *, strict: bool) -> Iterator[None]:
        """Who names a cluster means it, and who has several must: such errors are the user's to hear."""
        try:
            yield
        except NoSlurmError as error:
            if strict:
                raise
            self.absent[SLURM] = error.line
        except AmbiguousError:
            raise
        except IsthmusError as error:
            self.troubles[SLURM] = error.what


async def _slurm_alone(
    source: SlurmSource | None, troubles: dict[str, str]
) -> tuple[tuple[Job, ...], tuple[Node, ...]]:
    if source is None:
        return (), ()
    try:
        jobs, nodes = await asyncio.gather(source.jobs(), source.nodes())
    except IsthmusError as error:
        troubles[SLURM] = error.line
        return (), ()
    return jobs, nodes


async def _healths(client: Client) -> tuple[NodeHealth, ...]:
    """Not every cluster has node health, and not everybody may read it."""
    try:
        return (await client.list(NODE_HEALTHS)).items
    except IsthmusError:
        return ()
