"""Plans of runs: what is noted, and what they say of nodes."""

import pytest

from isthmus.domain.health.activechecks import plan as plans
from isthmus.domain.health.activechecks.plan import End, Part, Plan


def said(plan: Plan) -> dict[str, tuple[str, str]]:
    return {it.node: (it.result, it.evidence) for it in plans.verdicts(plan)}


def each(*outcomes: str) -> Plan:
    parts = tuple(Part(f"n{at}", at + 10, it, "why" if it != "passed" else "", 5) for at, it in enumerate(outcomes))  # type: ignore[arg-type]
    return Plan(parts=parts, each=True)


def test_a_plan_survives_being_written_down() -> None:
    plan = Plan(parts=(Part("n[1-2]", 7, "failed", "why", 9), Part()), each=True, user="root", begun=3)
    assert plans.decode(plans.encode(plan)) == plan


def test_a_plan_of_two_thousand_nodes_fits_into_an_annotation() -> None:
    parts = tuple(
        Part(f"worker-gpu-{it}", 60_000_000 + it, "failed", "FAILED, exit code 1", 1_800_000_000)
        for it in range(2000)
    )
    assert len(plans.encode(Plan(parts=parts, each=True))) < 200_000


def test_jobs_are_noted_by_their_places_and_ends_by_their_ids() -> None:
    plan = plans.submitted(Plan(parts=(Part("n1"), Part("n2")), each=True), {1: 17})
    assert [at for at, _ in plan.unsubmitted] == [0]
    assert plan.running == [17]
    plan = plans.ended(plan, {17: End("failed", "exit code 1", 99), 5: End("passed")})
    assert plan.parts == (Part("n1"), Part("n2", 17, "failed", "exit code 1", 99))
    assert not plan.is_over


def test_an_end_is_noted_once() -> None:
    plan = plans.ended(each("failed"), {10: End("passed")})
    assert plan.parts[0].outcome == "failed"


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (("passed", "passed"), "Complete"),
        (("passed", "cancelled"), "Cancelled"),
        (("cancelled", "error"), "Error"),
        (("error", "failed", "cancelled"), "Failed"),
        (("failed", ""), "InProgress"),
        ((), "Error"),
    ],
)
def test_the_worst_part_decides_about_the_run(outcomes: tuple[str, ...], status: str) -> None:
    assert plans.status(each(*outcomes)) == status


def test_what_was_cancelled_says_nothing_and_an_error_is_no_pass() -> None:
    assert said(each("passed", "failed", "error", "cancelled", "")) == {
        "n0": ("Passed", ""),
        "n1": ("Failed", "why"),
        "n2": ("Error", "why"),
    }


def test_a_failed_job_on_four_nodes_is_searched_step_by_step() -> None:
    plan = plans.submitted(Plan(parts=(Part(),)), {0: 1})
    plan = plans.searched(plans.ended(plan, {1: End("failed", "exit code 1", 9, "n[1-4]")}))
    assert [it.nodes for it in plan.parts] == ["n[1-4]", "n[1-2]", "n[3-4]"]
    plan = plans.submitted(plan, {1: 2, 2: 3})
    plan = plans.searched(plans.ended(plan, {2: End("passed"), 3: End("failed", "exit code 1", 9)}))
    assert [it.nodes for it in plan.parts][3:] == ["n3", "n4"]
    plan = plans.submitted(plan, {3: 4, 4: 5})
    plan = plans.searched(plans.ended(plan, {4: End("passed"), 5: End("failed", "exit code 1", 9)}))
    assert plan.is_over
    assert said(plan) == {
        "n4": ("Failed", "exit code 1"),
        "n1": ("Passed", ""),
        "n2": ("Passed", ""),
        "n3": ("Passed", ""),
    }


def test_a_failing_pair_is_told_together() -> None:
    parts = (Part("n[1-2]", 1, "failed", "exit code 1"), Part("n1", 2, "passed"), Part("n2", 3, "passed"))
    assert said(Plan(parts=parts)) == {
        "n1": ("Failed", "exit code 1 together with n2"),
        "n2": ("Failed", "exit code 1 together with n1"),
    }


def test_a_search_that_ends_early_leaves_errors() -> None:
    parts = (
        Part("n[1-4]", 1, "failed", "exit code 1"),
        Part("n[1-2]", 2, "passed"),
        Part("n[3-4]", 3, "error", "late"),
    )
    found = said(Plan(parts=parts))
    assert found["n3"][0] == found["n4"][0] == "Error"
    assert "late" in found["n3"][1]
    assert found["n1"] == ("Passed", "")


def test_the_node_whose_failure_ended_a_job_is_to_blame_alone() -> None:
    plan = plans.ended(plans.submitted(Plan(parts=(Part(),)), {0: 1}), {1: End("failed", "NODE_FAIL", 9, "n2")})
    assert plans.searched(plan) == plan
    assert said(plan) == {"n2": ("Failed", "NODE_FAIL")}


def test_what_is_abandoned_is_an_error() -> None:
    plan = plans.abandoned(each("passed", ""), why="not over after 5 s", now=7)
    assert plans.status(plan) == "Error"
    assert said(plan)["n1"] == ("Error", "not over after 5 s")
