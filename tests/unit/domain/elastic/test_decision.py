"""Which nodes of an elastic NodeSet are on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from isthmus.domain.elastic.decision import (
    CAPACITY_S,
    FENCED,
    HELD,
    PodState,
    PowerDecision,
    PowerView,
    Request,
    Slot,
    decide,
    in_turn,
    is_off,
    phase_of,
)
from isthmus.domain.elastic.policy import effective
from isthmus.model.elastic import Autoscale, Budget
from isthmus.model.powerstate import CapacityHold, NodePower
from isthmus.model.slurm import Node, Number

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def slot(
    ordinal: int,
    *states: str,
    pod: PodState = "none",
    placed: bool = False,
    reason: str = "",
    idle: float = 0,
    trouble: str = "",
    doomed: bool = False,
) -> Slot:
    busy = Number(set=True, number=NOW.timestamp() - idle)
    record = Node(name=f"w-{ordinal}", state=(*states, "CLOUD"), reason=reason, last_busy=busy) if states else None
    return Slot(
        ordinal=ordinal,
        name=f"w-{ordinal}",
        record=record,
        pod=pod,
        placed=placed,
        trouble=trouble,
        doomed=doomed,
    )


def off(ordinal: int, *more: str, **given: Any) -> Slot:
    return slot(ordinal, "IDLE", "POWERED_DOWN", *more, **given)


def starting(ordinal: int, **given: Any) -> Slot:
    return slot(ordinal, "ALLOCATED", "POWERING_UP", "NOT_RESPONDING", **{"pod": "pending", **given})


def idle(ordinal: int, seconds: float = 10, **given: Any) -> Slot:
    return slot(ordinal, "IDLE", **{"pod": "ready", "idle": seconds, **given})


def busy(ordinal: int) -> Slot:
    return slot(ordinal, "ALLOCATED", pod="ready")


def decided(
    *slots: Slot,
    active: set[int] | None = None,
    written: set[int] | None = None,
    policy: Autoscale | None = None,
    used: float = 0.0,
    **more: Any,
) -> PowerDecision:
    on = {it.ordinal for it in slots if it.phase in {"on", "starting"}}
    limits = effective(policy or Autoscale(), size=len(slots), now=NOW, used_today=used)
    view = PowerView(
        slots=slots,
        active=frozenset(on if active is None else active),
        written=frozenset((on if active is None else active) if written is None else written),
        limits=limits,
        now=NOW,
        **more,
    )
    return decide(view)


def asked(found: PowerDecision) -> list[tuple[str, tuple[str, ...]]]:
    return [(it.verb, it.names) for it in found.requests]


@pytest.mark.parametrize(
    ("states", "reason", "phase"),
    [
        (("IDLE", "POWERED_DOWN"), "", "off"),
        (("IDLE", "POWERED_DOWN", "DRAIN"), FENCED, "off"),
        (("ALLOCATED", "POWERED_DOWN"), "", "off"),
        (("ALLOCATED", "POWERING_UP", "NOT_RESPONDING"), "", "starting"),
        (("IDLE",), "", "on"),
        (("MIXED", "DRAIN"), "", "on"),
        (("IDLE", "POWERING_DOWN"), "", "stopping"),
        (("DOWN", "POWERED_DOWN"), "ResumeTimeout reached", "failed"),
        (("DOWN", "POWERING_UP"), f"{HELD}no machine", "held"),
        (("FUTURE",), "NO NETWORK ADDRESS FOUND", "unknown"),
    ],
)
def test_how_far_a_node_is(states: tuple[str, ...], reason: str, phase: str) -> None:
    assert phase_of(Node(name="w-0", state=(*states, "CLOUD"), reason=reason)) == phase


def test_a_node_that_is_off_and_given_to_a_job_is_not_free() -> None:
    assert is_off(Node(name="w-0", state=("IDLE", "CLOUD", "POWERED_DOWN")))
    assert not is_off(Node(name="w-0", state=("ALLOCATED", "CLOUD", "POWERED_DOWN")))
    assert not is_off(Node(name="w-0", state=("IDLE", "CLOUD")))


def test_all_nodes_of_a_gang_are_activated_at_once() -> None:
    found = decided(*(starting(it, pod="none") for it in range(3)), off(3), active=set())
    assert found.active == found.startable == found.written == {0, 1, 2}
    assert asked(found) == []


def test_a_node_that_stops_is_active_no_longer_and_settles_when_its_pod_is_gone() -> None:
    found = decided(slot(0, "IDLE", "POWERING_DOWN", pod="ready"), active={0})
    assert (found.active, asked(found)) == (frozenset(), [])
    found = decided(slot(0, "IDLE", "POWERING_DOWN"), active=set())
    assert asked(found) == [("Settle", ("w-0",))]


def test_without_slurm_nothing_changes() -> None:
    found = decided(off(0), starting(1), off(2), active={0, 1}, policy=Autoscale(min=3), in_touch=False)
    assert found.active == {0, 1}
    assert not found.requests
    assert found.startable == {1}, "a pod is made for a node that Slurm started, as far as it has said"


def test_a_node_that_slurm_does_not_know_yet_is_left_as_it_is() -> None:
    found = decided(slot(0), slot(1), active={0})
    assert found.active == {0}
    assert not found.startable


# What people ask for


def test_an_ordinal_that_somebody_added_is_powered_up() -> None:
    found = decided(off(0), off(1), active={1}, written=set())
    assert asked(found) == [("PowerUp", ("w-1",))]
    assert found.active == {1}
    assert not found.written | found.startable
    again = decided(off(0), off(1, "POWER_UP"), active={1}, written=set())
    assert not again.requests
    assert again.active == {1}


def test_an_ordinal_that_somebody_removed_is_powered_down_and_keeps_its_pod_until_then() -> None:
    found = decided(busy(0), active=set(), written={0})
    assert asked(found) == [("PowerDown", ("w-0",))]
    assert found.active == {0}


def test_nobody_gets_more_than_the_maximum() -> None:
    found = decided(idle(0), off(1), active={0, 1}, written={0}, policy=Autoscale(max=1))
    assert ("PowerUp", ("w-1",)) not in asked(found)
    assert found.active == {0}
    assert found.refused == "w-1 is not started: autoscale.max is 1"


# Limits


def test_the_lowest_nodes_are_started_for_the_minimum() -> None:
    assert asked(decided(off(0), off(1), off(2), policy=Autoscale(min=2))) == [("PowerUp", ("w-0", "w-1"))]
    assert asked(decided(off(0, "POWER_UP"), starting(1), off(2), policy=Autoscale(min=2))) == []


def test_idle_nodes_are_kept_warm_beside_busy_ones_and_awake() -> None:
    warm = Autoscale(warm=1)
    assert asked(decided(busy(0), off(1), off(2), policy=warm)) == [("PowerUp", ("w-1",))]
    assert asked(decided(busy(0), idle(1), off(2), policy=warm)) == []
    assert asked(decided(busy(0), idle(1, 151), off(2), policy=warm)) == [("KeepAwake", ("w-1",))]


def test_what_slurm_keeps_on_by_itself_needs_no_waking() -> None:
    assert asked(decided(idle(0, 299), off(1), policy=Autoscale(min=1), kept_by_slurm=1)) == []


def test_nodes_above_the_maximum_are_not_given_to_jobs() -> None:
    found = decided(busy(0), off(1), off(2), off(3), policy=Autoscale(max=2))
    assert asked(found) == [("Fence", ("w-3", "w-2"))] or asked(found) == [("Fence", ("w-2", "w-3"))]
    assert found.requests[0].why == f"{FENCED}autoscale.max is 2"
    fenced = (off(it, "DRAIN", reason=f"{FENCED}autoscale.max is 2") for it in (2, 3))
    assert asked(decided(busy(0), off(1), *fenced, policy=Autoscale(max=2))) == []


def test_a_fence_names_the_limit_that_holds() -> None:
    before = off(1, "DRAIN", reason=f"{FENCED}autoscale.max is 1")
    budget = Budget(node_hours_per_day=10)
    found = decided(busy(0), before, policy=Autoscale(budget=budget), used=11)
    assert asked(found) == [("Fence", ("w-1",))]
    # Numbers that change all the time are no news.
    told = found.requests[0].why
    assert asked(decided(busy(0), off(1, "DRAIN", reason=told), policy=Autoscale(budget=budget), used=12)) == []


def test_a_fence_is_taken_away_when_there_is_room() -> None:
    fenced = off(1, "DRAIN", reason=f"{FENCED}autoscale.max is 1")
    assert asked(decided(busy(0), fenced)) == [("Unfence", ("w-1",))]


def test_a_drain_of_somebody_else_is_nobody_elses_business() -> None:
    theirs = off(1, "DRAIN", reason="bad memory")
    assert asked(decided(busy(0), theirs, policy=Autoscale(min=2))) == []


def test_our_drain_of_a_pod_that_is_gone_does_not_outlive_its_node() -> None:
    left = off(0, "DRAIN", reason="slurm-operator: Pod (n/w-0) is pending termination for update")
    assert asked(decided(left)) == [("Unfence", ("w-0",))]


def test_idle_nodes_go_when_there_are_too_many_and_busy_ones_do_not() -> None:
    found = decided(busy(0), idle(1), idle(2), policy=Autoscale(max=2))
    assert asked(found) == [("PowerDown", ("w-2",))]
    assert asked(decided(busy(0), busy(1), policy=Autoscale(max=1))) == []


def test_a_node_that_the_plan_needs_is_not_stopped() -> None:
    planned = slot(1, "IDLE", "PLANNED", pod="ready")
    assert asked(decided(busy(0), planned, policy=Autoscale(max=1))) == []


def test_a_node_whose_machine_goes_is_powered_down_when_it_runs_nothing() -> None:
    reason = "slurm-operator: Node (k1) is being reclaimed by AWS (spot), Pod (n/w-0) must be cordoned"
    going: dict[str, Any] = {"pod": "ready", "doomed": True, "reason": reason}
    found = decided(slot(0, "IDLE", "DRAIN", **going), policy=Autoscale(min=1))
    assert asked(found) == [("PowerDown", ("w-0",))]
    assert found.requests[0].why == "its machine is being removed"
    # With jobs, before it is drained, when it is asked for already, and for reasons of others, it is left alone.
    assert asked(decided(slot(0, "ALLOCATED", "DRAIN", **going))) == []
    assert asked(decided(slot(0, "IDLE", **{**going, "reason": ""}))) == []
    assert asked(decided(slot(0, "IDLE", "DRAIN", "POWER_DOWN", **going))) == []
    assert asked(decided(slot(0, "IDLE", "DRAIN", **{**going, "reason": "bad memory"}))) == []
    assert asked(decided(slot(0, "IDLE", "DRAIN", **{**going, "doomed": False}))) == []


def test_a_used_up_budget_starts_nothing_and_lets_jobs_end() -> None:
    policy = Autoscale(min=1, budget=Budget(node_hours_per_day=10))
    found = decided(busy(0), idle(1), off(2), policy=policy, used=11)
    assert [it.verb for it in found.requests] == ["Fence", "PowerDown"]
    assert "the budget is used up" in found.requests[0].why


def test_an_idle_time_shorter_than_slurms_own_is_kept() -> None:
    found = decided(idle(0, 200), idle(1, 100), policy=Autoscale(idle_time="3m"))
    assert asked(found) == [("PowerDown", ("w-0",))]


def test_the_longest_one_is_kept_by_slurm_itself() -> None:
    found = decided(idle(0, 200), idle(1, 700), policy=Autoscale(idle_time="10m"), idle_in_slurm=600.0)
    assert asked(found) == []


def test_a_request_without_effect_leaves_its_turn_to_others() -> None:
    fences = Request("Fence", ("a", "b", "c"), "why")
    first, second, other = *fences.parts(2), Request("PowerDown", ("d",), "why")
    assert (first.names, second.names) == (("a", "b"), ("c",))
    assert in_turn((fences, other), None, size=2) == [first, second, other]
    assert in_turn((fences, other), first, size=2) == [second, other, first]


def test_a_dry_run_asks_for_nothing() -> None:
    policy = Autoscale(min=2, max=2, warm=1, dry_run=True)
    assert asked(decided(idle(0), idle(1), idle(2), off(3), policy=policy)) == []


# Capacity


def late(seconds: float = CAPACITY_S) -> tuple[NodePower, ...]:
    return (NodePower(0, "PoweringUp", NOW - timedelta(seconds=seconds)),)


def test_a_pod_that_does_not_run_in_time_sends_its_job_elsewhere() -> None:
    found = decided(starting(0, trouble="pod w-0 cannot be scheduled"), off(1), states=late())
    assert asked(found) == [("Fence", ("w-1",)), ("SetDown", ("w-0",))]
    assert found.requests[1].why == f"{HELD}pod w-0 cannot be scheduled"
    assert found.hold == CapacityHold(1, NOW + timedelta(seconds=60), "pod w-0 cannot be scheduled")
    assert found.active == frozenset()
    assert "tried again at 12:01:00 UTC: pod w-0 cannot be scheduled" in found.wrong[0]


@pytest.mark.parametrize("pod", ["pending", "running"])
def test_a_pod_that_fails_on_its_machine_sends_its_job_elsewhere(pod: PodState) -> None:
    crashes = starting(0, pod=pod, placed=True, trouble="pod w-0: slurmd crashes")
    assert asked(decided(crashes, states=late())) == [("SetDown", ("w-0",))]


def test_a_pod_that_gets_on_and_one_in_its_time_are_waited_for() -> None:
    for pod in ("pending", "running"):  # such as one that pulls an image
        assert asked(decided(starting(0, pod=pod, placed=True), states=late())) == []
    found = decided(starting(0), states=late(CAPACITY_S - 30))
    assert (asked(found), found.look_again) == ([], 30)


def test_the_hold_doubles_and_ends_when_a_node_comes() -> None:
    before = CapacityHold(3, NOW - timedelta(seconds=1), "x")
    found = decided(starting(0), states=late(), hold=before)
    assert found.hold
    assert (found.hold.failures, found.hold.until) == (4, NOW + timedelta(seconds=480))
    assert decided(idle(0), hold=before).hold is None
    assert decided(off(0), hold=before).hold == before


def test_held_nodes_come_back_when_the_hold_is_over() -> None:
    held = slot(0, "DOWN", "POWERED_DOWN", reason=f"{HELD}x")
    fenced = off(1, "DRAIN", reason=f"{FENCED}x")
    now = decided(held, fenced, hold=CapacityHold(1, NOW + timedelta(seconds=9), "x"))
    assert (asked(now), now.look_again) == ([], 9)
    over = decided(held, fenced, hold=CapacityHold(1, NOW, "x"))
    assert asked(over) == [("PowerDown", ("w-0",)), ("Unfence", ("w-1",))]


def test_a_clock_that_was_set_back_makes_nobody_wait_for_longer() -> None:
    """What was written an hour ahead of now."""
    ahead = timedelta(hours=1)
    fenced = off(1, "DRAIN", reason=f"{FENCED}x")
    found = decided(fenced, hold=CapacityHold(1, NOW + ahead, "x"))
    assert asked(found) == [("Unfence", ("w-1",))]
    since = (NodePower(0, "PoweringUp", NOW + ahead),)
    found = decided(starting(0), states=since)
    assert (found.states[0].since, found.look_again) == (NOW, CAPACITY_S)


def test_a_node_that_slurm_gave_up_is_held_as_well() -> None:
    found = decided(slot(0, "DOWN", "POWERED_DOWN", reason="ResumeTimeout reached"), off(1))
    assert asked(found) == [("Fence", ("w-1",)), ("SetDown", ("w-0",))]
    assert found.hold


def test_a_node_that_somebody_set_down_stays_so() -> None:
    assert asked(decided(slot(0, "DOWN", "POWERED_DOWN", reason="bad disk"))) == []


def test_slurm_reads_its_files_again_for_nodes_that_it_does_not_have() -> None:
    assert decided(off(0), slot(1)).unlisted == ("w-1",)
    assert decided(off(0), idle(1)).unlisted == ()
    # One that has a pod is on its way out, or comes back by itself.
    assert decided(off(0), slot(1, pod="leaving")).unlisted == ()
    assert decided(slot(0), in_touch=False).unlisted == ()


def test_a_node_that_is_off_and_down_for_no_reason_comes_back() -> None:
    (request,) = decided(off(0), slot(1, "DOWN", "POWERED_DOWN")).requests
    assert (request.verb, request.names) == ("PowerDown", ("w-1",))
    assert decided(off(0), slot(1, "DOWN", "POWERED_DOWN", reason="bad disk")).requests == ()
    assert decided(off(0), slot(1, "DOWN", "DRAIN", "POWERED_DOWN")).requests == ()
