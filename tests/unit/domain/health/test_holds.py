from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.domain.health.actions import (
    Drain,
    Forget,
    Notify,
    Record,
    Release,
)
from isthmus.domain.health.decision import decide
from isthmus.domain.health.findings import dismissed
from isthmus.domain.health.view import Observation
from isthmus.model.health import NodeHealthStatus
from isthmus.model.slurm import Number
from tests.unit.domain.health.scene import (
    NOW,
    REASON,
    ago,
    drained,
    failed,
    finding,
    held,
    look,
    node,
    only,
    slurm,
    status,
)


def test_a_drain_that_was_lost_in_a_crash_is_asked_for_again() -> None:
    lost = held(drained=None)
    assert Drain(("n1",), REASON) in decide(look(node(status=lost, observations=[failed()])))


def test_a_drain_that_slurmctld_has_forgotten_is_asked_for_again_and_nobody_is_taken_to_have_resumed_it() -> None:
    opened = node(status=held(), observations=[failed()])
    assert status(decide(look(opened))).phase == "Recovered", "somebody resumed it"
    decided = decide(look(opened, slurm_forgot=True))
    assert Drain(("n1",), REASON) in decided
    recorded = status(decided)
    assert (recorded.phase, recorded.reason, recorded.drained) == ("Draining", REASON, None)


@pytest.mark.parametrize(
    ("policy", "phase", "text"),
    [
        ({"mode": "shadow"}, "Suspect", f"shadow mode; would repair with reason: {REASON}"),
        ({"paused": True}, "Waiting", "the policy is paused: isthmus health resume"),
        ({"limits": {"maxUnavailable": 0}}, "Waiting", "at most 0 nodes"),
        ({"rules": [{"action": "record"}]}, "Suspect", "check gpu: it failed"),
        ({"rules": [{"action": "drain", "confirmations": 2}]}, "Suspect", "found 1 times, acted on from 2"),
    ],
)
def test_what_keeps_a_node_from_being_drained_is_said(policy: dict[str, Any], phase: str, text: str) -> None:
    decided = decide(look(node(observations=[failed()]), policy=policy))
    assert not only(decided, Drain)
    recorded = status(decided)
    assert (recorded.phase, recorded.reason) == (phase, "")
    assert text in recorded.message
    again = node(status=recorded, observations=[failed()])
    assert decide(look(again, policy=policy)) == []


def test_a_humans_drain_is_recorded_and_stays() -> None:
    human = Observation(source="human", check="bob", evidence="fans", at=ago(hours=1))
    decided = decide(look(node(slurm=drained("fans"), observations=[human])))
    assert status(decided).phase == "Suspect"
    assert {type(it) for it in decided} == {Record, Notify}
    both = decide(look(node(slurm=drained("fans", reason_set_by_user="bob"), observations=[human, failed()])))
    assert not only(both, Drain)
    assert status(both).message == "drained by bob, whose reason stays: fans"
    opened = node(status=status(both), observations=[failed()])
    assert Drain(("n1",), REASON) in decide(look(opened))


def test_somebody_who_resumes_our_drain_overrules_it_until_it_is_found_anew() -> None:
    decided = decide(look(node(status=held(), observations=[failed()])))
    recorded = status(decided)
    assert (recorded.phase, recorded.reason) == ("Recovered", "")
    assert recorded.findings[0].dismissed
    assert not only(decided, Drain)
    same = node(status=recorded, observations=[failed()])
    assert decide(look(same)) == []
    later = failed(at=NOW.replace(second=1))
    assert only(decide(look(node(status=recorded, observations=[later]), now=NOW.replace(second=2))), Drain)


def test_what_is_found_between_the_last_look_and_a_resume_is_not_overruled() -> None:
    decided = decide(look(node(status=held(), observations=[failed(at=ago(seconds=1))])))
    assert status(decided).reason == ""
    assert status(decided).findings[0].cleared is None
    assert only(decide(look(node(status=status(decided), observations=[failed(at=ago(seconds=1))]))), Drain)


def test_a_node_that_registered_anew_is_drained_again_and_not_taken_for_resumed() -> None:
    decided = decide(look(node(status=held(), slurm=slurm(started=ago(minutes=1)), observations=[failed()])))
    assert only(decided, Drain) == [Drain(("n1",), REASON)]
    assert status(decided).drained is None


def test_a_human_who_drains_a_node_of_ours_takes_it_over() -> None:
    decided = decide(look(node(status=held("Testing"), slurm=drained("mine"), observations=[failed()])))
    assert (status(decided).phase, status(decided).reason) == ("Waiting", "")
    assert not only(decided, Drain) + only(decided, Release)


def test_a_drain_by_a_check_on_the_node_becomes_ours_without_another() -> None:
    text = "[node_problem] disk: full [hc_program]"
    seen = Observation(source="healthcheck", check="disk", evidence=text, at=ago(minutes=1), reason=text, test=True)
    decided = decide(look(node(slurm=drained(text), observations=[seen])))
    assert not only(decided, Drain)
    recorded = status(decided)
    assert (recorded.phase, recorded.reason, recorded.drained) == ("Draining", text, NOW)
    assert recorded.findings[0].proof == "test"


def test_a_drain_for_something_that_is_only_recorded_is_not_taken_over() -> None:
    text = "[node_problem] disk: full [hc_program]"
    seen = Observation(source="healthcheck", check="disk", evidence=text, at=ago(minutes=1), test=True)
    rules = [{"action": "record", "match": {"sources": ["healthcheck"]}}]
    decided = decide(look(node(slurm=drained(text), observations=[seen, failed()]), policy={"rules": rules}))
    assert (status(decided).phase, status(decided).reason) == ("Waiting", "")


def test_the_operators_cordon_gives_way_and_comes_back() -> None:
    cordon = "slurm-operator: Pod (a/b) was cordoned"
    decided = decide(look(node(slurm=drained(cordon), observations=[failed()], operator_holds=cordon)))
    assert only(decided, Drain) == [Drain(("n1",), REASON)]
    over = held("Testing", findings=(dismissed(finding(), ago(minutes=1)),))
    decided = decide(look(node(status=over, slurm=drained(), operator_holds=cordon)))
    assert only(decided, Release) == [Release(("n1",), cordon)]
    leaving = drained("slurm-operator: Pod (a/b) is pending termination for scale-in")
    assert not only(decide(look(node(slurm=leaving, observations=[failed()]))), Drain)


def test_records_are_kept_for_a_week_and_as_long_as_they_keep_a_finding_down() -> None:
    over = NodeHealthStatus(
        phase="Recovered",
        since=ago(days=8),
        machine="m1",
        nodeset="workers",
        findings=(dismissed(finding(), ago(days=8)),),
    )
    assert decide(look(node(status=over))) == [Forget("n1")]
    assert decide(look(node(status=replace(over, since=ago(days=6))))) == []
    assert decide(look(node(status=over, observations=[failed(at=ago(days=9))]))) == []
    gone = node(status=replace(over, since=ago(days=2)), slurm=None, pod=None)
    assert decide(look(gone)) == [Forget("n1")]
    assert decide(look(gone, slurm_in_touch=False)) == []


def test_a_node_that_is_gone_is_held_no_more() -> None:
    decided = decide(look(node(status=held(), slurm=None, pod=None)))
    assert (status(decided).phase, status(decided).reason) == ("Waiting", "")
    may_register_again = decide(look(node(status=held(), slurm=None)))
    assert not only(may_register_again, Record)


def test_a_check_that_drains_again_with_the_same_words_is_not_taken_for_a_lost_release() -> None:
    text = "[node_problem] disk: full [hc_program]"
    returned = held("Recovered", reason=text, findings=(dismissed(finding("disk"), ago(minutes=10)),))
    lost = drained(text, reason_changed_at=Number.of(int(ago(minutes=20).timestamp())))
    assert only(decide(look(node(status=returned, slurm=lost))), Release)
    anew = drained(text, reason_changed_at=Number.of(int(ago(minutes=1).timestamp())))
    decided = decide(look(node(status=returned, slurm=anew)))
    assert not only(decided, Release)
    assert status(decided).reason == "", "the next look takes it up as a new finding"
