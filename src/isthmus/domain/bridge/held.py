"""What other pods hold on nodes, damped: an increase counts at once, a decrease after a while.

A DaemonSet that is updated deletes a pod and makes another a moment later, and so does a NodeSet. A node that took
each such gap for room would be recreated twice.
"""

from collections.abc import Mapping
from typing import Final

PATIENCE: Final = 30.0
"""For so many seconds less has to be held before it counts."""


class Held:
    """Remembers, of each node that holds less than it did, since when."""

    def __init__(self) -> None:
        self._believed: dict[str, Mapping[str, int]] = {}
        self._less_since: dict[str, float] = {}

    def settle(self, node: str, amounts: Mapping[str, int], *, now: float) -> tuple[Mapping[str, int], float]:
        """Record what is held; return what to believe, and when to look again in seconds (0: never)."""
        believed = self._believed.get(node, amounts)
        if all(amounts.get(resource, 0) >= amount for resource, amount in believed.items()):
            self._less_since.pop(node, None)
        elif (left := self._less_since.setdefault(node, now) + PATIENCE - now) > 0:
            most = {it: max(amounts.get(it, 0), believed.get(it, 0)) for it in (*amounts, *believed)}
            self._believed[node] = most
            return most, left
        else:
            del self._less_since[node]
        self._believed[node] = dict(amounts)
        return amounts, 0.0

    def forget(self, node: str) -> None:
        """Record that a node is gone."""
        self._believed.pop(node, None)
        self._less_since.pop(node, None)
