"""Which nodes get no more jobs, and which pods can go without costing one."""

from typing import Any

import pytest

from isthmus import names
from isthmus.domain.operator.nodeset.actions import Drain, Undrain
from isthmus.domain.operator.nodeset.drains import Cause, drains, may_go, sanitised
from isthmus.domain.operator.nodeset.view import PodView
from tests.unit.domain.operator.nodeset.views import GOING, kube_node, nodeset, pod, view

FOREIGN = "ticket 4711: broken fan"


def test_all_that_go_are_drained_in_one_request() -> None:
    found = drains(view(pod(0), pod(1), pod(2)), {"worker-1": "scale-in", "worker-2": "scale-in"})
    assert found == (Drain(("worker-1", "worker-2"), GOING, "scale_in"),)


def test_a_single_node_is_drained_with_the_name_of_its_pod() -> None:
    reason = "slurm-operator: Pod (slurm/worker-0) is pending termination for scale-in"
    assert drains(view(pod(0)), {"worker-0": "scale-in"}) == (Drain(("worker-0",), reason, "scale_in"),)


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE", "DRAIN", reason=GOING),
        pod(0, "IDLE", "DRAIN", reason=FOREIGN),
        pod(0, "DOWN", reason=FOREIGN),
        pod(0, "DOWN", "NOT_RESPONDING", reason="Not responding"),
        pod(0, known=False),
    ],
    ids=["drained already", "drained by another", "down by another", "not responding", "not in Slurm"],
)
def test_a_node_that_is_shut_is_not_drained(there: PodView) -> None:
    assert drains(view(there), {"worker-0": "scale-in"}) == ()


def test_a_drain_for_a_cordon_becomes_one_for_going() -> None:
    """So that its time counts from the moment when it was to go."""
    resting = pod(0, "IDLE", "DRAIN", reason="slurm-operator: Pod (slurm/worker-0) was cordoned")
    assert [type(it) for it in drains(view(resting), {"worker-0": "scale-in"})] == [Drain]


def test_a_node_that_somebody_is_taking_back_is_drained_again() -> None:
    assert drains(view(pod(0, "IDLE", "DRAIN", "UNDRAIN", reason=FOREIGN)), {"worker-0": "update"}) != ()


def test_nothing_is_done_without_slurm() -> None:
    assert drains(view(pod(0), in_touch=False), {"worker-0": "scale-in"}) == ()


def test_a_node_of_ours_that_is_wanted_again_comes_back() -> None:
    assert drains(view(pod(0, "IDLE", "DRAIN", reason=GOING)), {}) == (Undrain(("worker-0",)),)


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE", "DRAIN", reason=FOREIGN),
        pod(0, "IDLE", "DRAIN", "UNDRAIN", reason=GOING),
        pod(0, "DOWN", reason=FOREIGN),
        pod(0, "IDLE", reason=GOING),
        pod(0, "IDLE", "DRAIN", reason=GOING, ready=False),
    ],
    ids=[
        "drained by another",
        "coming back already",
        "down by another",
        "old reason on an open node",
        "no slurmd yet",
    ],
)
def test_what_is_not_ours_to_take_back_stays(there: PodView) -> None:
    assert drains(view(there), {}) == ()


# Cordons


def cordon(*states: str, reason: str = "", **node: Any) -> tuple[Drain | Undrain, ...]:
    propagated = ("MemoryPressure", "GpuBroken")
    return drains(view(pod(0, *states, reason=reason, kube=kube_node(**node))), {}, propagated=propagated)


def test_a_cordoned_node_is_drained() -> None:
    told = "slurm-operator: Node (k1) was cordoned, Pod (slurm/worker-0) must be cordoned"
    assert cordon(cordoned=True) == (Drain(("worker-0",), told, "cordon"),)


def test_an_administrator_may_say_why() -> None:
    found = cordon(
        cordoned=True, annotations={names.NODE_CORDON_REASON_ANNOTATION: "new\x1b[31m fan\n"}, GpuBroken="Xid 79"
    )
    assert found == (Drain(("worker-0",), "slurm-operator: new fan", "cordon"),)


def test_conditions_of_the_node_may_say_why() -> None:
    found = cordon(cordoned=True, GpuBroken="Xid 79", Ready="fine", MemoryPressure="full")
    told = "slurm-operator: (MemoryPressureReason: full); (GpuBrokenReason: Xid 79)"
    assert found == (Drain(("worker-0",), told, "cordon"),)


def test_a_reason_that_changes_is_told() -> None:
    assert len(cordon("IDLE", "DRAIN", reason="slurm-operator: another", cordoned=True)) == 1


def test_a_reason_of_others_is_kept() -> None:
    assert cordon("IDLE", "DRAIN", reason=FOREIGN, cordoned=True) == ()


@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete", "ScheduledUpdate"])
def test_an_uncordoned_node_comes_back_with_every_strategy(strategy: str) -> None:
    """W8."""
    of = nodeset(1, updateStrategy={"type": strategy})
    back = pod(0, "IDLE", "DRAIN", reason="slurm-operator: Node (k1) was cordoned", kube=kube_node())
    assert drains(view(back, of=of), {}) == (Undrain(("worker-0",)),)


def test_the_annotation_of_a_user_stays_obeyed() -> None:
    """W7: nobody undoes what a user has said."""
    wish = {names.POD_CORDON_ANNOTATION: "true"}
    told = "slurm-operator: Pod (slurm/worker-0) was cordoned"
    assert drains(view(pod(0, annotations=wish)), {}) == (Drain(("worker-0",), told, "cordon"),)
    assert drains(view(pod(0, "MIXED", "DRAIN", reason=told, annotations=wish)), {}) == ()


def test_a_pod_that_somebody_deletes_gets_no_more_jobs() -> None:
    found = drains(view(pod(0, leaving=True)), {})
    assert found == (Drain(("worker-0",), "slurm-operator: Pod (slurm/worker-0) is terminating", "terminating"),)
    found = drains(view(pod(0, leaving=True), pod(1, leaving=True)), {})
    assert found == (
        Drain(
            ("worker-0", "worker-1"),
            "slurm-operator: Pods of NodeSet (slurm/worker) are terminating",
            "terminating",
        ),
    )


def test_a_pod_that_goes_as_it_was_to_is_not_drained_again() -> None:
    told = "slurm-operator: Pods of NodeSet (slurm/worker) are pending termination for scale-in"
    assert drains(view(pod(0, "IDLE", "DRAIN", reason=told, leaving=True)), {}) == ()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a\r\nb\tc", "a b c"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("zero\u200bwidth", "zero width"),
        ("ü" * 300, "ü" * 256),
        ("\n", ""),
    ],
)
def test_reasons_are_one_printable_line(text: str, plain: str) -> None:
    assert sanitised(text) == plain


# Who may go


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE", "DRAIN", reason=GOING),
        pod(0, "IDLE", "DRAIN", reason=FOREIGN),
        pod(0, "DOWN", "NOT_RESPONDING", "COMPLETING", "DRAIN", reason=GOING),
        pod(0, "DOWN", reason=FOREIGN),
        pod(0, known=False, ready=False),
        pod(0, known=False, ready=True, age=61),
        pod(0, "ALLOCATED", phase="Failed"),
        pod(0, "ALLOCATED", bound=False),
    ],
    ids=[
        "drained",
        "drained by another",
        "lost",
        "down",
        "never registered",
        "forgotten for long",
        "ended",
        "never ran",
    ],
)
def test_a_pod_without_jobs_may_go(there: PodView) -> None:
    assert may_go(view(there), there)


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE"),
        pod(0, "IDLE", "DRAIN", "UNDRAIN"),
        pod(0, "ALLOCATED", "DRAIN", reason=GOING),
        pod(0, "MIXED", "DRAIN", reason=GOING),
        pod(0, "IDLE", "COMPLETING", "DRAIN", reason=GOING),
        pod(0, "ALLOCATED", "NOT_RESPONDING", "DRAIN", reason=GOING),
        pod(0, known=False, ready=True, age=5),
    ],
    ids=["not drained", "coming back", "allocated", "mixed", "completing", "cut off", "about to register"],
)
def test_a_pod_that_has_a_job_or_may_get_one_stays(there: PodView) -> None:
    assert not may_go(view(there), there)


@pytest.mark.parametrize("there", [pod(0, "IDLE", "DRAIN", reason=GOING), pod(0, known=False, ready=False)])
def test_without_slurm_nobody_goes(there: PodView) -> None:
    """W1: what Slurm said once, or does not say, proves nothing."""
    assert not may_go(view(there, in_touch=False), there)


@pytest.mark.parametrize(
    ("why", "cause"),
    [("scale-in", "scale_in"), ("update", "rollout"), ("restart", "repair"), ("deletion", "deletion")],
)
def test_a_drain_names_its_cause_for_metrics(why: Cause, cause: str) -> None:
    (found,) = drains(view(pod(0)), {"worker-0": why})
    assert isinstance(found, Drain)
    assert found.cause == cause
