"""What the poller knows of nodes, as lines of the families that have series for each node, and as sums."""

from collections.abc import Iterable, Iterator

from isthmus.domain.exporter import nodesums
from isthmus.domain.exporter.sets import PerNode
from isthmus.domain.exporter.sums import Sums
from isthmus.exporter.lines import Lines
from isthmus.model.slurm import Node
from isthmus.slurm.store import Store


class Nodes:
    """Follows the nodes of a poller."""

    def __init__(self, store: Store[str, Node], tables: Iterable[PerNode]) -> None:
        self.sums = Sums()
        self._tables = [(table, Lines[str](table.family)) for table in tables]
        store.on_change(self._changed)

    def text(self, _now: float) -> Iterator[str]:
        return (lines.text() for _, lines in self._tables)

    def _changed(self, name: str, old: Node | None, new: Node | None) -> None:
        if old is not None:
            was = nodesums.facts(old)
            self.sums.add(nodesums.groups(was), nodesums.amounts(was), sign=-1)
        if new is None:
            for _, lines in self._tables:
                lines.drop(name)
            return
        now = nodesums.facts(new)
        self.sums.add(nodesums.groups(now), nodesums.amounts(now))
        for table, lines in self._tables:
            lines.put(name, "".join([table.family.line(labels, value) for labels, value in table.rows(now)]))
