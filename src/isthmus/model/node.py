"""Nodes, as far as placement and health need."""

from collections.abc import Mapping
from datetime import datetime

from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import Condition, Object


class Taint(Data, frozen=True):
    """Keeps pods away that do not tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(Data, frozen=True):
    """What an administrator or controller said about the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Data, frozen=True):
    """How the node is reached: `type` is InternalIP, ExternalIP, Hostname and so on."""

    type: str
    address: str


class NodeStatus(Data, frozen=True):
    """What the node says of itself; quantities as in `domain.languages.quantity`."""

    capacity: Mapping[str, str] = EMPTY
    allocatable: Mapping[str, str] = EMPTY
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODES = Kind(Node, "v1", "nodes", "Node", namespaced=False)
