"""Reads from Kubernetes where Slurm nodes are, if there is a Kubernetes and we may read it."""

from collections.abc import Callable, Mapping

from isthmus import names
from isthmus.domain.exporter.catalog import NODE_NVLINK_GROUP
from isthmus.domain.exporter.locations import UNKNOWN, Location, locations
from isthmus.kube.client import Client
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.slurm import Node


class Topology:
    """The locations of a cluster's nodes."""

    def __init__(self, client: Client, *, namespace: str, cluster: str) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._locations: dict[str, Location] = {}
        self._hooks: list[Callable[[], None]] = []

    def place_of(self, node: str) -> tuple[str, str]:
        return self._locations.get(node, UNKNOWN)

    def on_change(self, hook: Callable[[], None]) -> None:
        """Call this when a node is found in another place."""
        self._hooks.append(hook)

    async def read(self, nodes: Mapping[str, Node]) -> str:
        """Read it once, and write the family."""
        of_cluster = f"{names.CLUSTER_LABEL}={self._cluster}"
        workers = (await self._client.list(PODS, namespace=self._namespace, labels=of_cluster)).items
        grouped = (await self._client.list(NODES, labels=names.NVLINK_GROUP_LABEL)).items
        found = locations(workers, grouped)
        if found != self._locations:
            self._locations = found
            for hook in self._hooks:
                hook()
        rows = [
            ((name, nodes[name].instance_id if name in nodes else "", place.group, place.nodeset), 1.0)
            for name, place in found.items()
            if place.group
        ]
        return NODE_NVLINK_GROUP.text(rows)
