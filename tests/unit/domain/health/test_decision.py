"""Whole decisions: what a look at some nodes leads to."""

from msgspec.structs import replace

from isthmus.domain.health.actions import (
    Comment,
    Drain,
    Notify,
    Record,
    Requeue,
    SetCondition,
)
from isthmus.domain.health.decision import decide, storm_texts
from isthmus.domain.health.view import NodeView, Observation
from isthmus.model.health import NodeHealthStatus
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
    slurm,
    status,
)


def test_a_cluster_in_order_leads_to_nothing() -> None:
    assert decide(look(node("n1"), node("n2"))) == []


def test_a_condemned_node_is_recorded_then_drained() -> None:
    record, notice, drain, shown = decide(look(node(observations=[failed()])))
    assert isinstance(record, Record)
    assert (record.status.phase, record.status.reason, record.status.drained) == ("Draining", REASON, None)
    assert record.status.machine == "m1"
    assert isinstance(notice, Notify)
    assert (notice.phase, notice.warning) == ("Draining", True)
    assert drain == Drain(("n1",), REASON)
    assert isinstance(shown, SetCondition)
    assert (shown.type, shown.reason) == ("SoperatorChecksNodeDegraded", "NodeDraining")


def test_nodes_with_one_reason_are_drained_together_and_within_limits() -> None:
    seen = failed(reason="one reason", at=ago(hours=2))
    nodes = [node(f"n{it}", slurm=slurm(name=f"n{it}"), observations=[seen]) for it in range(10)]
    decided = decide(look(*nodes, policy={"limits": {"storm": {"share": "100%"}, "maxUnavailable": "30%"}}))
    (drain,) = only(decided, Drain)
    assert drain == Drain(("n0", "n1", "n2"), "one reason")
    assert status(decided, "n3").phase == "Waiting"
    assert "at most 3 nodes" in status(decided, "n3").message


def test_who_waits_longest_is_drained_first() -> None:
    nodes = [node(f"n{it}", observations=[failed(at=ago(minutes=50 - it))]) for it in range(5)]
    limits = {"storm": {"share": "100%"}, "maxUnavailable": 1}
    nodes.append(node("old", observations=[failed(at=ago(hours=2))]))
    assert only(decide(look(*nodes, policy={"limits": limits})), Drain)[0].nodes == ("old",)


def test_a_decision_that_was_carried_out_is_not_made_again() -> None:
    first = status(decide(look(node(observations=[failed()]))))
    busy = node(status=first, slurm=drained(jobs=True), observations=[failed()])
    second = decide(look(busy))
    assert status(second).drained == NOW
    assert not only(second, Drain)
    told = machine(SoperatorChecksNodeDegraded="True/NodeDraining")
    assert decide(look(replace(with_status(busy, status(second)), machine=told))) == []


def with_status(view: NodeView, recorded: NodeHealthStatus) -> NodeView:
    return node(
        view.name,
        status=recorded,
        slurm=view.slurm,
        observations=view.observations,
        machine=view.machine,
        test=view.test,
        reserved=view.reserved,
    )


def test_what_is_ignored_is_not_even_recorded() -> None:
    assert decide(look(node(observations=[failed()]), policy={"rules": [{"action": "ignore"}]})) == []


def test_while_slurm_is_away_findings_are_recorded_and_nothing_else_is_done() -> None:
    decided = decide(look(node(observations=[failed()]), slurm_in_touch=False))
    assert status(decided).phase == "Suspect"
    assert {type(it) for it in decided} <= {Record, Notify}
    idle = node(status=held(), slurm=drained())
    assert decide(look(idle, slurm_in_touch=False)) == []


def test_a_storm_is_not_acted_on_and_is_told() -> None:
    nodes = [node(f"n{it}", observations=[failed()]) for it in range(5)]
    view = look(*nodes)
    decided = decide(view)
    assert not only(decided, Drain)
    assert {it.status.phase for it in only(decided, Record)} == {"Waiting"}
    (told,) = storm_texts(view)
    assert told.startswith("gpu: failed on many nodes at once; ignored until 2026-03-04T12:29Z")


def test_jobs_run_on_and_are_requeued_only_after_the_policys_deadline() -> None:
    busy = node(status=held(), slurm=drained(jobs=True), observations=[failed()])
    decided = decide(look(busy))
    assert not only(decided, Requeue)
    assert status(decided).message == "drained; waits for its jobs to end"
    for deadline, asked in (("11m", False), ("10m", True)):
        policy = {"rules": [{"action": "repair", "jobDeadline": deadline}]}
        assert bool(only(decide(look(busy, policy=policy)), Requeue)) is asked
        assert not only(decide(look(busy, policy=policy | {"paused": True})), Requeue)


def test_a_comment_is_written_kept_and_taken_away() -> None:
    seen = failed(wants="comment", reason="[warn] gpu: job 7 [slurm_job]")
    decided = decide(look(node(observations=[seen])))
    assert only(decided, Comment) == [Comment("n1", "[warn] gpu: job 7 [slurm_job]")]
    assert not only(decided, Drain)
    there = slurm(comment="[warn] gpu: job 7 [slurm_job]")
    assert decide(look(node(status=status(decided), slurm=there, observations=[seen]))) == []
    over = decide(look(node(status=status(decided), slurm=there)))
    assert only(over, Comment) == [Comment("n1", "")]
    gone = decide(look(node(status=status(over), slurm=slurm())))
    assert status(gone).comment == ""
    assert not only(decide(look(node(slurm=slurm(comment="bob's"), observations=[seen]))), Comment)


def test_maintenance_drains_and_nothing_more() -> None:
    notice = Observation(source="maintenance", check="Upkeep", at=ago(minutes=5), reason="upkeep")
    recorded = held(
        findings=(finding("Upkeep", source="maintenance", proof="gone", last_seen=ago(minutes=5)),), reason="upkeep"
    )
    decided = decide(look(node(status=recorded, slurm=drained("upkeep"), observations=[notice])))
    assert status(decided).phase == "Draining"
    assert status(decided).message == "drained until Upkeep is over"
    shown = {it.type: it.reason for it in only(decided, SetCondition)}
    assert shown["SoperatorChecksNodeMaintenance"] == "NodeDraining"


def test_what_the_process_before_may_not_have_told_is_told_again() -> None:
    fresh = held(since=ago(seconds=119), message="drained; waits for its jobs to end")
    view = node(status=fresh, slurm=drained(jobs=True), observations=[failed()])
    assert decide(look(view)) == decide(look(view, first=False))
    told = only(decide(look(view, first=True)), Notify)
    assert told == [Notify("n1", "Draining", "drained; waits for its jobs to end")]
    old = node(status=held(since=ago(seconds=120)), slurm=drained(jobs=True), observations=[failed()])
    assert not only(decide(look(old, first=True)), Notify)
    new = decide(look(node(observations=[failed()]), first=True))
    assert [it.phase for it in only(new, Notify)] == ["Draining"], "once"
    assert not only(decide(look(view, first=True, policy={"mode": "shadow"})), Notify)
