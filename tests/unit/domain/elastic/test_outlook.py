"""What people are told of elastic nodes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from isthmus.domain.elastic.outlook import WaitingJob, limited, supply, waiting
from isthmus.model.event import Event
from isthmus.model.powerstate import NodeSetPowerState
from isthmus.model.slinky import NodeSet

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)

QUEUE = """\
12|alice|4|PENDING|Resources
13_1|alice|1|PENDING|Priority
14|bob|2|CONFIGURING|None
15|bob|1|PENDING|Dependency
16|bob|1|PENDING|AssocGrpCpuLimit
17|bob|3|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu-[0-3]
slurm_load_jobs error: Unable to contact slurm controller
18|x|many|PENDING|Resources
"""


def nodeset(**autoscale: Any) -> NodeSet:
    return msgspec.convert(
        {
            "metadata": {"name": "gpu", "namespace": "hpc"},
            "spec": {"controllerRef": {"name": "demo"}, "replicas": 10, "autoscale": autoscale},
        },
        NodeSet,
    )


def state(**status: Any) -> NodeSetPowerState:
    return msgspec.convert({"metadata": {"name": "gpu", "namespace": "hpc"}, "status": status}, NodeSetPowerState)


def event(reason: str, message: str, *, minutes: int, name: str = "gpu") -> Event:
    when = (NOW - timedelta(minutes=minutes)).isoformat()
    return msgspec.convert(
        {
            "metadata": {"name": "x", "namespace": "hpc"},
            "involvedObject": {"kind": "NodeSet", "name": name},
            "reason": reason,
            "message": message,
            "lastTimestamp": when,
        },
        Event,
    )


def test_only_jobs_that_wait_for_nodes_are_demand() -> None:
    assert [it.id for it in waiting(QUEUE)] == ["12", "13_1", "14", "17"]
    assert waiting(QUEUE)[2] == WaitingJob("14", "bob", 2, "CONFIGURING", "None")


def test_nodes_are_counted_by_state_and_the_rest_is_off() -> None:
    states = [
        {"ordinal": place, "state": it}
        for place, it in enumerate(("PoweredUp", "PoweredUp", "PoweringUp", "PoweringDown", "Held"))
    ]
    found = supply(nodeset(max=8, warm=2, idleTime="1m"), state(nodeStates=states), (), now=NOW)
    assert (found.announced, found.on, found.starting, found.stopping, found.held, found.off) == (10, 2, 1, 1, 1, 5)
    assert found.limits == "0 to 8, 2 warm, idle 60 s"


def test_a_hold_is_the_next_step_with_its_cause() -> None:
    hold = {"failures": 2, "until": (NOW + timedelta(minutes=2)).isoformat(), "cause": "image x cannot be pulled"}
    found = supply(nodeset(), state(hold=hold), (), now=NOW)
    assert found.next_step == "tried again at 12:02:00 UTC: image x cannot be pulled"


def test_a_used_up_budget_is_the_next_step() -> None:
    used = {"usedDay": "2026-11-18", "usedNodeHours": 12.0, "usedAt": NOW.isoformat()}
    found = supply(nodeset(budget={"nodeHoursPerDay": 10}), state(**used), (), now=NOW)
    assert found.next_step.startswith("the budget is used up: 12.0 of 10 node-hours")
    assert found.used_node_hours == 12
    assert supply(nodeset(), state(**used), (), now=NOW + timedelta(days=1)).used_node_hours == 0


def test_what_moves_what_changes_and_what_rests_is_said() -> None:
    moving = {
        "type": "ScalingInProgress",
        "status": "True",
        "reason": "NodesStartOrStop",
        "message": "3 are starting",
    }
    assert supply(nodeset(), state(conditions=[moving]), (), now=NOW).next_step == "3 are starting"
    entry = {"from": "18:00", "to": "20:00", "max": 1}
    later = supply(nodeset(schedule=[entry]), state(), (), now=NOW)
    assert later.next_step == "other limits from 2026-11-18 18:00 UTC"
    assert "nothing until" in supply(nodeset(), state(), (), now=NOW).next_step
    assert supply(nodeset(), None, (), now=NOW).next_step == "the operator has not seen it yet"


def test_a_job_that_needs_more_nodes_than_may_be_on_is_told_the_limits() -> None:
    found = supply(nodeset(max=3), state(), (), now=NOW)
    jobs = limited(waiting(QUEUE), [found])
    assert {it.id: it.limit for it in jobs if it.limit} == {
        "12": "NodeSets allow no more than 3 nodes (hpc/gpu: autoscale.max is 3)"
    }
    assert not any(it.limit for it in limited(waiting(QUEUE), [found], others=1)), "other nodes count"
    for unlimited in (nodeset(), nodeset(max=3, dryRun=True)):
        assert not any(it.limit for it in limited(waiting(QUEUE), [supply(unlimited, state(), (), now=NOW)]))


def test_where_no_more_nodes_may_start_that_is_the_next_step() -> None:
    states = [{"ordinal": it, "state": "PoweredUp"} for it in range(3)]
    there = state(nodeStates=states)
    assert supply(nodeset(max=3), there, (), now=NOW).next_step == "no more nodes are started: autoscale.max is 3"
    assert supply(nodeset(max=4), there, (), now=NOW).next_step.startswith("nothing until a job needs nodes")
    assert supply(nodeset(max=3, dryRun=True), there, (), now=NOW).next_step.startswith("nothing until")


def test_decisions_are_its_own_events_and_conditions_newest_first() -> None:
    since = (NOW - timedelta(minutes=3)).isoformat()
    moving = {"type": "ScalingInProgress", "status": "True", "reason": "NodesStartOrStop", "message": "gpu-0"}
    rest = {"type": "Ready", "status": "True", "reason": "ActiveNodesReconciled", "message": "2 of 2 are ready"}
    events = (
        event("PowerUpRequested", "gpu-0: autoscale.min is 1", minutes=9),
        event("PoweringUp", "Slurm starts gpu-0", minutes=8),
        event("NoCapacity", "gpu-1: unschedulable", minutes=1),
        event("PowerUpRequested", "other-0: …", minutes=2, name="other"),
        event("Unrelated", "…", minutes=2),
    )
    told = [{**it, "lastTransitionTime": since} for it in (moving, rest)]
    found = supply(nodeset(), state(conditions=told), events, now=NOW)
    expected = ["NoCapacity", "NodesStartOrStop", "PoweringUp", "PowerUpRequested"]
    assert [it.reason for it in found.decisions] == expected


def test_a_policy_that_cannot_be_applied_is_shown_and_breaks_nothing() -> None:
    found = supply(nodeset(schedule=[{"from": "08:00", "to": "09:00", "timeZone": "Mars"}]), state(), (), now=NOW)
    assert "'Mars' is not known" in found.next_step
