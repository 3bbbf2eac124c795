"""Ways of starting and releasing nodes, to be compared by `domain.elastic.simulation`.

Static       all nodes are on, always
Keda         slinky's recipe: a ScaledObject on the number of waiting jobs; Slurm knows the nodes that are on
PowerSaving  Slurm's own: nodes start for the jobs that get them, and go after one SuspendTime for all
Elastic      ours: the same, within what `domain.elastic.policy` says of `spec.autoscale`, moment by moment
"""

import math
from collections import deque
from datetime import UTC, datetime
from typing import Final

from isthmus.domain.elastic import policy as policies
from isthmus.domain.elastic.policy import Effective, Usage
from isthmus.domain.elastic.simulation import Cluster
from isthmus.model.elastic import Autoscale

PLAIN_IDLE_S: Final = 300.0
"""SuspendTime of slurm-gcp and CycleCloud, whose users have Slurm's plain power saving."""


class Static:
    """A cluster that is always there."""

    announced = True

    def begin(self, cluster: Cluster) -> None:
        cluster.start_at_once(cluster.size)

    def room(self, cluster: Cluster) -> int:  # noqa: ARG002 - every scaler is asked
        return 0

    def settle(self, cluster: Cluster) -> float | None:  # noqa: ARG002
        return None


class PowerSaving:
    """Slurm's power saving with one SuspendTime, and nothing else."""

    announced = True

    def __init__(self, idle: float = PLAIN_IDLE_S) -> None:
        self._idle = idle

    def begin(self, cluster: Cluster) -> None:
        """Begin with every node off."""

    def room(self, cluster: Cluster) -> int:
        return cluster.size

    def settle(self, cluster: Cluster) -> float | None:
        return release_idle(cluster, keep=0, idle=self._idle)


def release_idle(cluster: Cluster, *, keep: int, idle: float) -> float | None:
    """Release nodes that were idle for so long, the longest first, but so many; return when the next is due."""
    while len(cluster.idle) > keep:
        oldest = next(iter(cluster.idle.values()))
        if (due := oldest.since + idle) > cluster.now:
            return due
        cluster.release(oldest)
    return None


class Elastic:
    """Ours: warm nodes are started ahead of jobs, limits change with the clock, the budget holds."""

    announced = True

    def __init__(self, policy: Autoscale) -> None:
        self._policy = policy
        self._limits: Effective | None = None
        self._until = -math.inf
        self._usage: Usage | None = None
        self._on = 0

    def begin(self, cluster: Cluster) -> None:
        """Begin with as many nodes as are always on."""
        cluster.start_at_once(self._now(cluster).floor(0).nodes)

    def room(self, cluster: Cluster) -> int:
        return self._now(cluster).room(cluster.on).nodes

    def settle(self, cluster: Cluster) -> float | None:
        limits = self._now(cluster)
        keep = limits.floor(cluster.busy).nodes - cluster.busy
        ready = len(cluster.idle) + len(cluster.starting)
        if ready < keep:
            cluster.start(min(keep - ready, limits.room(cluster.on).nodes))
        keep = max(0, keep - len(cluster.starting))
        planned = min(cluster.wanted(), len(cluster.idle))
        due = [
            release_idle(cluster, keep=keep, idle=limits.patience(planned=planned > 0).seconds),
            release_idle(cluster, keep=max(keep, planned), idle=limits.idle.seconds),
        ]
        self._on = cluster.on
        wakes = [it for it in (*due, self._until, self._budget_ends(cluster)) if it is not None and it < math.inf]
        return min(wakes, default=None)

    def _now(self, cluster: Cluster) -> Effective:
        budget = self._policy.budget
        if self._limits is None or cluster.now >= self._until or budget:
            now = datetime.fromtimestamp(cluster.now, UTC)
            used = 0.0
            if budget:
                self._usage = policies.accrue(self._usage, budget, on=self._on, now=now)
                used = policies.used_today(self._usage, budget, now)
            self._limits = policies.effective(self._policy, size=cluster.size, now=now, used_today=used)
            change = self._limits.next_change
            self._until = change.timestamp() if change else math.inf
        return self._limits

    def _budget_ends(self, cluster: Cluster) -> float | None:
        """When the budget is used up, if nothing changes; and often enough that no hour is left uncounted."""
        if not self._policy.budget or not self._usage or not cluster.on:
            return None
        left = self._policy.budget.node_hours_per_day - self._usage.node_hours
        return cluster.now + min(max(left / cluster.on * 3600, 1.0), 1800.0) if left > 0 else None


class Keda:
    """slinky's recipe: KEDA scales a NodeSet by the number of waiting jobs.

    Its ScaledObject: idleReplicaCount 0, minReplicaCount 1, threshold 5 by metricType Value, cooldownPeriod 300 s.
    The autoscaler of Kubernetes looks every 15 s, wants replicas x waiting / 5, doubles at most or adds 4 in one
    look, and lowers to the most that it wanted within 5 minutes. Nodes with jobs are drained, not deleted.
    """

    announced = False

    _LOOK_S: Final = 15.0
    _THRESHOLD: Final = 5
    _COOLDOWN_S: Final = 300.0
    _STABLE_S: Final = 300.0
    _STEP: Final = 4
    _TOLERANCE: Final = 0.1

    def __init__(self) -> None:
        self._target = self._waiting = 0
        self._changed = -math.inf
        self._last_active = -math.inf
        self._next_look = -math.inf
        self._wanted: deque[tuple[float, int]] = deque()

    def begin(self, cluster: Cluster) -> None:
        """Begin with every node off."""

    def room(self, cluster: Cluster) -> int:  # noqa: ARG002
        return 0

    def settle(self, cluster: Cluster) -> float | None:
        if cluster.now >= self._next_look:
            self._next_look = cluster.now + self._LOOK_S
            self._look(cluster)
        alive = len(cluster.idle) + len(cluster.starting) + cluster.busy
        if alive < self._target:
            cluster.start(self._target - alive)
        for node in reversed(list(cluster.idle.values())):
            if len(cluster.idle) + len(cluster.starting) + cluster.busy <= self._target:
                break
            cluster.release(node)
        # Nothing is seen that was not seen for so long: only another job or the end of one changes anything.
        settled = cluster.now > self._changed + 2 * self._STABLE_S and not cluster.busy and not cluster.starting
        return None if settled else self._next_look

    def _look(self, cluster: Cluster) -> None:
        waiting = len(cluster.queue)
        if waiting != self._waiting:
            self._waiting, self._changed = waiting, cluster.now
        if waiting:
            self._last_active = cluster.now
        elif cluster.now - self._last_active >= self._COOLDOWN_S:
            self._target = 0
            self._wanted.clear()
            return
        if not self._target:
            self._target = min(1, cluster.size) if waiting else 0
            return
        ratio = waiting / self._THRESHOLD
        wanted = self._target if abs(ratio - 1) <= self._TOLERANCE else math.ceil(self._target * ratio)
        wanted = min(max(wanted, 1), cluster.size)
        self._wanted.append((cluster.now, wanted))
        while self._wanted[0][0] < cluster.now - self._STABLE_S:
            self._wanted.popleft()
        if wanted > self._target:
            self._changed = cluster.now
            self._target = min(wanted, max(2 * self._target, self._target + self._STEP))
        else:
            self._target = min(self._target, max(it for _, it in self._wanted))
