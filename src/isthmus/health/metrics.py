"""What the health loop counts: runs of checks, repairs, and checks that cry wolf.

How many nodes and findings there are is read from the caches when Prometheus scrapes, and costs nothing in between.
"""

from collections import Counter as Counts
from collections.abc import Sequence
from typing import Final, Literal

from prometheus_client import Counter, Histogram

from isthmus import names
from isthmus.health.world import HealthWorld
from isthmus.model.health import Finding, NodeHealthStatus
from isthmus.runtime.metrics import Metrics, Readings

CheckResult = Literal["passed", "failed", "error"]

_REPAIR_BUCKETS: Final = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 21600, 86400, 604800)
_MAX_CHECKS: Final = 200
"""Names of checks with a series of their own; reasons in Slurm may name any."""


class HealthMetrics:
    """The series of the health loop; one for each process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        runs = Counter(names.CHECK_RUNS.name, names.CHECK_RUNS.help, ("check", "result"), registry=metrics.registry)
        wrong = Counter(
            names.FALSE_POSITIVES.name, names.FALSE_POSITIVES.help, ("check",), registry=metrics.registry
        )
        self._runs = metrics.bounded(names.CHECK_RUNS, runs)
        self._false_positives = metrics.bounded(names.FALSE_POSITIVES, wrong, kept=0)
        self._repair = Histogram(
            names.REPAIR_SECONDS.name,
            names.REPAIR_SECONDS.help,
            buckets=_REPAIR_BUCKETS,
            registry=metrics.registry,
        )
        self.notifications = Counter(
            names.NOTIFICATIONS.name, names.NOTIFICATIONS.help, ("format", "result"), registry=metrics.registry
        )

    def ran(self, check: str, result: CheckResult) -> None:
        """Count a run of a check on one node."""
        self._runs.of(check, result).inc()

    def follow(self, worlds: Sequence[HealthWorld]) -> None:
        """Read nodes and findings from these worlds."""
        self._metrics.read(names.HEALTH_NODES, lambda: _nodes(worlds), "namespace", "cluster", "phase")
        self._metrics.read(names.HEALTH_FINDINGS, lambda: _findings(worlds), "namespace", "source", "check")
        self._metrics.read(names.HEALTH_STORMS, lambda: _storms(worlds), "namespace", "policy")

    def recorded(self, before: NodeHealthStatus | None, after: NodeHealthStatus) -> None:
        """Count what a new record says: a node that is back in service."""
        if after.phase != "Recovered" or before is None or before.phase in {None, "Recovered", "Suspect"}:
            return
        condemned = _last_episode(before.findings)
        began = min((it.last_seen for it in condemned if it.last_seen), default=None)
        if began is None or after.since is None:
            return
        self._repair.observe(max(0.0, (after.since - began).total_seconds()))
        if before.phase == "Testing" and not any(it.started >= began for it in after.steps):
            for check in {it.check for it in condemned}:
                self._false_positives.of(check).inc()


def _last_episode(findings: Sequence[Finding]) -> list[Finding]:
    """The findings for which the node was out the last time: those before it had been cleared by then."""
    newest = max((it.last_seen for it in findings if it.last_seen), default=None)
    return [it for it in findings if newest and (it.cleared is None or it.cleared >= newest)]


def _nodes(worlds: Sequence[HealthWorld]) -> Readings:
    counts = Counts(
        (it.metadata.namespace, it.spec.cluster, it.status.phase or "Suspect")
        for world in worlds
        for it in world.healths.values()
    )
    return counts.items()


def _storms(worlds: Sequence[HealthWorld]) -> Readings:
    policies = (it for world in worlds for it in world.policies.values())
    return [((it.metadata.namespace, it.metadata.name), len(it.status.storms)) for it in policies]


def _findings(worlds: Sequence[HealthWorld]) -> Readings:
    counts = Counts(
        (health.metadata.namespace, it.source, it.check)
        for world in worlds
        for health in world.healths.values()
        for it in health.status.findings
        if it.cleared is None
    )
    return counts.most_common(_MAX_CHECKS)
