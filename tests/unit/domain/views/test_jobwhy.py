"""Why a job waits: the gate, the blockers by name, the start with its worth, and what would help."""

from typing import Any

import pytest

from isthmus.domain.bridge.explain import Mark
from isthmus.domain.views import jobwhy
from isthmus.model.slurm import ExitCode, Job, Node, Number

NOW = 1_800_000_000.0


def job(job_id: int = 7, reason: str = "Resources", *, state: str = "PENDING", **fields: Any) -> Job:
    defaults: dict[str, Any] = {
        "partition": "main",
        "user_name": "alice",
        "priority": Number.of(100),
        "submit_time": Number.of(NOW - 300),
        "time_limit": Number.of(60),
    }
    return Job(job_id, (state,), state_reason=reason, **(defaults | fields))


@pytest.mark.parametrize(
    ("reason", "gate"),
    [
        ("BeginTime", "eligible"),
        ("Dependency", "eligible"),
        ("JobHeldUser", "eligible"),
        ("QOSMaxCpuPerUserLimit", "allowed"),
        ("AssocGrpGRES", "allowed"),
        ("PartitionDown", "allowed"),
        ("MaxMemPerLimit", "allowed"),
        ("Priority", "priority"),
        ("None", "priority"),
        ("", "priority"),
        ("Resources", "resources"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "resources"),
        ("Licenses", "resources"),
        ("SomethingNew", "resources"),
    ],
)
def test_each_reason_belongs_to_a_gate(reason: str, gate: str) -> None:
    assert jobwhy.gate_of(reason) == gate
    found = jobwhy.gates(job(reason=reason), [], now=NOW)
    assert [it.name for it in found] == list(jobwhy.GATES)
    closed = [it.name for it in found if it.mark not in {Mark.PASSED, Mark.AHEAD}]
    assert closed == [gate]
    marks = [it.mark for it in found]
    assert set(marks[: marks.index(found[jobwhy.GATES.index(gate)].mark)]) == {Mark.PASSED}


def test_a_job_that_does_not_start_by_itself_is_refused() -> None:
    found = {it.name: it for it in jobwhy.gates(job(reason="JobHeldUser"), [], now=NOW)}
    assert found["eligible"].mark is Mark.REFUSED
    assert "scontrol release 7" in found["eligible"].remedy


def test_its_place_in_the_queue_is_told() -> None:
    others = [job(1, "Priority", priority=Number.of(200)), job(2, "Priority", priority=Number.of(50))]
    mine = job(reason="Priority")
    found = {it.name: it for it in jobwhy.gates(mine, [*others, mine], now=NOW)}
    assert "number 2 of 3 in partition main" in found["priority"].text


def test_a_job_that_ran_has_all_gates_behind_it() -> None:
    done = job(state="COMPLETED", nodes="n1", start_time=Number.of(NOW - 200), end_time=Number.of(NOW - 80))
    found = jobwhy.gates(done, [], now=NOW)
    assert {it.mark for it in found} == {Mark.PASSED}
    assert next(it.text for it in found if it.name == "running") == "for 2 min"
    failed = job(state="FAILED", reason="NonZeroExitCode", nodes="n1", exit_code=ExitCode((), Number.of(3)))
    assert jobwhy.gates(failed, [], now=NOW)[-1].text == "it failed with exit code 3"
    never = jobwhy.gates(job(state="CANCELLED"), [], now=NOW)
    assert never[-1].text == "it was cancelled before it had nodes"


def test_who_is_ahead_is_named() -> None:
    ahead = [job(i, "Priority", priority=Number.of(1000 - i), user_name="bob") for i in range(1, 6)]
    mine = job(reason="Priority")
    found = jobwhy.blockers(mine, [*ahead, mine, job(9, partition="other", priority=Number.of(5000))], now=NOW)
    assert [it.job_id for it in found] == [1, 2, 3]
    assert found[0].text == "job 1 of bob is ahead, with priority 999"


def test_who_has_the_nodes_is_named_with_the_latest_end() -> None:
    early = job(1, state="RUNNING", start_time=Number.of(NOW - 1800), user_name="bob")
    endless = job(2, state="RUNNING", start_time=Number.of(NOW), time_limit=Number.of(float("inf")))
    found = jobwhy.blockers(job(), [endless, early, job()], now=NOW)
    assert [it.text for it in found] == [
        "job 1 of bob runs, and ends in 30 min at the latest",
        "job 2 of alice runs, without a time limit",
    ]


def test_what_it_depends_on_is_named() -> None:
    found = jobwhy.blockers(
        job(reason="Dependency", dependency="afterok:3(unfulfilled)"), [job(3), job(4)], now=NOW
    )
    assert [it.job_id for it in found] == [3]


def test_others_are_not_named_to_those_who_may_not_see_them() -> None:
    found = jobwhy.anonymous(
        [jobwhy.Blocker(1, "job 1 of bob is ahead"), jobwhy.Blocker(2, "job 2 of bob is ahead")]
    )
    assert found == (jobwhy.Blocker(0, "2 other jobs"),)
    assert jobwhy.anonymous(()) == ()


def test_a_begin_time_is_no_plan_of_slurm() -> None:
    """Slurm says the time that was asked for as that of the start, however full it is."""
    begins = Number.of(NOW + 3600)
    found = jobwhy.estimate(job(reason="BeginTime", eligible_time=begins, start_time=begins), now=NOW)
    assert (found.at, found.text) == (NOW + 3600, "not before its begin time, and then in its turn")


@pytest.mark.parametrize(
    ("fields", "confidence"),
    [
        ({"start_time": Number.of(NOW + 60), "scheduled_nodes": "n1"}, "good"),
        ({"start_time": Number.of(NOW + 60), "scheduled_nodes": "n1", "reason": "Priority"}, "fair"),
        ({"start_time": Number.of(NOW + 60)}, "low"),
        ({"start_time": Number.of(NOW - 60)}, "none"),
        ({"start_time": Number.of(NOW + 400 * 86400)}, "none"),
        ({"start_time": Number.of(NOW + 60), "reason": "JobHeldUser"}, "none"),
    ],
)
def test_an_estimate_says_what_it_is_worth(fields: dict[str, Any], confidence: str) -> None:
    found = jobwhy.estimate(job(**fields), now=NOW)
    assert (found.confidence, bool(found.at)) == (confidence, confidence != "none")
    assert found.text


def test_what_would_help_follows_from_the_nodes() -> None:
    nodes = [
        Node("n1", ("IDLE", "DRAIN"), reason="bad disk", partitions=("main",)),
        Node("n2", ("ALLOCATED",), partitions=("main",)),
        Node("n3", ("IDLE",), partitions=("debug",)),
    ]
    found = jobwhy.helps(job(time_limit=Number.of(float("inf"))), nodes)
    assert "Bring back 1 of 2 nodes of partition main (n1: bad disk)" in found
    assert any("time limit" in it for it in found)
    assert "Idle nodes are in other partitions: debug" in found
    assert jobwhy.helps(job(state="RUNNING"), nodes) == ()
    assert all("Bring back" not in it for it in jobwhy.helps(job(reason="JobHeldUser"), nodes))
