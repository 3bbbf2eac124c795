"""Slurm's features and partitions, as far as decisions about nodes need them; read rarely."""

import time
from typing import Final

from isthmus import names
from isthmus.domain.bridge import noderecord
from isthmus.domain.bridge.noderules import SlurmCapabilities
from isthmus.model.node import Node
from isthmus.slurm.client import Client
from isthmus.slurm.versions import Feature

_FRESH: Final = 5.0
"""Seconds after which partitions are read again for a node that asks for one that is not there."""


class CapabilityReader:
    """Slurm's version and partitions."""

    def __init__(self, slurm: Client) -> None:
        self._slurm = slurm
        self._partitions: frozenset[str] = frozenset()
        self._read_at: float | None = None

    async def of(self, node: Node | None) -> SlurmCapabilities:
        if node is None or names.EXTERNAL_NODE_LABEL not in node.metadata.labels:
            return SlurmCapabilities()
        server = await self._slurm.server()
        wanted = noderecord.partitions(node)
        if not self._partitions.issuperset(wanted) and not self._is_fresh():
            self._read_at = time.monotonic()
            self._partitions = frozenset(found.name for found in await self._slurm.partitions())
        return SlurmCapabilities(can_register=server.has(Feature.NEW_NODES), partitions=self._partitions)

    def _is_fresh(self) -> bool:
        return self._read_at is not None and time.monotonic() - self._read_at < _FRESH
