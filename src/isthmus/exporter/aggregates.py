"""The families that follow from sums over jobs and nodes: written again only when a sum has changed."""

from collections.abc import Callable, Iterable, Iterator

from isthmus.domain.exporter import folding
from isthmus.domain.exporter.exposition import Family
from isthmus.domain.exporter.sets import MetricSet, View, Waiting
from isthmus.domain.exporter.sums import Sums


class Aggregates:
    """Families of some sets, of one source of sums."""

    def __init__(
        self,
        sets: Iterable[MetricSet],
        *,
        jobs: Sums,
        nodes: Sums,
        waiting: Callable[[], Iterable[Waiting]],
        limits: folding.Limits,
    ) -> None:
        self._summed = [table for each in sets for table in each.sums]
        self._computed = [table for each in sets for table in each.computed]
        self._jobs, self._nodes = jobs, nodes
        self._waiting = waiting
        self._limits = limits
        self._written = (-1, -1)
        self._texts: dict[str, list[str]] = {}
        self.folded: dict[str, int] = {}

    def of_nodes(self, _now: float) -> Iterable[str]:
        """Give the families that need no jobs."""
        self._write()
        return self._texts["nodes"]

    def of_jobs(self, now: float) -> Iterator[str]:
        """Give the families of jobs, and those that change with time."""
        self._write()
        yield from self._texts["jobs"]
        view = View(self._jobs, self._nodes, self._waiting(), now)
        for table in self._computed:
            yield self._fold(table.family, table.rows(view))

    def _write(self) -> None:
        versions = self._jobs.version, self._nodes.version
        if versions == self._written:
            return
        view = View(self._jobs, self._nodes)
        self._texts = {
            source: [self._fold(table.family, view.rows(table)) for table in self._summed if table.source == source]
            for source in ("jobs", "nodes")
        }
        self._written = versions

    def _fold(self, family: Family, rows: Iterable[tuple[tuple[str, ...], float]]) -> str:
        found = folding.fold(family.labels, rows, self._limits)
        self.folded[family.name] = found.folded
        return family.text(found.rows)
