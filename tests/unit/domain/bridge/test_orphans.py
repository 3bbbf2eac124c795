"""Which allocations nobody uses, from what both sides say of one group."""

import pytest

from isthmus import names
from isthmus.domain.bridge import marker, orphans
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.bridge.marker import Marker
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.model.slurm import Job, Number


def pod(name: str = "a", *, job_id: int | None = 7, phase: str = "Running", node: str = "k1") -> Pod:
    labels = {names.POD_GROUP_LABEL: "gang"}
    if node and job_id is not None:
        labels[names.JOB_ID_LABEL] = str(job_id)
    return Pod(ObjectMeta(name, "ns", f"uid-{name}", labels=labels), PodSpec(node_name=node), PodStatus(phase))


def job(*states: str, job_id: int = 7, whole: int = 0, pods: tuple[Pod, ...] = ()) -> tuple[Job, Marker]:
    marked = marker.mark(group_of(pod()), "uid-of-gang", pods, cluster="c")
    return Job(job_id, job_state=states, het_job_id=Number.of(whole)), marked


@pytest.mark.parametrize("states", [("RUNNING",), ("SUSPENDED",), ("RUNNING", "CONFIGURING")])
def test_a_job_with_nodes_and_no_pod_that_lives_is_unused(states: tuple[str, ...]) -> None:
    assert orphans.unused_jobs([job(*states)], []) == {7}
    assert orphans.unused_jobs([job(*states)], [pod(phase="Succeeded")]) == {7}
    assert orphans.unused_jobs([job(*states)], [pod()]) == frozenset()


@pytest.mark.parametrize("states", [("PENDING",), ("CANCELLED",), ("RUNNING", "COMPLETING"), ("NEW_STATE",)])
def test_a_job_without_nodes_or_of_which_nobody_knows_is_not(states: tuple[str, ...]) -> None:
    assert orphans.unused_jobs([job(*states)], []) == frozenset()


def test_a_pod_that_waits_may_get_a_node_of_any_job() -> None:
    assert orphans.unused_jobs([job("RUNNING")], [pod(node="", phase="Pending")]) == frozenset()


def test_of_two_jobs_the_one_without_pods_is_unused() -> None:
    both = [job("RUNNING"), job("RUNNING", job_id=8)]
    assert orphans.unused_jobs(both, [pod()]) == {8}


def test_components_are_one_job() -> None:
    both = [job("RUNNING", whole=7), job("RUNNING", job_id=8, whole=7)]
    assert orphans.unused_jobs(both, [pod(job_id=8)]) == frozenset()
    assert orphans.unused_jobs(both, [pod(job_id=8, phase="Failed")]) == {7}


def test_a_pod_on_a_node_needs_a_job_with_nodes() -> None:
    assert not orphans.is_without_job(pod(), [job("RUNNING")])
    assert not orphans.is_without_job(pod(), [job("NEW_STATE")]), "nobody knows what that is"
    for states in (("PENDING",), ("TIMEOUT",), ("CANCELLED", "COMPLETING")):
        assert orphans.is_without_job(pod(), [job(*states)])
    assert orphans.is_without_job(pod(), [])
    assert orphans.is_without_job(pod(job_id=None), [job("RUNNING")]), "somebody bound it by hand"


def test_a_pod_that_ended_or_has_no_node_needs_none() -> None:
    assert not orphans.is_without_job(pod(phase="Succeeded"), [])
    assert not orphans.is_without_job(pod(node=""), [])


def test_a_pod_whose_label_somebody_changed_is_found_by_its_uid() -> None:
    mine = pod(job_id=99)
    assert not orphans.is_without_job(mine, [job("RUNNING", pods=(mine,))])
    assert orphans.unused_jobs([job("RUNNING", pods=(mine,))], [mine]) == frozenset()
