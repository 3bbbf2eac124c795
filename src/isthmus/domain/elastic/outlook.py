"""Elastic nodes for people: jobs that wait for them, how many there are, what was decided, and what comes next."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Final

import msgspec

from isthmus.domain.elastic import policy
from isthmus.model.elastic import Autoscale
from isthmus.model.event import Event
from isthmus.model.meta import condition
from isthmus.model.powerstate import NodeSetPowerState, NodeSetPowerStateStatus
from isthmus.model.slinky import NodeSet

SQUEUE: Final = ("squeue", "--noheader", "--array", "--states=PENDING,CONFIGURING", "--format=%i|%u|%D|%T|%r")
"""With a line for each task of an array: all of them need nodes."""

_FOR_NODES: Final = ("Resources", "Priority", "ReqNodeNotAvail", "Nodes required", "NodeDown")
"""Reasons with which a job waits for nodes. Limits, dependencies, holds and licences are none."""

_FIELDS: Final = 5
_DECISIONS: Final = 5
_MADE: Final = frozenset(
    (
        *("PowerUpRequested", "PowerDownRequested", "NoCapacity", "NodesHeldBack", "NodesReleased", "NotStarted"),
        *("PoweringUp", "PoweredDown"),
    )
)
"""Reasons of the Events about requests of the operator to Slurm, and about what Slurm does by itself."""

_AT_REST: Final = frozenset(("ActiveNodesReconciled", "Settled", "AsExpected"))
"""Reasons of conditions that report no decision."""


class WaitingJob(msgspec.Struct, frozen=True):
    """A job that waits for nodes, or has some that are starting."""

    id: str
    user: str
    nodes: int
    state: str
    reason: str
    limit: str = ""
    """The limits that keep it from starting, if it needs more nodes than these let be on."""


class Decision(msgspec.Struct, frozen=True):
    """What was done, when and why."""

    when: float | None
    reason: str
    message: str


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of an elastic NodeSet."""

    name: str
    """As namespace/name."""
    cluster: str
    announced: int
    on: int = 0
    starting: int = 0
    stopping: int = 0
    held: int = 0
    limits: str = ""
    maximum: int = 0
    """How many nodes may be on."""
    maximum_reason: str = ""
    used_node_hours: float = 0.0
    """Of the budget of today."""
    decisions: tuple[Decision, ...] = ()
    next_step: str = ""

    @property
    def off(self) -> int:
        return max(0, self.announced - self.on - self.starting - self.stopping - self.held)


def waiting(text: str) -> tuple[WaitingJob, ...]:
    """Read what SQUEUE printed: jobs that need nodes, without those that something else holds."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|", _FIELDS - 1)
        if len(fields) < _FIELDS or not fields[2].isdigit():
            continue
        job, user, nodes, state, reason = fields
        if state == "CONFIGURING" or reason.startswith(_FOR_NODES):
            found.append(WaitingJob(job, user, int(nodes), state, reason))
    return tuple(found)


def limited(jobs: Iterable[WaitingJob], nodesets: Iterable[Supply], *, others: int = 0) -> tuple[WaitingJob, ...]:
    """Name the limits of a cluster's elastic NodeSets with jobs that need more nodes than may be on.

    `others` counts the nodes of NodeSets that are not elastic.
    """
    known = tuple(nodesets)
    most = others + sum(it.maximum for it in known)
    limits = "; ".join(f"{it.name}: {it.maximum_reason}" for it in known if it.maximum < it.announced)
    too_large = f"NodeSets allow no more than {most} nodes ({limits})"
    return tuple(
        msgspec.structs.replace(it, limit=too_large) if limits and it.state == "PENDING" and it.nodes > most else it
        for it in jobs
    )


def supply(nodeset: NodeSet, state: NodeSetPowerState | None, events: Iterable[Event], *, now: datetime) -> Supply:
    """Sum up one NodeSet."""
    status = state.status if state else NodeSetPowerStateStatus()
    counts = Counter(it.state for it in status.node_states)
    rules = nodeset.policy
    used = _used(status, rules, now)
    try:
        limits = policy.effective(
            rules,
            size=nodeset.spec.replicas,
            now=now,
            used_today=used,
            default_idle=float(nodeset.spec.suspend_time or policy.IDLE_S),
        )
        told, step = _limits(limits), _next_step(state, limits, nodeset.spec.replicas, counts)
        maximum = policy.Limit(nodeset.spec.replicas, "") if limits.dry_run else limits.maximum
    except policy.PolicyError as error:
        told, step, maximum = "unknown", error.line, policy.Limit(nodeset.spec.replicas, "")
    return Supply(
        name=str(nodeset.metadata.key),
        cluster=nodeset.spec.controller_ref.name,
        announced=nodeset.spec.replicas,
        on=counts["PoweredUp"],
        starting=counts["PoweringUp"],
        stopping=counts["PoweringDown"],
        held=counts["Held"],
        limits=told,
        maximum=maximum.nodes,
        maximum_reason=maximum.reason,
        used_node_hours=round(used, 2),
        decisions=_decisions(nodeset, state, events),
        next_step=step,
    )


def _used(status: NodeSetPowerStateStatus, rules: Autoscale, now: datetime) -> float:
    if not status.used_day or status.used_at is None:
        return 0.0
    usage = policy.Usage(date.fromisoformat(status.used_day), status.used_node_hours, status.used_at)
    try:
        return policy.used_today(usage, rules.budget, now)
    except policy.PolicyError:
        return 0.0


def _limits(limits: policy.Effective) -> str:
    numbers = f"{limits.minimum.nodes} to {limits.maximum.nodes}, {limits.warm.nodes} warm"
    return f"{numbers}, idle {limits.idle.seconds:g} s{', dry run' if limits.dry_run else ''}"


def _next_step(
    state: NodeSetPowerState | None, limits: policy.Effective, announced: int, counts: Mapping[str, int]
) -> str:
    if state is None:
        return "the operator has not seen it yet"
    hold = state.status.hold
    if hold and hold.until:
        return f"tried again at {hold.until.astimezone(UTC):%H:%M:%S} UTC: {hold.cause}"
    if limits.exhausted:
        return limits.exhausted
    moving = condition(state.status.conditions, "ScalingInProgress")
    if moving and moving.status == "True":
        return f"{moving.message}"
    on = counts["PoweredUp"] + counts["PoweringUp"]
    return _when_at_rest(limits, full=on >= limits.maximum.nodes and limits.maximum.nodes < announced)


def _when_at_rest(limits: policy.Effective, *, full: bool) -> str:
    if full and not limits.dry_run:
        return f"no more nodes are started: {limits.maximum.reason}"
    if limits.next_change:
        return f"other limits from {limits.next_change:%Y-%m-%d %H:%M} UTC"
    return "nothing until a job needs nodes, or a node is idle"


def _decisions(nodeset: NodeSet, state: NodeSetPowerState | None, events: Iterable[Event]) -> tuple[Decision, ...]:
    """The last ones first: what Slurm was asked for, and what became of the nodes."""
    meta = nodeset.metadata
    found = [
        Decision(it.at.timestamp() if it.at else None, it.reason, it.message)
        for it in events
        if it.reason in _MADE
        and (it.metadata.namespace, it.involved_object.name) == (meta.namespace, meta.name)
        and it.involved_object.kind == "NodeSet"
    ]
    for it in state.status.conditions if state else ():
        if it.reason in _AT_REST:
            continue
        when = it.last_transition_time.timestamp() if it.last_transition_time else None
        found.append(Decision(when, it.reason, it.message))
    return tuple(sorted(found, key=lambda it: -(it.when or 0.0))[:_DECISIONS])
