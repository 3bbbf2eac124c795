"""What checks say of nodes, and what they ask for."""

from datetime import UTC, datetime
from typing import Any

from isthmus.domain.health.activechecks.plan import NodeVerdict
from isthmus.domain.health.activechecks.results import merged, results
from isthmus.model.activecheck import MAX_NODES, ActiveCheck
from tests.unit.domain.health.activechecks.values import check

FAILED = {
    "node": "n1",
    "result": "Failed",
    "jobId": "17",
    "evidence": "exit code 1",
    "at": "2026-01-01T00:00:00Z",
}
DRAIN = {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}}


def with_nodes(*nodes: dict[str, Any], **spec: Any) -> ActiveCheck:
    return check(status={"nodes": list(nodes)}, **spec)


def verdict(node: str, result: Any, job: str = "18") -> NodeVerdict:
    return NodeVerdict(node, result, job, "why", 1_800_000_000)


def test_a_failed_node_is_to_be_drained_in_soperators_words() -> None:
    (found,) = results(with_nodes(FAILED, failureReactions=DRAIN))
    assert (found.check, found.node, found.wants) == ("gpu", "n1", "drain")
    assert found.reason == "[node_problem] gpu: job 17 [slurm_job]"
    assert found.at == datetime(2026, 1, 1, tzinfo=UTC)


def test_without_a_reaction_nothing_is_asked_for() -> None:
    (found,) = results(with_nodes(FAILED))
    assert (found.result, found.wants, found.reason, found.notify) == ("Failed", "", "", False)


def test_an_error_asks_for_nothing() -> None:
    (found,) = results(with_nodes({**FAILED, "result": "Error"}, failureReactions=DRAIN))
    assert (found.result, found.wants) == ("Error", "")


def test_comments_and_notifications() -> None:
    reactions = {"commentSlurmNode": {"commentPrefix": "[seen]"}, "notify": {"receivers": ["ops"]}}
    (found,) = results(with_nodes(FAILED, failureReactions=reactions))
    assert (found.wants, found.reason) == ("comment", "[seen] gpu: job 17 [slurm_job]")
    assert (found.notify, found.receivers) == (True, ("ops",))


def test_a_pod_is_told_apart() -> None:
    (found,) = results(with_nodes({**FAILED, "jobId": "gpu-1"}, kind="k8sJob", failureReactions=DRAIN))
    assert found.reason == "[node_problem] gpu: job gpu-1 [k8s_job]"


def test_a_passing_node_can_be_undrained() -> None:
    passed = {**FAILED, "result": "Passed"}
    (found,) = results(with_nodes(passed, failureReactions=DRAIN, successReactions={"undrainSlurmNode": {}}))
    assert (found.wants, found.reason) == ("undrain", "[node_problem] gpu:")


def test_a_node_stays_until_it_passes() -> None:
    it = with_nodes(FAILED)
    assert [node.node for node in merged(it, [verdict("n2", "Passed")], there=None)] == ["n1"]
    assert merged(it, [verdict("n1", "Passed")], there=None) == ()
    (again,) = merged(it, [verdict("n1", "Failed")], there=None)
    assert again.job_id == "18"


def test_an_error_does_not_take_a_failure_back() -> None:
    (found,) = merged(with_nodes(FAILED), [verdict("n1", "Error")], there=None)
    assert (found.result, found.job_id) == ("Failed", "17")
    (fresh,) = merged(with_nodes(), [verdict("n1", "Error")], there=None)
    assert fresh.result == "Error"


def test_a_node_that_is_gone_goes() -> None:
    assert merged(with_nodes(FAILED), [], there={"n2"}) == ()
    assert len(merged(with_nodes(FAILED), [], there={"n1"})) == 1


def test_of_pods_the_last_run_counts_alone() -> None:
    (found,) = merged(with_nodes(FAILED, kind="k8sJob"), [verdict("n2", "Failed")], there=None)
    assert found.node == "n2"


def test_passed_nodes_are_listed_only_where_somebody_reacts() -> None:
    listed = with_nodes(successReactions={"commentSlurmNode": {"commentPrefix": "ok"}})
    assert [it.result for it in merged(listed, [verdict("n1", "Passed")], there=None)] == ["Passed"]
    told = with_nodes(FAILED, successReactions={"notify": {}})
    assert [it.node for it in merged(told, [verdict("n1", "Passed"), verdict("n2", "Passed")], there=None)] == [
        "n1"
    ]


def test_the_list_is_bounded_and_failures_come_first() -> None:
    many = [verdict(f"n{it}", "Error") for it in range(MAX_NODES)]
    found = merged(with_nodes(), [*many, verdict("z", "Failed")], there=None)
    assert len(found) == MAX_NODES
    assert "z" in {it.node for it in found}
