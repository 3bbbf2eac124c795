"""Volumes, the claims on them and the classes they come from, as a provisioner reads them."""

from msgspec import field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object, ObjectMeta
from isthmus.model.pod import NodeSelector, Resources


class ClaimSpec(Data, frozen=True):
    """What volume is asked for."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: Resources = Resources()
    volume_mode: str = "Filesystem"


class StorageStatus(Data, frozen=True):
    """Of a claim: Pending, Bound or Lost. Of a volume: Available, Bound, Released or Failed."""

    phase: str = ""


class Claim(Object, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: StorageStatus = StorageStatus()


class LocalPath(Data, frozen=True):
    """A directory on a node."""

    path: str


class VolumeNodeAffinity(Data, frozen=True):
    """The nodes that can reach the volume."""

    required: NodeSelector | None = None


class VolumeSpec(Data, frozen=True):
    reclaim_policy: str = field(name="persistentVolumeReclaimPolicy", default="Retain")
    host_path: LocalPath | None = None
    local: LocalPath | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Object, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: StorageStatus = StorageStatus()


class TopologyRequirement(Data, frozen=True):
    """A label that a node must have, with one of these values."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Data, frozen=True):
    """All of these must hold."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Data, frozen=True):
    """A way to make volumes; of `allowed_topologies`, one must hold for the node that the volume is made for."""

    provisioner: str
    metadata: ObjectMeta = ObjectMeta()
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


CLAIMS = Kind(Claim, "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Kind(PersistentVolume, "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Kind(StorageClass, "storage.k8s.io/v1", "storageclasses", "StorageClass", namespaced=False)
