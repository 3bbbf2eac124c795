"""Gauges of clusters, read from the caches when Prometheus scrapes, so that they cost nothing in between."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from isthmus import names
from isthmus.domain.elastic.decision import Phase, Slot
from isthmus.domain.kube.conditions import DEGRADED, READY, holds
from isthmus.domain.operator import partnames
from isthmus.domain.operator.jailedconfigs import updates
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.model.jailedconfig import JAILED_CONFIGS, JailedConfig
from isthmus.model.meta import Key
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.slinky import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    TOKENS,
    Controller,
    NodeSet,
    Token,
)
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS
from isthmus.operator.slurmctld.conditions import CONFIG_APPLIED
from isthmus.operator.world import World

if TYPE_CHECKING:
    from isthmus.kube.store import Store


class ClusterMetrics(Collector):
    """The clusters of all worlds of a process."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self._worlds = worlds

    def collect(self) -> Iterable[Metric]:
        families = _Families()
        for world in self._worlds:
            for nodeset in world.nodesets.values():
                families.add_nodeset(nodeset)
                if nodeset.elastic:
                    families.add_elastic(nodeset, world)
            for controller in world.controllers.values():
                families.add_controller(controller, world)
            for token in world.tokens.values():
                families.add_token(token)
            for kind, found in _everything(world):
                families.add_conditions(kind, found)
            for config in world.jailed_configs.values():
                families.add_jailed_config(config)
        return families.made.values()


class _Families:
    def __init__(self) -> None:
        labels = {
            names.OPERATOR_NODES: ("namespace", "nodeset", "state"),
            names.ROLLOUT_PODS: ("namespace", "nodeset", "state"),
            names.ELASTIC_NODES: ("namespace", "nodeset", "state"),
            names.ELASTIC_DEMAND: ("namespace", "nodeset", "kind"),
            names.OPERATOR_SLURM: ("namespace", "controller"),
            names.ACTIVE_CONTROLLER: ("namespace", "controller", "pod"),
            names.CONFIG_APPLIED: ("namespace", "controller"),
            names.CONFIG_CHANGED: ("namespace", "controller"),
            names.TOKEN_ISSUED: ("namespace", "token"),
            names.TOKEN_EXPIRY: ("namespace", "token"),
            names.OPERATOR_READY: ("kind", "namespace", "name"),
            names.OPERATOR_DEGRADED: ("kind", "namespace", "name"),
        }
        self.made = {it: GaugeMetricFamily(it.name, it.help, labels=of) for it, of in labels.items()}

    def _add(self, family: names.MetricName, labels: Iterable[str], value: float) -> None:
        self.made[family].add_metric(list(labels), value)

    def add_nodeset(self, nodeset: NodeSet) -> None:
        key, status = nodeset.metadata.key, nodeset.status
        counts = {
            "desired": status.desired,
            "ready": status.ready_replicas,
            "updated": status.updated_replicas,
            "idle": status.slurm_idle,
            "allocated": status.slurm_allocated,
            "draining": status.slurm_drain,
            "down": status.slurm_down,
        }
        for state, count in counts.items():
            self._add(names.OPERATOR_NODES, (*key, state), count)
        updated = status.updated_replicas
        self._add(names.ROLLOUT_PODS, (*key, "updated"), updated)
        self._add(names.ROLLOUT_PODS, (*key, "outdated"), max(0, status.replicas - updated))

    def add_elastic(self, nodeset: NodeSet, world: World) -> None:
        """Supply and demand, as Slurm said last; nothing before it has said anything."""
        controller = world.controller_key(nodeset)
        slurm = world.slurms.of(controller) if controller else None
        if slurm is None:
            return
        key = nodeset.metadata.key
        hosts = ((it, numbered(nodeset, it).hostname) for it in range(nodeset.spec.replicas))
        slots = [Slot(ordinal=it, name=host, record=slurm.nodes.get(host)) for it, host in hosts]
        counts = Counter(it.phase for it in slots)
        for state in get_args(Phase):
            self._add(names.ELASTIC_NODES, (*key, state), counts[state])
        self._add(names.ELASTIC_DEMAND, (*key, "jobs"), sum(it.busy for it in slots))
        planned = sum(it.has("PLANNED") and not it.busy for it in slots)
        self._add(names.ELASTIC_DEMAND, (*key, "planned"), planned)

    def add_controller(self, controller: Controller, world: World) -> None:
        key, status = controller.metadata.key, controller.status
        self._add(names.OPERATOR_SLURM, key, float(world.slurms.in_touch(key)))
        self._add(names.CONFIG_APPLIED, key, float(holds(status.conditions, CONFIG_APPLIED)))
        files = world.configmaps.get(Key(key.namespace, partnames.config(key.name)))
        changed = files.metadata.annotations.get(names.CHANGED_AT_ANNOTATION, "") if files else ""
        with suppress(ValueError):  # somebody else may have written there
            self._add(names.CONFIG_CHANGED, key, datetime.fromisoformat(changed).timestamp())
        if status.active:
            pods = () if controller.spec.external else partnames.controller_pods(controller)
            for pod in dict.fromkeys((*pods, status.active)):
                self._add(names.ACTIVE_CONTROLLER, (*key, pod), float(pod == status.active))

    def add_token(self, token: Token) -> None:
        if token.status.issued_at:
            self._add(names.TOKEN_ISSUED, token.metadata.key, token.status.issued_at.timestamp())
        if token.status.expires_at:
            self._add(names.TOKEN_EXPIRY, token.metadata.key, token.status.expires_at.timestamp())

    def add_conditions(self, kind: str, found: Any) -> None:
        labels = (kind, *found.metadata.key)
        self._add(names.OPERATOR_READY, labels, float(holds(found.status.conditions, READY)))
        self._add(names.OPERATOR_DEGRADED, labels, float(holds(found.status.conditions, DEGRADED)))

    def add_jailed_config(self, config: JailedConfig) -> None:
        """Its conditions are others: of its files, and of what Slurm reads."""
        labels, held = (JAILED_CONFIGS.name, *config.metadata.key), config.status.conditions
        self._add(
            names.OPERATOR_READY, labels, float(holds(held, updates.WRITTEN) and holds(held, updates.COMPLETED))
        )
        self._add(names.OPERATOR_DEGRADED, labels, float(updates.failure(held) is not None))


def _everything(world: World) -> Iterator[tuple[str, Any]]:
    stores: tuple[tuple[str, Store[Any]], ...] = (
        (SLURM_CLUSTERS.name, world.clusters),
        (CONTROLLERS.name, world.controllers),
        (NODESETS.name, world.nodesets),
        (LOGINSETS.name, world.loginsets),
        (ACCOUNTINGS.name, world.accountings),
        (RESTAPIS.name, world.restapis),
        (TOKENS.name, world.tokens),
        (f"{NEBIUS_NODESETS.name}.{NEBIUS_NODESETS.group}", world.nebius_nodesets),
        (NODE_CONFIGURATORS.name, world.node_configurators),
    )
    return ((kind, found) for kind, store in stores for found in store.values())
