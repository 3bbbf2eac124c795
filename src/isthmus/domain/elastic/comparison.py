"""A policy beside other ways of having nodes, on the same trace: waiting, cost and waste in numbers."""

from collections.abc import Sequence
from typing import Final

import msgspec

from isthmus.domain.elastic.scalers import PLAIN_IDLE_S, Elastic, Keda, PowerSaving, Static
from isthmus.domain.elastic.simulation import Machine, Outcome, Scaler, simulate
from isthmus.domain.elastic.traces import Trace
from isthmus.model.elastic import Autoscale

POLICY: Final = "policy"
STATIC: Final = "static"
KEDA: Final = "keda"
POWER_SAVING: Final = "power saving"

MEANINGS: Final = {
    POLICY: "this policy",
    STATIC: "all nodes on, always",
    KEDA: "slinky's KEDA recipe: 1 node per 5 waiting jobs, 5 m cooldown",
    POWER_SAVING: f"Slurm's own power saving, SuspendTime {PLAIN_IDLE_S:.0f} s",
}

_HOUR_S: Final = 3600.0


class Waiting(msgspec.Struct, frozen=True):
    """Seconds from submission to start, or a part of them."""

    mean: float
    p50: float
    p95: float


class Waste(msgspec.Struct, frozen=True):
    """Node-hours in which no job ran, by why."""

    idle: float
    starting_and_stopping: float
    partial_gangs: float
    """Nodes that were on and waited for others of their job."""
    unused: float
    """Nodes that were started and released without a job."""


class Figures(msgspec.Struct, frozen=True):
    """What came of one way of having nodes."""

    name: str
    jobs: int
    unstarted: int
    """Jobs that never got nodes."""
    wait: Waiting
    queue: Waiting
    """Until nodes were given."""
    boot: Waiting
    """Until the last of these nodes was on."""
    node_hours: float
    busy_hours: float
    waste: Waste
    boots: int
    thrash: int
    """Nodes that were started and released without a job."""
    peak: int


def figures(name: str, outcome: Outcome) -> Figures:
    records = outcome.records
    spent = outcome.spent
    return Figures(
        name=name,
        jobs=len(records),
        unstarted=len(outcome.unstarted),
        wait=_waiting([it.start - it.job.submit for it in records]),
        queue=_waiting([it.queued for it in records]),
        boot=_waiting([it.booted for it in records]),
        node_hours=spent.total / _HOUR_S,
        busy_hours=spent.busy / _HOUR_S,
        waste=Waste(
            idle=spent.idle / _HOUR_S,
            starting_and_stopping=(spent.starting + spent.stopping) / _HOUR_S,
            partial_gangs=spent.partial / _HOUR_S,
            unused=spent.unused / _HOUR_S,
        ),
        boots=outcome.boots,
        thrash=outcome.thrashed,
        peak=outcome.peak,
    )


def compare(
    trace: Trace, policy: Autoscale, *, size: int, machine: Machine | None = None
) -> dict[str, tuple[Figures, Outcome]]:
    """Play a trace in every way; all but the policy's may use all nodes at any time."""
    scalers: dict[str, Scaler] = {
        POLICY: Elastic(policy),
        POWER_SAVING: PowerSaving(),
        KEDA: Keda(),
        STATIC: Static(),
    }
    outcomes = {name: simulate(trace, size=size, scaler=it, machine=machine) for name, it in scalers.items()}
    return {name: (figures(name, it), it) for name, it in outcomes.items()}


def _waiting(values: Sequence[float]) -> Waiting:
    if not values:
        return Waiting(0.0, 0.0, 0.0)
    ordered = sorted(values)
    last = len(ordered) - 1
    return Waiting(
        mean=sum(ordered) / len(ordered),
        p50=ordered[min(last, len(ordered) // 2)],
        p95=ordered[min(last, len(ordered) * 95 // 100)],
    )
