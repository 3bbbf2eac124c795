from datetime import datetime
from typing import Any

from msgspec.structs import replace

from isthmus.domain.health.actions import (
    Drain,
    Release,
    Reserve,
    RunTest,
    Unreserve,
)
from isthmus.domain.health.decision import decide
from isthmus.domain.health.findings import dismissed
from isthmus.domain.health.view import NodeView, TestView
from isthmus.model.health import RepairStep
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

JOB = "health-n1-gpu-"


def test_a_finding_that_goes_by_itself_returns_the_node_after_a_delay() -> None:
    well = finding("NotReady", source="notReady", proof="gone", cleared=ago(seconds=29))
    early = decide(look(node(status=held(findings=(well,)), slurm=drained(jobs=True))))
    assert not only(early, Release)
    late = held(findings=(replace(well, cleared=ago(seconds=30)),))
    decided = decide(look(node(status=late, slurm=drained(jobs=True))))
    assert only(decided, Release) == [Release(("n1",))]
    assert (status(decided).phase, status(decided).reason) == ("Recovered", REASON)
    lifted = decide(look(node(status=status(decided))))
    assert status(lifted).reason == ""
    again = decide(look(node(status=status(decided), slurm=drained())))
    assert only(again, Release) == [Release(("n1",))], "the request was lost"


def test_a_node_is_returned_only_with_a_slurmd_that_answers() -> None:
    over = held("Testing", findings=(dismissed(finding(), ago(minutes=1)),))
    dead = slurm("DOWN", "DRAIN", "NOT_RESPONDING", reason=REASON)
    assert not only(decide(look(node(status=over, slurm=dead))), Release)
    assert not only(decide(look(node(status=over, slurm=drained(), pod_ready=False))), Release)


def test_a_slurm_job_is_tested_in_a_reservation() -> None:
    step = RepairStep(rung="restartPod", started=ago(minutes=1), ended=ago(seconds=5), outcome="done")
    repaired = held("Repairing", steps=(step,), tried=1)
    decided = decide(look(node(status=repaired, slurm=drained(), observations=[failed()])))
    recorded = status(decided)
    assert recorded.phase == "Testing"
    assert recorded.test.startswith(JOB)
    (test,) = only(decided, RunTest)
    assert (test.node, test.check, test.source, test.job) == ("n1", "gpu", "check", recorded.test)
    assert decided.index(Reserve("n1")) < decided.index(test)
    without = decide(look(node(status=repaired, slurm=drained(), observations=[failed()]), can_reserve=False))
    assert only(without, RunTest)
    assert not only(without, Reserve)


def in_test(result: Any, *, begun: float = 60, since: datetime | None = None, **fields: Any) -> NodeView:
    job = f"health-n1-gpu-{_mark()}-{int(ago(seconds=begun).timestamp())}"
    given: dict[str, Any] = {
        "status": held("Testing", since=since or ago(seconds=begun), test=job, tried=1),
        "slurm": slurm(),
        "reserved": True,
        "test": TestView(job, result, "why") if result else None,
        "observations": [failed()],
    }
    return node(**(given | fields))


def _mark() -> str:
    step = RepairStep(rung="restartPod", started=ago(minutes=1), ended=NOW, outcome="done")
    decided = decide(look(node(status=held("Repairing", steps=(step,)), slurm=drained())))
    return status(decided).test.split("-")[-2]


def test_a_passed_test_returns_the_node() -> None:
    decided = decide(look(in_test("passed")))
    assert status(decided).phase == "Recovered"
    assert status(decided).findings[0].dismissed
    assert only(decided, Unreserve) == [Unreserve("n1")]
    assert not only(decided, Drain) + only(decided, Release)


def test_a_test_that_runs_is_waited_for_and_one_that_is_not_there_is_started_again() -> None:
    assert status(decide(look(in_test("running")))).message == "gpu runs on it"
    lost = decide(look(in_test(None, slurm=drained(), reserved=False)))
    assert [type(it) for it in lost if isinstance(it, Reserve | RunTest)] == [Reserve, RunTest]
    assert only(lost, RunTest)[0].job == in_test(None).health.status.test  # type: ignore[union-attr]


def test_a_failed_test_drains_the_node_before_its_reservation_ends() -> None:
    decided = decide(look(in_test("failed")))
    assert decided.index(Drain(("n1",), REASON)) < decided.index(Unreserve("n1"))
    assert status(decided).phase == "OutOfService"
    assert status(decided).message == "the test gpu failed: why; manual action is required"
    more = {"ladder": [{"rung": "restartPod"}, {"rung": "reboot"}]}
    assert status(decide(look(in_test("failed"), policy=more))).phase == "Draining"


def test_a_test_that_never_ends_has_failed() -> None:
    assert status(decide(look(in_test("running", begun=1799)))).phase == "Testing"
    assert status(decide(look(in_test("running", begun=1800)))).phase == "OutOfService"


def test_an_error_is_neither_a_pass_nor_a_failure() -> None:
    decided = decide(look(in_test("error", begun=59)))
    assert status(decided).phase == "Testing"
    assert not only(decided, RunTest) + only(decided, Unreserve)
    again = decide(look(in_test("error", begun=60)))
    assert only(again, RunTest)[0].job != in_test("error").health.status.test  # type: ignore[union-attr]
    late = in_test("error", since=ago(hours=1))
    decided = decide(look(late, policy={"ladder": [{"rung": "restartPod"}, {"rung": "reboot"}]}))
    assert status(decided).phase == "OutOfService"
    assert "could not be run: why" in status(decided).message


def test_a_test_is_repeated_ever_more_seldom() -> None:
    policy = {"rules": [{"action": "drain"}], "testTimeout": "100h"}
    for result, first in (("error", 60), ("failed", 300)):
        for before in (0, 60, 1000, 3600, 90_000):
            pause = min(max(first, before), 3600)
            since = ago(seconds=before + pause)
            early = decide(
                look(in_test(result, begun=pause - 1, since=ago(seconds=before + pause - 1)), policy=policy)
            )
            assert not only(early, RunTest), (result, before)
            assert only(decide(look(in_test(result, begun=pause, since=since), policy=policy)), RunTest)


def test_what_is_only_drained_is_tested_again_until_it_passes() -> None:
    policy = {"rules": [{"action": "drain"}]}
    soon = decide(look(in_test("failed", begun=299), policy=policy))
    assert status(soon).phase == "Testing"
    assert not only(soon, RunTest)
    assert only(decide(look(in_test("failed", begun=300), policy=policy)), RunTest)


def test_a_reservation_that_somebody_deleted_shuts_the_node_again() -> None:
    decided = decide(look(in_test("running", reserved=False)))
    assert only(decided, Drain) == [Drain(("n1",), REASON)]
    assert status(decided).phase == "Testing"


def test_a_reservation_of_a_node_without_record_is_removed() -> None:
    assert decide(look(node(reserved=True))) == [Unreserve("n1")]


def test_a_check_that_passes_returns_the_node_where_it_may() -> None:
    step = RepairStep(rung="restartPod", started=ago(minutes=9), ended=ago(minutes=8), outcome="done")
    view = node(status=held("Testing", steps=(step,)), slurm=drained(), passed={"gpu": ago(seconds=5)})
    assert only(decide(look(view)), Release)
    by_prefix = node(status=held("Testing"), slurm=drained(), passed={"[node_problem]": ago(seconds=5)})
    assert only(decide(look(by_prefix)), Release)
    before = node(status=held("Testing"), slurm=drained(), passed={"gpu": ago(minutes=2)})
    assert not only(decide(look(before)), Release)
