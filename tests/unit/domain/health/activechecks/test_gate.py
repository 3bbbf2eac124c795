"""When a check may run."""

import msgspec
import pytest

from isthmus.domain.health.activechecks import gate
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.slinky import Controller
from isthmus.model.soperator import SlurmCluster
from tests.unit.domain.health.activechecks.values import check


def cluster(phase: str = "Available", maintenance: str = "none") -> SlurmCluster:
    return msgspec.convert({"spec": {"maintenance": maintenance}, "status": {"phase": phase}}, SlurmCluster)


def closed(
    it: ActiveCheck, *others: ActiveCheck, of: SlurmCluster | None = None, controller: Controller | None = None
) -> str:
    there = {other.metadata.name: other for other in others}
    return gate.closed(it, cluster=of, controller=controller, find=there.get)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (cluster(), ""),
        (cluster(maintenance="skipPopulateJail"), ""),
        (cluster(maintenance="downscale"), "in maintenance"),
        (cluster(phase="Not available"), "is Not available"),
        (cluster(phase=""), "is Pending"),
        (None, "there is no SlurmCluster"),
    ],
)
def test_the_cluster_must_be_in_use(of: SlurmCluster | None, why: str) -> None:
    found = closed(check(), of=of)
    assert (why in found) if why else not found


def test_a_controller_without_a_slurmcluster_will_do() -> None:
    ready = msgspec.convert(
        {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}, Controller
    )
    assert closed(check(), controller=ready) == ""
    assert "not ready" in closed(check(), controller=msgspec.convert({"spec": {}}, Controller))


@pytest.mark.parametrize(
    ("kind", "status", "open_"),
    [
        ("slurmJob", {"slurmJobsStatus": {"lastRunStatus": "Complete"}}, True),
        ("slurmJob", {"slurmJobsStatus": {"lastRunStatus": "Skipped"}}, True),
        ("slurmJob", {"slurmJobsStatus": {"lastRunStatus": "Failed"}}, False),
        ("slurmJob", {"slurmJobsStatus": {"lastRunStatus": "InProgress"}}, False),
        ("slurmJob", {}, False),
        ("k8sJob", {"k8sJobsStatus": {"lastJobStatus": "Complete"}}, True),
        ("k8sJob", {"k8sJobsStatus": {"lastJobStatus": "Failed"}}, False),
    ],
)
def test_dependencies_must_be_complete(kind: str, status: dict[str, object], *, open_: bool) -> None:
    other = check("first", kind=kind, status=status)
    found = closed(check(dependsOn=["first"]), other, of=cluster())
    assert (not found) == open_


def test_a_missing_dependency_holds_up_and_one_that_nobody_runs_does_not() -> None:
    it = check(dependsOn=["first"])
    assert "which does not exist" in closed(it, of=cluster())
    assert closed(it, check("first", runAfterCreation=False), of=cluster()) == ""
