"""What the flags about replacing machines allow."""

from datetime import UTC, datetime, timedelta

from isthmus.domain.health import policies
from isthmus.domain.health.findings import as_finding
from isthmus.domain.health.replacement import NOT_READY_FOR_LONG, Replacement, not_ready_for_long, permitted
from isthmus.model.health import HealthPolicySpec, LadderStep, PolicyRule
from isthmus.model.meta import Condition, ObjectMeta
from isthmus.model.node import Node, NodeStatus

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
REBOOT, REPLACE = LadderStep(rung="reboot"), LadderStep(rung="replace")


def away(minutes: float) -> Node:
    since = NOW - timedelta(minutes=minutes)
    ready = Condition(type="Ready", status="Unknown", reason="NodeStatusUnknown", last_transition_time=since)
    return Node(metadata=ObjectMeta(name="m"), status=NodeStatus(conditions=(ready,)))


def test_no_ladder_replaces_a_machine_unless_it_is_allowed() -> None:
    spec = HealthPolicySpec(
        ladder=(REBOOT, REPLACE), rules=(PolicyRule(action="repair", ladder=(REPLACE,)), PolicyRule(action="drain"))
    )
    found = permitted(spec, Replacement())
    assert found.ladder == (REBOOT,)
    assert [it.ladder for it in found.rules] == [(), None]
    assert permitted(spec, Replacement(allowed=True)) == spec


def test_a_kubelet_that_is_away_for_long_is_a_finding_that_replaces() -> None:
    flags = Replacement(allowed=True, not_ready_after=900)
    assert not_ready_for_long(away(14), flags, now=NOW) is None
    seen = not_ready_for_long(away(16), flags, now=NOW)
    assert seen
    assert seen.check == NOT_READY_FOR_LONG
    rule = policies.compiled(permitted(HealthPolicySpec(), flags)).rule_for(as_finding(seen))
    assert (rule.action, [it.rung for it in rule.ladder]) == ("repair", ["replace"])


def test_without_the_flag_it_is_none() -> None:
    assert not_ready_for_long(away(600), Replacement(allowed=True), now=NOW) is None
    assert not_ready_for_long(away(600), Replacement(not_ready_after=900), now=NOW) is None
