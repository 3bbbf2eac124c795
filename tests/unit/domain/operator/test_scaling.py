"""Who scales a NodeSet: one at a time, and the second is told of the first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator import scaling
from isthmus.domain.operator.clusterparts import Child, parts_of
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model import soperator
from isthmus.model.autoscaler import HorizontalPodAutoscaler
from isthmus.model.meta import Key
from isthmus.model.slinky import NODESETS, NodeSet

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def written(manager: str, *, subresource: str = "", field: str = "f:replicas") -> dict[str, Any]:
    return {
        "manager": manager,
        "subresource": subresource,
        "operation": "Update",
        "time": NOW.isoformat(),
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}, "f:spec": {field: {}}},
    }


def nodeset(*writers: dict[str, Any], replicas: int = 3, owner: str = "", size: str = "", **spec: Any) -> NodeSet:
    metadata: dict[str, Any] = {"name": "w", "namespace": "n", "managedFields": list(writers)}
    if owner:
        group = soperator.NEBIUS_NODESETS.api_version
        metadata["ownerReferences"] = [
            {"apiVersion": group, "kind": owner, "name": "w", "uid": "1", "controller": True}
        ]
    if size:
        metadata["annotations"] = {names.SIZE_ANNOTATION: size}
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": replicas, **spec}}, NodeSet)


def test_only_the_scale_subresource_makes_somebody_a_scaler() -> None:
    applied = written("kubectl-client-side-apply")
    other_field = written("kube-controller-manager", subresource="scale", field="f:template")
    assert scaling.scaled_by(nodeset(applied, other_field)) is None
    found = scaling.scaled_by(nodeset(applied, written("keda", subresource="scale")))
    assert found
    assert found.manager == "keda"


def test_a_scaler_is_told_who_came_before_it() -> None:
    assert scaling.refusal(nodeset()) == ""
    assert "already scaled by its field autoscale" in scaling.refusal(nodeset(autoscale={}))
    assert "already scaled by its field ephemeralNodes" in scaling.refusal(nodeset(autoscale={}, owner="NodeSet"))
    theirs = scaling.refusal(nodeset(owner="NodeSet"))
    assert theirs.endswith("which it belongs to: scale nodesets.slurm.nebius.ai/w")
    # The workers of a SlurmCluster have no other scale subresource.
    assert scaling.refusal(nodeset(owner="SlurmCluster")) == ""
    for ephemeral in (False, True):
        other = {"metadata": {"name": "w", "namespace": "n"}, "spec": {"ephemeralNodes": ephemeral}}
        assert bool(scaling.refusal(msgspec.convert(other, soperator.NodeSet))) is ephemeral


def autoscaler(name: str, api_version: str, kind: str = "NodeSet", owner: str = "") -> HorizontalPodAutoscaler:
    metadata: dict[str, Any] = {"name": "h", "namespace": "n"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "keda.sh/v1alpha1", "kind": owner, "name": "queue", "uid": "1", "controller": True}
        ]
    spec = {"scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, HorizontalPodAutoscaler)


def test_a_policy_is_told_of_an_autoscaler_that_came_before_it() -> None:
    ours = autoscaler("w", "slinky.slurm.net/v1alpha1")
    others = [autoscaler("x", NODESETS.api_version), autoscaler("w", soperator.NEBIUS_NODESETS.api_version)]
    assert scaling.rival(NODESETS, Key("n", "w"), others) == ""
    told = scaling.rival(NODESETS, Key("n", "w"), [*others, ours])
    assert told == "HorizontalPodAutoscaler h already scales this NodeSet: delete it first"
    of_keda = autoscaler("w", NODESETS.api_version, owner="ScaledObject")
    told = scaling.rival(NODESETS, Key("n", "w"), [of_keda])
    assert "h of ScaledObject queue already scales" in told
    assert told.endswith("delete the ScaledObject first")


def test_who_scales_an_elastic_nodeset_all_the_same_is_reported() -> None:
    scaled = nodeset(written("keda", subresource="scale"), replicas=7, autoscale={})
    before, after = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    told = scaling.intruder(scaled, since=before)
    assert told.startswith("keda set replicas to 7 through the scale subresource, but")
    # It was scaled before it became elastic, and nobody has since.
    assert scaling.intruder(scaled, since=after) == ""
    assert scaling.intruder(nodeset(autoscale={}), since=before) == ""


@pytest.mark.parametrize(
    ("there", "counts"),
    [
        (None, None),
        (nodeset(size="2", replicas=2), None),
        (nodeset(size="2", replicas=3), 3),
        (nodeset(size="2", replicas=0), 0),
        (nodeset(size="1", replicas=3), None),
        (nodeset(replicas=3), None),
    ],
    ids=["new", "unscaled", "scaled", "to none", "another size since", "from before there was a mark"],
)
def test_a_scaled_number_of_workers_counts_until_the_cluster_asks_for_another(
    there: NodeSet | None, counts: int | None
) -> None:
    assert scaling.left_alone(2, there) == counts


def workers(there: NodeSet | None, **spec: Any) -> tuple[Child, int]:
    manifest = {"metadata": {"name": "c", "namespace": "n"}, "spec": spec}
    parts = parts_of(
        msgspec.convert(manifest, soperator.SlurmCluster), prefix="", settings=Settings(), workers=there
    )
    return next(it for it in parts.children if it.kind == NODESETS), parts.workers


def test_a_cluster_counts_the_workers_that_others_asked_for() -> None:
    own = {"slurmNodes": {"worker": {"size": 2}}}
    child, count = workers(None, **own)
    assert (child.scaled, child.manifest["spec"]["replicas"], count) == (False, 2, 2)
    assert child.manifest["metadata"]["annotations"] == {names.SIZE_ANNOTATION: "2"}
    scaled = nodeset(size="2", replicas=0)
    child, count = workers(scaled, **own)
    assert (child.scaled, child.manifest["spec"]["replicas"], count) == (True, 0, 0)
    # Maintenance ends all workers, whoever asked for them.
    child, count = workers(scaled, maintenance="downscale", **own)
    assert (child.scaled, child.manifest["spec"]["replicas"], count) == (False, 0, 0)


def test_workers_that_were_scaled_to_none_stay_a_part_of_the_cluster() -> None:
    child, _ = workers(nodeset(size="1", replicas=0))
    assert child.scaled
