"""What `isthmus doctor` makes of what it read."""

from isthmus.inspect.doctor import _is_ready
from isthmus.model.meta import Condition
from isthmus.model.node import Node, NodeStatus


def test_a_node_is_ready_when_it_says_so_and_not_before() -> None:
    assert _is_ready(Node(status=NodeStatus(conditions=(Condition("Ready", "True"),))))
    assert not _is_ready(Node(status=NodeStatus(conditions=(Condition("Ready", "Unknown"),))))
    assert not _is_ready(Node()), "it has not registered yet"
