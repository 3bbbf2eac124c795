"""The volume claims of worker pods."""

from typing import Any

import msgspec

from isthmus.domain.operator.nodeset import claims
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.model.meta import Key, ObjectMeta, OwnerReference
from isthmus.model.pod import ClaimSource, Volume
from isthmus.model.slinky import NodeSet
from isthmus.model.storage import Claim
from tests.unit.domain.operator.nodeset.views import NOW, nodeset, pod

TEMPLATE = {
    "metadata": {"name": "scratch", "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
KEY = Key("slurm", "scratch-worker-0")


def kept(deleted: str = "Retain", scaled: str = "Retain", **more: Any) -> NodeSet:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    return nodeset(1, volumeClaimTemplates=[TEMPLATE], persistentVolumeClaimRetentionPolicy=policy, **more)


def with_claim(ordinal: int = 0, *, leaving: bool = False) -> PodView:
    made = pod(ordinal, leaving=leaving)
    volume = Volume("scratch", ClaimSource(f"scratch-worker-{ordinal}"))
    return msgspec.structs.replace(
        made, pod=msgspec.structs.replace(made.pod, spec=msgspec.structs.replace(made.pod.spec, volumes=(volume,)))
    )


def claim(*owners: OwnerReference, leaving: bool = False) -> dict[Key, Claim]:
    meta = ObjectMeta(
        name=KEY.name,
        namespace=KEY.namespace,
        resource_version="3",
        owner_references=owners,
        deletion_timestamp=NOW if leaving else None,
    )
    return {KEY: Claim(metadata=meta)}


NODESET = OwnerReference("slinky.slurm.net/v1beta1", "NodeSet", "worker", "u")
POD = OwnerReference("v1", "Pod", "worker-0", "uid-worker-0")
OTHER = OwnerReference("example.org/v1", "Backup", "b", "x")
NOBODY = frozenset[str]()


def owners(
    of: NodeSet, there: dict[Key, Claim], *, going: frozenset[str] = NOBODY, leaving: bool = False
) -> list[tuple[str, ...]]:
    steps = claims.retention(of, there, [with_claim(leaving=leaving)], going=going)
    return [tuple(owner.kind for owner in step.owners) for step in steps]


def test_a_pod_has_its_own_claims() -> None:
    who = numbered(kept(), 0)
    (made,) = claims.manifests(kept(), who, {"app": "slurmd"})
    assert made["metadata"] == {
        "name": "scratch-worker-0",
        "namespace": "slurm",
        "labels": {"a": "b", "app": "slurmd"},
    }
    assert made["spec"] == TEMPLATE["spec"]
    assert claims.volumes(kept(), who) == [
        {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch-worker-0"}}
    ]


def test_what_goes_with_the_nodeset_belongs_to_it_from_the_beginning() -> None:
    (made,) = claims.manifests(kept("Delete"), numbered(kept(), 0), {})
    assert [it["uid"] for it in made["metadata"]["ownerReferences"]] == ["u"]


def test_retained_claims_belong_to_nobody() -> None:
    assert owners(kept(), claim()) == []
    assert owners(kept(), claim(), going=frozenset({"worker-0"})) == []
    assert owners(kept(), claim(NODESET)) == [()]  # the policy was another before


def test_the_claim_of_a_pod_that_goes_for_good_goes_with_it() -> None:
    of = kept(scaled="Delete")
    assert owners(of, claim()) == []
    assert owners(of, claim(), going=frozenset({"worker-0"})) == [("Pod",)]
    assert owners(of, claim(POD), going=frozenset({"worker-0"})) == []


def test_a_pod_that_is_wanted_again_keeps_its_claim() -> None:
    assert owners(kept(scaled="Delete"), claim(POD)) == [()]
    assert owners(kept("Delete", "Delete"), claim(POD)) == [("NodeSet",)]


def test_a_claim_goes_with_a_pod_that_takes_its_time_to_end() -> None:
    assert owners(kept("Delete", "Delete"), claim(POD), leaving=True) == []
    assert owners(kept("Delete", "Delete"), claim(NODESET), leaving=True) == []


def test_both_policies_take_turns() -> None:
    of = kept("Delete", "Delete")
    assert owners(of, claim(NODESET)) == []
    assert owners(of, claim(NODESET), going=frozenset({"worker-0"})) == [("Pod",)]


def test_owners_of_others_are_left_alone() -> None:
    assert owners(kept("Delete"), claim(OTHER)) == []


def test_a_claim_that_is_about_to_vanish_holds_its_pod_back() -> None:
    of = kept(scaled="Delete")
    who = numbered(of, 0)
    assert claims.blocked(of, who, claim(), alive=()) == ""
    assert claims.blocked(of, who, {}, alive=()) == ""
    assert claims.blocked(of, who, claim(POD), alive=["uid-worker-0"]) == ""
    assert claims.blocked(of, who, claim(POD), alive=()) == KEY.name
    assert claims.blocked(of, who, claim(leaving=True), alive=()) == KEY.name
