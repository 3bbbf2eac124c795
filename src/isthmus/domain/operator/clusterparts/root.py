"""The shared root of a SlurmCluster: what it is filled from, and how login nodes and workers have it."""

from collections.abc import Iterable

import msgspec

from isthmus.domain.operator.clusterparts import pods
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.model.slinky import SharedRoot
from isthmus.model.soperator import SlurmCluster


def shares(cluster: SlurmCluster) -> bool:
    """Whether login sessions and jobs live in a shared root; otherwise they share their homes alone."""
    asked = cluster.spec.populate_jail
    return asked is not None and asked.enabled is not False


def inside(volumes: Iterable[Fields], places: Iterable[Fields]) -> list[Fields]:
    """Make sub-mounts from volumes and the places where they are mounted; a claim of each pod's has no volume."""
    sources = {it["name"]: {key: value for key, value in it.items() if key != "name"} for it in volumes}
    return [{**place, "volume": sources.get(place["name"], {})} for place in places]


def shared_root(jail: Fields, sub_mounts: Iterable[Fields], where: str, notes: Notes) -> Fields:
    """Make the field `sharedRoot` of a LoginSet or NodeSet."""
    made: Fields = {"volume": jail, "subMounts": list(sub_mounts)}
    try:
        msgspec.convert(made, SharedRoot)
    except msgspec.ValidationError:
        for number, mount in enumerate(made["subMounts"]):
            try:
                msgspec.convert({"volume": jail, "subMounts": [mount]}, SharedRoot)
            except msgspec.ValidationError:
                notes.refuse(
                    f"{where}.jailSubMounts[{number}].mountPath: {mount['mountPath']!r} is not a path inside "
                    "the shared root; use an absolute path below / without '..'"
                )
    return made


def filling(
    cluster: SlurmCluster, jail: Fields, *, prefix: str, settings: Settings, notes: Notes
) -> Filling | None:
    """Make what the root is filled from; None if it is not shared."""
    asked = cluster.spec.populate_jail
    if asked is None or not shares(cluster):
        return None
    where = "populateJail"
    pod = pods.filter_of(cluster.spec, asked.k8s_node_filter_name, where, notes)
    if asked.priority_class:
        pod["priorityClassName"] = asked.priority_class
    if asked.host_users is not None:
        pod["hostUsers"] = asked.host_users
    if asked.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": it.name} for it in asked.image_pull_secrets]
    if asked.overwrite:
        notes.ignored.append(
            "populateJail.overwrite (what users wrote is never overwritten; isthmus cluster refresh "
            f"{cluster.metadata.name}, or maintenance, updates to a newer image)"
        )
    image = asked.image or cluster.spec.slurm_nodes.login.sshd.image or settings.login_image
    snapshot = None
    if asked.jail_snapshot_volume is not None:
        name = asked.jail_snapshot_volume.volume_source_name
        if not name or asked.jail_snapshot_volume.volume_claim_template_spec is not None:
            notes.refuse(f"{where}.jailSnapshotVolume: set volumeSourceName to a volume in volumeSources")
        else:
            snapshot = pods.source(cluster.spec, name, f"{where}.jailSnapshotVolume", notes)
            image = f"volume:{name}"
    return Filling(
        cluster=cluster.metadata.name,
        namespace=cluster.metadata.namespace,
        prefix=prefix,
        root=jail,
        image=image,
        snapshot=snapshot,
        pull_policy=asked.image_pull_policy,
        pod=pod,
        security=pods.security(asked.app_armor_profile, None),
    )
