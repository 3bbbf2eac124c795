"""What Prometheus is told of clusters: read from the caches when it asks, so it costs nothing in between."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from isthmus import names
from isthmus.domain.kube.conditions import READY, holds
from isthmus.model.slinky import NodeSetStatus
from isthmus.names import MetricName
from isthmus.operator.world import World


class Figures(Collector):
    """The figures of all worlds of a process."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self._worlds = worlds

    def collect(self) -> Iterable[Metric]:
        nodes = _gauge(names.OPERATOR_NODES, "namespace", "nodeset", "state")
        slurm = _gauge(names.OPERATOR_SLURM, "namespace", "controller")
        tokens = _gauge(names.TOKEN_EXPIRY, "namespace", "token")
        ready = _gauge(names.OPERATOR_READY, "kind", "namespace", "name")
        for world in self._worlds:
            for nodeset in world.nodesets.values():
                for state, count in _counts(nodeset.status).items():
                    nodes.add_metric([*nodeset.metadata.key, state], count)
            for key in world.controllers:
                slurm.add_metric(list(key), float(world.slurms.in_touch(key)))
            for token in world.tokens.values():
                if token.status.expires_at:
                    tokens.add_metric(list(token.metadata.key), token.status.expires_at.timestamp())
            for kind, found in _everything(world):
                ready.add_metric([kind, *found.metadata.key], float(holds(found.status.conditions, READY)))
        return nodes, slurm, tokens, ready


def _everything(world: World) -> Iterator[tuple[str, Any]]:
    kinds: dict[str, Any] = {
        "SlurmCluster": world.clusters,
        "Controller": world.controllers,
        "NodeSet": world.nodesets,
        "LoginSet": world.loginsets,
        "Accounting": world.accountings,
        "RestApi": world.restapis,
        "Token": world.tokens,
    }
    return ((kind, found) for kind, store in kinds.items() for found in store.values())


def _counts(status: NodeSetStatus) -> dict[str, int]:
    return {
        "desired": status.desired,
        "ready": status.ready_replicas,
        "updated": status.updated_replicas,
        "idle": status.slurm_idle,
        "allocated": status.slurm_allocated,
        "draining": status.slurm_drain,
        "down": status.slurm_down,
    }


def _gauge(metric: MetricName, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=labels)
