"""Who scales a NodeSet: one at a time, and a second one gets an error that names the first.

autoscale, ephemeralNodes     Slurm and the policy: nobody scales it beside them
of a NodeSet of Soperator's   that one: its part is not scaled by itself
any other                     `replicas`, which people, HPA and KEDA write through the scale subresource
workers of a SlurmCluster     slurmNodes.worker.size, until somebody scales their NodeSet; a new size counts again
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from isthmus import names
from isthmus.model import soperator
from isthmus.model.autoscaler import FieldOwner, HorizontalPodAutoscaler
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.slinky import NODESETS, NodeSet

SizedNodeSet = NodeSet | soperator.NodeSet


def is_elastic(nodeset: SizedNodeSet) -> bool:
    """Whether Slurm starts and stops its nodes."""
    return nodeset.spec.elastic if isinstance(nodeset, NodeSet) else nodeset.spec.ephemeral_nodes


def refusal(nodeset: SizedNodeSet) -> str:
    """Why nobody may scale it through the scale subresource; empty if they may."""
    key = nodeset.metadata.key
    if is_elastic(nodeset):
        field = first(nodeset)
        return (
            f"NodeSet {key} is already scaled by its field {field}: Slurm starts and stops its nodes. To scale it "
            f"by other means, remove {field}; to change how many nodes Slurm knows, change spec.replicas"
        )
    owner = nodeset.metadata.controller
    if isinstance(nodeset, NodeSet) and owner and owner.kind == soperator.NEBIUS_NODESETS.name:
        return (
            f"NodeSet {key} of {NODESETS.group} is already scaled by NodeSet {owner.name} of {soperator.GROUP}, "
            f"which it belongs to: scale nodesets.{soperator.GROUP}/{owner.name}"
        )
    return ""


def rival(kind: Kind[Any], key: Key, found: Iterable[HorizontalPodAutoscaler]) -> str:
    """Why a NodeSet may not become elastic: what scales it already; empty if nothing does."""
    for it in found:
        target = it.spec.scale_target_ref
        if (target.api_version.partition("/")[0], target.kind, target.name) == (kind.group, kind.name, key.name):
            owner = it.metadata.controller
            made = f" of {owner.kind} {owner.name}" if owner else ""
            return (
                f"HorizontalPodAutoscaler {it.metadata.name}{made} already scales this NodeSet: "
                f"delete {f'the {owner.kind}' if owner else 'it'} first"
            )
    return ""


def scaled_by(nodeset: NodeSet) -> FieldOwner | None:
    """Who wrote `replicas` last, if it was through the scale subresource."""
    for it in nodeset.metadata.managed_fields:
        if it.subresource == "scale" and it.fields_v1.spec.replicas is not None:
            return it
    return None


def intruder(nodeset: NodeSet, *, since: datetime | None) -> str:
    """Who scaled an elastic NodeSet since it is elastic, though nobody should; empty if nobody did."""
    other = scaled_by(nodeset)
    if other is None or since is None or other.time is None or other.time <= since:
        return ""
    field = first(nodeset)
    return (
        f"{other.manager or 'somebody'} set replicas to {nodeset.spec.replicas} through the scale subresource, but "
        f"the nodes are scaled by {field}: remove the other autoscaler, or {field}"
    )


def left_alone(wanted: int, there: NodeSet | None) -> int | None:
    """How many workers of a cluster somebody else has asked for, if that counts; None if `wanted` does.

    We write the number and the annotation at once, so another number is somebody else's. It counts until the
    cluster asks for another one itself. Owners of fields do not say as much: a scale to 0 leaves it without any.
    """
    if there is None or there.metadata.annotations.get(names.SIZE_ANNOTATION) != str(wanted):
        return None
    return None if there.spec.replicas == wanted else there.spec.replicas


def first(nodeset: SizedNodeSet) -> str:
    """The field by which Slurm scales it, where it does."""
    if isinstance(nodeset, NodeSet):
        owner = nodeset.metadata.controller
        return "ephemeralNodes" if owner and owner.kind == soperator.NEBIUS_NODESETS.name else "autoscale"
    return "ephemeralNodes"
