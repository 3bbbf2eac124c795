"""How a SlurmCluster is, from what its parts tell."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.clusterparts import Parts
from isthmus.domain.operator.clusterparts.status import ClusterView, View, cluster_status, look_at, nodeset_status
from isthmus.model.meta import Condition, condition
from isthmus.model.slinky import Accounting, Controller, LoginSet, NodeSet, RestApi
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.model.soperator import SlurmCluster

READY = [{"type": "Ready", "status": "True"}, {"type": "Degraded", "status": "False"}]
WAITS = [{"type": "Ready", "status": "False", "message": "1 of 2 pods"}]
BROKEN = [{"type": "Ready", "status": "False"}, {"type": "Degraded", "status": "True", "message": "no image"}]
KEYS = {"slurmKeyRef": {"name": "k", "key": "k"}, "jwtKeyRef": {"name": "j", "key": "j"}}
REFERENCE = {"controllerRef": {"name": "demo"}}


def cluster(**spec: Any) -> SlurmCluster:
    return msgspec.convert({"metadata": {"name": "demo", "namespace": "hpc"}, "spec": spec}, SlurmCluster)


def part(kind: Any, conditions: list[dict[str, str]] = READY, *, behind: bool = False, **status: Any) -> Any:
    spec = KEYS if kind in (Controller, Accounting) else REFERENCE
    told = {"conditions": conditions, "observedGeneration": 2 if behind else 3, **status}
    return msgspec.convert({"metadata": {"name": "x", "generation": 3}, "spec": spec, "status": told}, kind)


def view(**other: Any) -> ClusterView:
    whole: dict[str, Any] = {
        "controller": part(Controller, slurmVersion="26.05.1"),
        "restapi": part(RestApi),
        "login": part(LoginSet, readyReplicas=1, replicas=1),
        "nodesets": (part(NodeSet, readyReplicas=3, replicas=3),),
    }
    return ClusterView(**(whole | other))


def told(of: SlurmCluster, seen: ClusterView, **parts: Any) -> tuple[dict[str, Any], dict[str, Condition]]:
    fields, held = cluster_status(of, Parts((), (), **({"workers": 3} | parts)), seen, prefix="")
    types = [it.type for it in held]
    assert len(types) == len(set(types))
    return fields, {it.type: it for it in held}


def test_all_parts_ready_is_available() -> None:
    fields, held = told(cluster(), view())
    assert fields == {
        "phase": "Available",
        "namePrefix": "",
        "readyLogin": 1,
        "readyWorkers": 3,
        "workers": "3/3",
        "readySConfigController": 0,
        "slurmVersion": "26.05.1",
    }
    assert held["Ready"].status == "True"
    assert held["Progressing"].status == held["Degraded"].status == "False"
    assert "AccountingAvailable" not in held


@pytest.mark.parametrize(
    ("which", "kind", "type_"),
    [
        ("controller", Controller, "ControllersAvailable"),
        ("restapi", RestApi, "CommonAvailable"),
        ("login", LoginSet, "LoginAvailable"),
    ],
)
def test_one_part_that_waits_is_named(which: str, kind: Any, type_: str) -> None:
    fields, held = told(cluster(), view(**{which: part(kind, WAITS)}))
    assert fields["phase"] == "Not available"
    assert held[type_].status == "False"
    assert "1 of 2 pods" in held["Ready"].message
    assert held["Progressing"].status == "True"
    assert held["Degraded"].status == "False"


def test_one_part_that_is_broken_degrades_the_cluster() -> None:
    _, held = told(cluster(), view(nodesets=(part(NodeSet, BROKEN),)))
    assert held["Degraded"].status == "True"
    assert "no image" in held["Degraded"].message
    assert held["WorkersAvailable"].status == "False"


def test_accounting_counts_where_it_is_wanted() -> None:
    wanted = cluster(slurmNodes={"accounting": {"enabled": True}})
    assert told(wanted, view())[1]["Ready"].status == "False"
    assert told(wanted, view(accounting=part(Accounting)))[1]["Ready"].status == "True"


def test_what_a_part_told_of_an_older_specification_counts_for_nothing() -> None:
    assert told(cluster(), view(login=part(LoginSet, behind=True)))[1]["Ready"].status == "False"
    assert told(cluster(), view(stale=frozenset({"NodeSet"})))[1]["Ready"].status == "False"


def test_what_cannot_be_made_is_said_first() -> None:
    fields, held = told(cluster(), ClusterView(), problems=("no filter",), ignored=("topology",))
    assert fields["phase"] == "Pending"
    assert held["Accepted"].status == "False"
    assert held["Ready"].message == "no filter"
    assert "topology" in held["FieldsWithoutEffect"].message


def test_refs_that_lead_nowhere() -> None:
    assert told(cluster(), view(), unresolved=("gpu (of partition x)",))[1]["NodeSetRefsResolved"].status == "False"


def test_a_cluster_at_rest() -> None:
    resting = cluster(maintenance="downscale")
    _, held = told(resting, view())
    assert held["Ready"].reason == held["ControllersAvailable"].reason == "Maintenance"
    assert held["Progressing"].status == "True"
    assert "3 workers are being drained" in held["Ready"].message
    _, held = told(resting, ClusterView())
    assert held["Progressing"].status == "False"


def test_a_part_that_is_not_there_is_being_made() -> None:
    view = look_at("slurmctld", None)
    assert (view.ready, view.missing) == (False, "slurmctld is being created")


@pytest.mark.parametrize(
    ("seen", "more", "phase"),
    [
        (None, {"waits": "there is no SlurmCluster x"}, "Pending"),
        (None, {"problems": ("wrong",)}, "Degraded"),
        (part(NodeSet, WAITS), {}, "Provisioning"),
        (part(NodeSet, BROKEN), {}, "Degraded"),
        (part(NodeSet, readyReplicas=2, selector="a=b"), {}, "Ready"),
    ],
)
def test_phases_of_a_nodeset(seen: NodeSet | None, more: dict[str, Any], phase: str) -> None:
    nodeset = msgspec.convert({"spec": {"replicas": 2}}, NebiusNodeSet)
    fields, held = nodeset_status(nodeset, seen, **more)
    assert fields["phase"] == phase
    ready = condition(held, "PodsReady")
    assert ready is not None
    assert (ready.status == "True") == (phase == "Ready")


def test_a_broken_exporter_is_told_and_leaves_the_cluster_available() -> None:
    broken = View("slurm-exporter", ready=False, wrong="slurm-exporter: no image")
    fields, held = told(cluster(), view(exporter=broken))
    assert fields["phase"] == "Available"
    assert held["Ready"].status == "True"
    assert (held["Degraded"].status, held["Degraded"].message) == ("True", "slurm-exporter: no image")
    assert (held["ExporterAvailable"].status, held["ExporterAvailable"].message) == ("False", broken.wrong)
    _, held = told(cluster(), view(exporter=broken, login=part(LoginSet, BROKEN)))
    assert held["Degraded"].message == "login: no image; slurm-exporter: no image"
    assert held["Ready"].status == "False"


def test_an_exporter_that_starts_is_waited_for_by_nobody() -> None:
    starting = View("slurm-exporter", ready=False, missing="slurm-exporter: 0 of 1 pods are ready")
    fields, held = told(cluster(), view(exporter=starting))
    assert fields["phase"] == "Available"
    assert held["ExporterAvailable"].status == "False"
    assert held["Degraded"].status == "False"
    ready = View("slurm-exporter", ready=True, remark="scrape it")
    assert (
        told(cluster(), view(exporter=ready))[1]["ExporterAvailable"].message
        == "slurm-exporter is ready (scrape it)"
    )
    resting = cluster(maintenance="downscale", slurmNodes={"exporter": {"enabled": True}})
    assert told(resting, view(exporter=starting))[1]["ExporterAvailable"].reason == "Maintenance"
