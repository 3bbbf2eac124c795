from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.domain.health.actions import Action, Climb, Drain, Notify, Record, Release, SetCondition
from isthmus.domain.health.decision import decide
from isthmus.domain.health.view import NodeView, Observation
from isthmus.model.health import RepairStep
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import Pod
from tests.unit.domain.health.scene import (
    NOW,
    REASON,
    ago,
    drained,
    failed,
    finding,
    held,
    look,
    machine,
    node,
    only,
    pod,
    slurm,
    status,
)


def ladder(*rungs: str, **fields: Any) -> dict[str, Any]:
    return {"ladder": [{"rung": it, "timeout": "5m"} for it in rungs]} | fields


def step(rung: Any = "restartPod", *, started: datetime | None = None, **fields: Any) -> RepairStep:
    given: dict[str, Any] = {"target": "p1" if rung == "restartPod" else "u1"}
    return RepairStep(rung=rung, started=started or ago(minutes=1), **(given | fields))


def repairing(rung: Any = "restartPod", **fields: Any) -> NodeView:
    given: dict[str, Any] = {
        "status": held("Repairing", steps=(step(rung),), tried=1),
        "slurm": drained(),
        "observations": [failed()],
    }
    return node(**(given | fields))


def idle(**fields: Any) -> NodeView:
    given: dict[str, Any] = {"status": held(), "slurm": drained(), "observations": [failed()]}
    return node(**(given | fields))


def reboot_asked(actions: list[Action]) -> bool:
    return any(it.type == "SlurmNodeReboot" and it.status == "True" for it in only(actions, SetCondition))


def test_an_idle_node_gets_its_first_rung_after_it_was_recorded() -> None:
    decided = decide(look(idle()))
    recorded = status(decided)
    assert (recorded.phase, recorded.tried) == ("Repairing", 1)
    assert recorded.steps == (RepairStep(rung="restartPod", started=NOW, target="p1"),)
    (climb,) = only(decided, Climb)
    assert climb == Climb("n1", "restartPod", pod=Key("default", "n1"), pod_uid="p1", machine="m1")
    assert isinstance(decided[0], Record)
    assert [it.phase for it in only(decided, Notify)] == ["Repairing"]


@pytest.mark.parametrize(
    "state",
    [
        drained(jobs=True),
        slurm("IDLE", "DRAIN", "COMPLETING", reason=REASON),
        drained(alloc_cpus=4),
        slurm("ALLOCATED", "DRAIN", reason=REASON),
    ],
)
@pytest.mark.parametrize("rung", ["restartPod", "resetDevice", "reboot", "replace"])
def test_no_rung_while_a_job_is_there(rung: str, state: Any) -> None:
    seen = failed(devices=("gpu-0",))
    waits = idle(slurm=state, observations=[seen])
    decided = decide(look(waits, policy=ladder(rung)))
    assert not only(decided, Climb)
    assert not reboot_asked(decided)
    at_work = decide(look(repairing(rung, slurm=state, observations=[seen]), policy=ladder(rung)))
    assert not only(at_work, Climb)
    assert not reboot_asked(at_work)


@pytest.mark.parametrize("policy", [{"paused": True}, {"mode": "shadow"}])
def test_no_rung_while_paused_or_in_shadow(policy: dict[str, Any]) -> None:
    assert not only(decide(look(idle(), policy=policy)), Climb)
    assert not only(decide(look(repairing(), policy=policy)), Climb)


def test_no_rung_for_a_check_in_a_storm() -> None:
    others = [node(f"o{it}", observations=[failed()]) for it in range(4)]
    decided = decide(look(idle(), *others))
    assert not only(decided, Climb)
    assert "not trusted" in status(decided).message


def test_a_rung_that_was_refused_or_lost_is_asked_for_again() -> None:
    assert only(decide(look(repairing())), Climb)
    going = Pod(metadata=ObjectMeta(name="n1", uid="p1", deletion_timestamp=NOW))
    assert not only(decide(look(repairing(pod=going))), Climb)


def test_a_restart_is_done_when_another_pod_answers() -> None:
    decided = decide(look(repairing(pod=pod("p2"))))
    assert status(decided).phase == "Testing"
    assert (status(decided).steps[-1].outcome, status(decided).steps[-1].ended) == ("done", NOW)
    assert not only(decide(look(repairing(pod=pod("p2"), pod_ready=False))), Record)
    away = slurm("DOWN", "DRAIN", "NOT_RESPONDING", reason=REASON)
    assert not only(decide(look(repairing(pod=pod("p2"), slurm=away))), Record)


def test_a_restarted_node_without_its_drain_is_drained_first() -> None:
    decided = decide(look(repairing(pod=pod("p2"), slurm=slurm(started=ago(seconds=1)))))
    assert only(decided, Drain) == [Drain(("n1",), REASON)]
    assert status(decided).phase == "Repairing"


def test_a_rung_that_takes_too_long_leads_to_the_next_or_to_a_human() -> None:
    late = held("Repairing", steps=(step(started=ago(minutes=5)),), tried=1)
    decided = decide(look(repairing(status=late)))
    assert status(decided).phase == "OutOfService"
    assert status(decided).steps[-1].outcome == "timed out"
    assert only(decided, Notify)[0].warning
    more = decide(look(repairing(status=late), policy=ladder("restartPod", "reboot")))
    assert status(more).phase == "Draining"


def test_rungs_that_do_not_fit_are_left_out() -> None:
    policy = ladder("restartPod", "resetDevice", "reboot")
    decided = decide(look(idle(pod=None), policy=policy))
    assert [it.rung for it in status(decided).steps] == ["reboot"]
    assert status(decided).tried == 3
    nothing = decide(look(idle(pod=None)))
    assert status(nothing).phase == "Testing"


def test_a_device_is_reset_and_the_end_is_recorded_afterwards() -> None:
    seen = failed(devices=("gpu-0", "gpu-1"))
    decided = decide(look(idle(observations=[seen]), policy=ladder("resetDevice")))
    (climb,) = only(decided, Climb)
    assert climb.devices == ("gpu-0", "gpu-1")
    first, last = only(decided, Record)
    assert first.status.steps[-1].ended is None
    assert last.status.steps[-1].outcome == "done"
    assert decided.index(climb) < decided.index(last)
    after = idle(status=last.status, observations=[seen])
    assert status(decide(look(after, policy=ladder("resetDevice")))).phase == "Testing"


def test_a_reboot_is_asked_for_by_a_condition_and_done_when_the_rebooter_says_so() -> None:
    policy = ladder("reboot")
    decided = decide(look(idle(), policy=policy))
    assert not only(decided, Climb)
    asked = next(it for it in only(decided, SetCondition) if it.type == "SlurmNodeReboot")
    assert (asked.status, asked.reason) == ("True", "NodeNeedReboot")
    under_way = machine(SlurmNodeReboot="True/NodeRebooting", SoperatorChecksNodeDegraded="True/NodeNeedReboot")
    assert decide(look(repairing("reboot", machine=under_way), policy=policy)) == []
    over = decide(look(repairing("reboot", machine=machine(SlurmNodeReboot="True/NodeRebooted")), policy=policy))
    assert status(over).phase == "Testing"
    cleared = next(it for it in only(over, SetCondition) if it.type == "SlurmNodeReboot")
    assert (cleared.status, cleared.reason) == ("False", "NodeRebooted")


def test_an_old_answer_of_the_rebooter_is_cleared_before_a_new_reboot() -> None:
    stale = idle(machine=machine(SlurmNodeReboot="True/NodeRebooted"))
    decided = decide(look(stale, policy=ladder("reboot")))
    assert status(decided).phase == "Draining"
    assert [it.status for it in only(decided, SetCondition) if it.type == "SlurmNodeReboot"] == ["False"]


def test_a_reboot_that_did_not_begin_in_time_is_called_off() -> None:
    late = held("Repairing", steps=(step("reboot", started=ago(hours=1)),), tried=1)
    told = machine(SlurmNodeReboot="True/NodeNeedReboot")
    decided = decide(look(repairing("reboot", status=late, machine=told), policy=ladder("reboot")))
    asked = next(it for it in only(decided, SetCondition) if it.type == "SlurmNodeReboot")
    assert (asked.status, asked.reason) == ("False", "NodeRebootCancelled")


def test_one_machine_is_rebooted_at_a_time() -> None:
    policy = ladder("reboot")
    busy = decide(look(idle(), policy=policy, rebooting=frozenset({"m9"})))
    assert not reboot_asked(busy)
    assert "maxReboots" in status(busy).message
    two = [idle(), idle_on("n2", "m2")]
    started = only(decide(look(*two, policy=policy | {"limits": {"maxUnavailable": 2}})), SetCondition)
    assert len([it for it in started if it.type == "SlurmNodeReboot"]) == 1


def idle_on(name: str, place: str, **fields: Any) -> NodeView:
    given: dict[str, Any] = {
        "status": held(machine=place),
        "slurm": drained(name=name),
        "observations": [failed()],
        "machine": machine(place, f"u-{place}"),
    }
    return node(name, **(given | fields))


def test_reboots_wait_for_a_window_and_restarts_do_not() -> None:
    window = {"limits": {"windows": [{"start": "02:00", "end": "04:00"}]}}
    decided = decide(look(idle(), policy=ladder("reboot") | window))
    assert not reboot_asked(decided)
    assert "no maintenance window is open" in status(decided).message
    assert only(decide(look(idle(), policy=window)), Climb)


def test_neighbours_are_drained_before_the_machine_goes_down() -> None:
    policy = ladder("reboot", limits={"maxUnavailable": "100%"})
    first = idle(neighbours=("n2",))
    other = node("n2", slurm=slurm("MIXED", name="n2"), neighbours=("n1",))
    decided = decide(look(first, other, policy=policy))
    assert not reboot_asked(decided)
    assert only(decided, Drain) == [Drain(("n2",), "[compute_maintenance] node reboot process")]
    assert "n2 on the same machine" in status(decided).message
    empty = node(
        "n2",
        status=status(decided, "n2"),
        slurm=drained("[compute_maintenance] node reboot process", name="n2"),
        neighbours=("n1",),
    )
    assert reboot_asked(decide(look(first, empty, policy=policy)))
    at_work = repairing("reboot", neighbours=("n2",), machine=machine(SlurmNodeReboot="True/NodeRebooting"))
    assert not only(decide(look(at_work, empty, policy=policy)), Release)
    done = idle(status=held("Recovered", reason=""), slurm=slurm(), observations=[], neighbours=("n2",))
    back = decide(look(done, empty, policy=policy))
    assert status(back, "n2").findings[0].cleared == NOW


def test_a_neighbour_that_somebody_resumed_is_asked_for_again_after_an_hour() -> None:
    policy = ladder("reboot", limits={"maxUnavailable": "100%"})
    for refused, asked in ((ago(minutes=59), False), (ago(minutes=60), True)):
        claim = finding("machine_repair", source="maintenance", proof="gone", cleared=refused, dismissed=True)
        other = node("n2", status=held("Recovered", reason="", findings=(claim,)), neighbours=("n1",))
        waits = idle(status=held(drained=ago(hours=2)), neighbours=("n2",))
        assert bool(only(decide(look(waits, other, policy=policy)), Drain)) is asked


def test_an_unknown_neighbour_keeps_the_machine_up() -> None:
    decided = decide(look(idle(neighbours=("ghost",)), policy=ladder("reboot")))
    assert not reboot_asked(decided)


def test_of_two_bad_nodes_on_a_machine_one_reboots_it_for_both() -> None:
    policy = ladder("reboot", limits={"maxUnavailable": "100%"})
    nodes = [idle(neighbours=("n2",)), idle_on("n2", "m1", neighbours=("n1",))]
    decided = decide(look(*nodes, policy=policy))
    assert len([it for it in only(decided, SetCondition) if it.type == "SlurmNodeReboot"]) == 1
    steps = (step("reboot", started=ago(minutes=5), ended=ago(minutes=1), outcome="done"),)
    rebooted = idle(status=held("Testing", steps=steps, tried=1), neighbours=("n2",))
    second = idle_on("n2", "m1", neighbours=("n1",))
    decided = decide(look(rebooted, second, policy=policy))
    assert not reboot_asked(decided)
    assert status(decided, "n2").steps[-1].outcome == "done for another node of the machine"


def test_a_machine_is_deleted_only_after_its_pods_were_seen_off() -> None:
    policy = ladder("replace")
    decided = decide(look(idle(), policy=policy))
    assert not only(decided, Climb)
    shown = {it.type: it.reason for it in only(decided, SetCondition)}
    assert shown["SlurmNodeDrain"] == "NodeNeedDrain"
    assert shown["HardwareIssuesSuspected"] == "GPUHealthCheckFailedSoperator"
    leaving = repairing("replace", machine=machine(SlurmNodeDrain="True/NodeDraining"))
    assert not only(decide(look(leaving, policy=policy)), Climb)
    empty = repairing("replace", machine=machine(SlurmNodeDrain="True/NodeDrained"))
    assert only(decide(look(empty, policy=policy)), Climb) == [Climb("n1", "replace", machine="m1")]
    dead = machine(SlurmNodeDrain="True/NodeNeedDrain", Ready="Unknown/NodeStatusUnknown")
    gone = slurm("DOWN", "DRAIN", "NOT_RESPONDING", reason=REASON)
    assert only(decide(look(repairing("replace", machine=dead, slurm=gone), policy=policy)), Climb)
    new = repairing("replace", machine=machine("m2", "u2"), pod=pod("p2"))
    assert status(decide(look(new, policy=policy))).phase == "Testing"


def test_after_so_many_rungs_in_a_week_a_human_decides() -> None:
    steps = tuple(step(started=ago(days=it), ended=ago(days=it), outcome="done") for it in (1, 2, 3, 4))
    decided = decide(look(idle(status=held(steps=steps))))
    assert status(decided).phase == "OutOfService"
    assert not only(decided, Climb)
    older = (replace(steps[0], started=ago(days=8)), *steps[1:])
    again = decide(look(idle(status=held(steps=older))))
    assert status(again).phase == "Repairing"
    assert len(status(again).steps) == 4


def test_a_node_out_of_service_goes_on_only_for_something_new() -> None:
    policy = ladder(
        "restartPod", rules=[{"action": "repair", "match": {"checks": ["Dead"]}, "ladder": [{"rung": "replace"}]}]
    )
    out = held("OutOfService", since=ago(seconds=30), tried=1)
    assert not only(decide(look(idle(status=out), policy=policy)), Record)
    dead = Observation(source="notReady", check="Dead", at=ago(seconds=9))
    decided = decide(look(idle(status=out, observations=[failed(), dead]), policy=policy))
    assert status(decided).phase == "Draining"
    assert status(decided).message == "Dead was also found; replace follows"


def test_hardware_without_a_test_is_proved_by_another_machine() -> None:
    bad = finding("NVLink", source="healthcheck", proof="machine", last_seen=ago(hours=1))
    waits = held("Testing", findings=(bad,), tried=1)
    assert not only(decide(look(idle(status=waits, observations=[]))), Release)
    new = idle(status=waits, observations=[], machine=machine(made=ago(minutes=20)))
    assert only(decide(look(new)), Release)


def test_a_completed_rung_ends_what_slurm_itself_found() -> None:
    stuck = finding("kill_task_failed", source="epilog", proof="repair")
    at_work = held("Repairing", findings=(stuck,), steps=(step(),), tried=1)
    decided = decide(look(repairing(status=at_work, observations=[], pod=pod("p2"))))
    assert only(decided, Release)
    assert status(decided).phase == "Recovered"
