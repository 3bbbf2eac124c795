"""Which pods may be evicted."""

import pytest

from isthmus.domain.operator.nodeset.actions import Protect, Unprotect
from isthmus.domain.operator.nodeset.protection import protection
from isthmus.domain.operator.nodeset.view import PodView
from tests.unit.domain.operator.nodeset.views import GOING, kube_node, nodeset, pod, view

CORDONED = kube_node(cordoned=True)


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE", "DRAIN", reason=GOING),
        pod(0, "IDLE", "DRAIN", reason="ticket 4711"),
        pod(0, "DOWN", "NOT_RESPONDING", kube=CORDONED),
        pod(0, known=False, ready=False, kube=CORDONED),
        pod(0, "IDLE", "DRAIN", reason=GOING, ready=False, kube=CORDONED),
        pod(0, "IDLE", "CLOUD", "POWERING_DOWN"),
        pod(0, "IDLE", "CLOUD", "POWERED_DOWN"),
    ],
    ids=[
        "drained",
        "drained by another",
        "down on a cordoned node",
        "never registered on a cordoned node",
        "a successor on a cordoned node",
        "being stopped",
        "stopped",
    ],
)
def test_a_pod_without_jobs_may_be_evicted(there: PodView) -> None:
    assert protection(view(there)) == (Unprotect("worker-0", "uid-worker-0"),)


@pytest.mark.parametrize(
    "there",
    [
        pod(0, "IDLE"),
        pod(0, "ALLOCATED", "DRAIN", reason=GOING),
        pod(0, "IDLE", "COMPLETING", "DRAIN", reason=GOING),
        pod(0, "IDLE", "DRAIN", "UNDRAIN", reason=GOING),
        pod(0, known=False, ready=False),
        pod(0, "DOWN"),
        pod(0, "IDLE", kube=CORDONED),
        pod(0, "IDLE", "DRAIN", reason=GOING, ready=False),
        pod(0, "IDLE", "CLOUD"),
        pod(0, "IDLE", "CLOUD", "POWER_DOWN"),
        pod(0, "ALLOCATED", "CLOUD", "POWERING_UP"),
        pod(0, "ALLOCATED", "CLOUD", "POWERED_DOWN"),
    ],
    ids=[
        "idle",
        "busy",
        "completing",
        "coming back",
        "starting",
        "down",
        "cordoned a moment ago",
        "a successor",
        "elastic and idle",
        "to be stopped",
        "started for a job",
        "about to be started for a job",
    ],
)
def test_a_pod_that_has_or_may_get_a_job_is_protected(there: PodView) -> None:
    assert protection(view(there)) == ()


def test_a_node_that_came_back_is_protected_again() -> None:
    assert protection(view(pod(0, "IDLE", protected=False))) == (Protect("worker-0", "uid-worker-0"),)


def test_without_slurm_everything_stays_as_it_is() -> None:
    pods = (pod(0, "IDLE", "DRAIN", reason=GOING), pod(1, "ALLOCATED", protected=False))
    assert protection(view(*pods, in_touch=False)) == ()


def test_a_user_may_do_without() -> None:
    of = nodeset(2, workloadDisruptionProtection=False)
    pods = (pod(0, "ALLOCATED"), pod(1, "ALLOCATED", protected=False))
    assert protection(view(*pods, of=of, in_touch=False)) == (Unprotect("worker-0", "uid-worker-0"),)


def test_pods_that_leave_are_left_alone() -> None:
    assert protection(view(pod(0, "IDLE", "DRAIN", leaving=True), pod(1, phase="Failed", protected=False))) == ()
