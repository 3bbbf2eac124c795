from pathlib import Path

import msgspec
import pytest

from isthmus.errors import Terminal
from isthmus.local.provisioner import LOCAL, SHARED, is_to_be_removed, volume_for, wants_volume
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Resources
from isthmus.model.storage import Claim, ClaimSpec, PersistentVolume, StorageStatus, VolumeSpec

UID = "0f1e2d3c-0000-4000-8000-123456789abc"
HOME = Path("/volumes")
ONCE, MANY = ("ReadWriteOnce",), ("ReadWriteMany",)


def claim(provisioner: str = SHARED, modes: tuple[str, ...] = MANY, *, node: str = "", uid: str = UID) -> Claim:
    chosen = {"volume.kubernetes.io/selected-node": node} if node else {}
    return Claim(
        metadata=ObjectMeta(
            name="data",
            namespace="lab",
            uid=uid,
            annotations={"volume.kubernetes.io/storage-provisioner": provisioner, **chosen},
        ),
        spec=ClaimSpec(
            storage_class_name="some", access_modes=modes, resources=Resources(requests={"storage": "1Gi"})
        ),
        status=StorageStatus(phase="Pending"),
    )


@pytest.mark.parametrize("provisioner", [SHARED, LOCAL])
def test_a_pending_claim_of_ours_wants_a_volume(provisioner: str) -> None:
    assert wants_volume(claim(provisioner))


@pytest.mark.parametrize(
    "other",
    [
        claim("rancher.io/local-path"),
        msgspec.structs.replace(claim(), status=StorageStatus(phase="Bound")),
        msgspec.structs.replace(claim(), spec=ClaimSpec(volume_name="mine")),
        msgspec.structs.replace(claim(), metadata=ObjectMeta(name="data", namespace="lab", uid=UID)),
    ],
    ids=["another provisioner's", "bound", "has chosen its volume", "not given to anyone yet"],
)
def test_other_claims_do_not(other: Claim) -> None:
    assert not wants_volume(other)


@pytest.mark.parametrize("modes", [ONCE, MANY, ("ReadOnlyMany",), ("ReadWriteOncePod",), (*ONCE, *MANY)])
def test_a_shared_volume_takes_every_mode_and_is_on_all_nodes(modes: tuple[str, ...]) -> None:
    volume = volume_for(claim(SHARED, modes), HOME)
    assert volume["metadata"]["name"] == f"pvc-{UID}"
    assert volume["spec"]["local"]["path"] == f"/volumes/pvc-{UID}"
    assert volume["spec"]["accessModes"] == list(modes)
    assert volume["spec"]["capacity"] == {"storage": "1Gi"}
    assert volume["spec"]["storageClassName"] == "some"
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert {volume["spec"]["claimRef"][key] for key in ("namespace", "name", "uid")} == {"lab", "data", UID}
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "Exists"}]


@pytest.mark.parametrize("modes", [ONCE, ("ReadWriteOncePod",)])
def test_a_local_volume_is_tied_to_the_node_that_was_chosen(modes: tuple[str, ...]) -> None:
    spec = volume_for(claim(LOCAL, modes, node="worker2"), HOME)["spec"]
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker2"]}]


@pytest.mark.parametrize("modes", [MANY, ("ReadOnlyMany",), (*ONCE, *MANY)])
def test_a_local_volume_cannot_be_shared(modes: tuple[str, ...]) -> None:
    with pytest.raises(Terminal, match=r"claim lab/data: a local volume is on one node(.|\n)*→ .*`shared`"):
        volume_for(claim(LOCAL, modes, node="worker"), HOME)


def test_a_local_volume_needs_a_node() -> None:
    with pytest.raises(Terminal, match=r"lab/data: no node was chosen(.|\n)*→ .*WaitForFirstConsumer"):
        volume_for(claim(LOCAL, ONCE), HOME)


@pytest.mark.parametrize("uid", ["", "../../etc", f"../{UID}"[:36], "x" * 36, f"{UID}\n", UID.upper()])
def test_a_uid_that_is_none_never_becomes_a_path(uid: str) -> None:
    with pytest.raises(Terminal, match="is not a valid UID"):
        volume_for(claim(uid=uid), HOME)


def test_block_devices_are_refused() -> None:
    block = msgspec.structs.replace(claim(), spec=ClaimSpec(volume_mode="Block"))
    with pytest.raises(Terminal, match="only file system volumes"):
        volume_for(block, HOME)


def volume(*, made_by: str = SHARED, phase: str = "Released", policy: str = "Delete") -> PersistentVolume:
    return PersistentVolume(
        metadata=ObjectMeta(name=f"pvc-{UID}", annotations={"pv.kubernetes.io/provisioned-by": made_by}),
        spec=VolumeSpec(reclaim_policy=policy),
        status=StorageStatus(phase=phase),
    )


def test_only_volumes_of_ours_that_are_released_and_not_to_be_kept_are_removed() -> None:
    assert is_to_be_removed(volume())
    assert is_to_be_removed(volume(made_by=LOCAL))
    for kept in (volume(made_by="other"), volume(phase="Bound"), volume(phase="Failed"), volume(policy="Retain")):
        assert not is_to_be_removed(kept)
