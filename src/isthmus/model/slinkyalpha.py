"""NodeSet and LoginSet in their short form, v1alpha1 of slinky.slurm.net: so many pods, of this template.

`operator.conversion` writes them as v1beta1, which is what is stored and worked with, and back.
"""

from typing import Annotated

from msgspec import Meta, field

from isthmus.model.base import Data
from isthmus.model.meta import ObjectMeta
from isthmus.model.schema import FreeForm, Rule, rules
from isthmus.model.slinky import (
    SAME_CLAIMS,
    ClaimRetention,
    NodeSetStatus,
    PodTemplate,
    ReplicatedStatus,
    ServiceTemplate,
    UpdatePolicy,
)

VERSION = "v1alpha1"

_ClusterName = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]


class ShortNodeSetSpec(Data, frozen=True):
    """Worker nodes of one shape."""

    replicas: Annotated[int, Meta(ge=0, le=65533)] = 1
    cluster_name: _ClusterName = ""
    """The Controller; without a name, the only one of the namespace."""
    template: PodTemplate = PodTemplate()
    """The container `slurmd`, or else the first one, is slurmd's; it goes over ours field by field."""
    selector: FreeForm | None = None
    """Kept as it is; nodes are found by labels of our own."""
    service_name: str = ""
    """Kept as it is; nodes are found under the Service of all workers."""
    volume_claim_templates: Annotated[tuple[FreeForm, ...], Meta(max_length=64)] = ()
    update_strategy: UpdatePolicy | None = None
    persistent_volume_claim_retention_policy: ClaimRetention | None = None
    revision_history_limit: Annotated[int, Meta(ge=0)] | None = None
    min_ready_seconds: Annotated[int, Meta(ge=0)] | None = None


_SAME_CLUSTER = Rule(
    "!has(oldSelf.clusterName) || oldSelf.clusterName == ''"
    " || (has(self.clusterName) && self.clusterName == oldSelf.clusterName)",
    "clusterName cannot be changed: create another one for the other cluster, then delete this one",
)


class ShortNodeSet(Data, frozen=True):
    """Worker nodes of a cluster."""

    spec: Annotated[ShortNodeSetSpec, rules(_SAME_CLUSTER, SAME_CLAIMS)]
    metadata: ObjectMeta = ObjectMeta()
    status: NodeSetStatus = NodeSetStatus()


class ShortLoginSetSpec(Data, frozen=True):
    """Nodes that users log in to."""

    replicas: Annotated[int, Meta(ge=0, le=1000)] = 1
    cluster_name: _ClusterName = ""
    """The Controller; without a name, the only one of the namespace."""
    template: PodTemplate = PodTemplate()
    """The container `login`, or else the first one, is sshd's; it goes over ours field by field."""
    selector: FreeForm | None = None
    """Kept as it is; nodes are found by labels of our own."""
    strategy: FreeForm = field(default_factory=dict)
    service: ServiceTemplate | None = None


class ShortLoginSet(Data, frozen=True):
    """Login nodes of a cluster."""

    spec: Annotated[ShortLoginSetSpec, rules(_SAME_CLUSTER)]
    metadata: ObjectMeta = ObjectMeta()
    status: ReplicatedStatus = ReplicatedStatus()
