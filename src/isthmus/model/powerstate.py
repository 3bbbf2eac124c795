"""NodeSetPowerState: which nodes of an elastic NodeSet have a pod. The names of kind and fields are Soperator's.

    spec.activeNodes   written by the operator, from what Slurm says of nodes; people may add and remove ordinals
    annotation         which ordinals the operator wrote last: the difference is what people ask for

What became of them is in the status, where `hold`, the times of `nodeStates` and node-hours are ours.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object
from isthmus.model.slinky import ReportedStatus
from isthmus.model.soperator import GROUP

_Ordinal = Annotated[int, Meta(ge=0, le=65533)]


class NodeSetPowerStateSpec(Data, frozen=True):
    """Which nodes are to have a pod."""

    node_set_ref: str = ""
    """The NodeSet, which has the same name."""
    active_nodes: Annotated[frozenset[_Ordinal], Meta(max_length=65534)] = frozenset()
    """Ordinals of nodes that are on. One that is added is powered up in Slurm, one that is removed is powered down
    as soon as its jobs have ended."""


class NodePower(Data, frozen=True):
    """One node that is not off."""

    ordinal: int
    state: str = ""
    """PoweringUp, PoweredUp, PoweringDown or Held."""
    since: datetime | None = None


class CapacityHold(Data, frozen=True):
    """Why no node is started for a while (Isthmus only)."""

    failures: int = 0
    """How often in a row."""
    until: datetime | None = None
    cause: str = ""


class NodeSetPowerStateStatus(ReportedStatus, frozen=True):
    """Observed state of the nodes."""

    active_count: int = 0
    """Nodes that have a pod which is ready."""
    node_states: tuple[NodePower, ...] = ()
    hold: CapacityHold | None = None
    used_node_hours: float = 0.0
    """Of the day `usedDay` (Isthmus only)."""
    used_day: str = ""
    used_at: datetime | None = None


class NodeSetPowerState(Object, frozen=True):
    """Which nodes of an elastic NodeSet are on."""

    spec: NodeSetPowerStateSpec = NodeSetPowerStateSpec()
    status: NodeSetPowerStateStatus = NodeSetPowerStateStatus()


POWER_STATES = Kind(NodeSetPowerState, f"{GROUP}/v1alpha1", "nodesetpowerstates", "NodeSetPowerState")
