"""Machines that are replaced: by deleting their Node, which their cloud answers with another machine.

It is allowed by a flag of the process, not by a policy alone, since it cannot be undone. With another flag, a
machine whose kubelet has been away for long is replaced without any other rung: whatever would repair it runs on
it. That is a finding like any other, so the limits hold: when half of the machines vanish, it is the network.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from isthmus.domain.health.view import Observation
from isthmus.model.health import HealthPolicySpec, LadderStep, Match, PolicyRule
from isthmus.model.meta import condition
from isthmus.model.node import Node

NOT_READY_FOR_LONG: Final = "NotReadyForLong"

_RULE: Final = PolicyRule(
    action="repair",
    match=Match(sources=("notReady",), checks=(NOT_READY_FOR_LONG,)),
    ladder=(LadderStep(rung="replace", timeout="1h"),),
)


class Replacement(msgspec.Struct, frozen=True):
    """What the flags allow."""

    allowed: bool = False
    not_ready_after: float | None = None
    """Seconds after which a machine is replaced whose kubelet is away; None for never."""


def permitted(spec: HealthPolicySpec, flags: Replacement) -> HealthPolicySpec:
    """A policy as far as the flags allow it."""
    if flags.allowed:
        rules = spec.rules if flags.not_ready_after is None else (*spec.rules, _RULE)
        return msgspec.structs.replace(spec, rules=rules)
    rules = tuple(
        it if it.ladder is None else msgspec.structs.replace(it, ladder=_without(it.ladder)) for it in spec.rules
    )
    return msgspec.structs.replace(spec, ladder=_without(spec.ladder), rules=rules)


def not_ready_since(machine: Node) -> datetime | None:
    """Since when a kubelet does not answer; None if it does."""
    ready = condition(machine.status.conditions, "Ready")
    return ready.last_transition_time if ready and ready.status != "True" else None


def not_ready_for_long(machine: Node, flags: Replacement, *, now: datetime) -> Observation | None:
    """A machine whose kubelet has been away for so long that it is to be replaced."""
    since = not_ready_since(machine)
    if since is None or not flags.allowed or flags.not_ready_after is None:
        return None
    due = since + timedelta(seconds=flags.not_ready_after)
    if now < due:
        return None
    return Observation(
        source="notReady",
        check=NOT_READY_FOR_LONG,
        evidence=f"the kubelet has not answered since {since.isoformat()}",
        at=due,
        reason=f"[node_problem] {NOT_READY_FOR_LONG}: the machine is replaced",
    )


def _without(ladder: tuple[LadderStep, ...]) -> tuple[LadderStep, ...]:
    return tuple(it for it in ladder if it.rung != "replace")
