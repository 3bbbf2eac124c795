"""How families follow from what is known, as tables: a set has the names of one exporter, and no logic."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec

from isthmus.domain.exporter.exposition import Family, Row
from isthmus.domain.exporter.jobfacts import JobFacts
from isthmus.domain.exporter.nodesums import NodeFacts
from isthmus.domain.exporter.sums import Sums
from isthmus.model.slurm import Statistics

BY_STATE: Final = "by state"
"""In place of an amount: what a group has in each state, with the state as the last label."""

US: Final = 1_000_000


class PerNode(NamedTuple):
    """A family with series for each node."""

    family: Family
    rows: Callable[[NodeFacts], Iterable[Row]]


class Summed(NamedTuple):
    """A family with a series for each group of a kind."""

    family: Family
    source: Literal["jobs", "nodes"]
    kind: str
    amount: str


class Measured(NamedTuple):
    """A family with one series, from slurmctld's statistics."""

    family: Family
    value: Callable[[Statistics], float | None]


class Computed(NamedTuple):
    """A family that follows from sums in a way of its own."""

    family: Family
    rows: Callable[["View"], Iterable[Row]]


class Waiting(NamedTuple):
    """What is looked at, at every scrape, of jobs that wait: some of it becomes true by the passing of time."""

    partition: str
    eligible: float
    held: bool
    nodes: int

    @classmethod
    def of(cls, job: JobFacts) -> "Waiting":
        return cls(job.partition, job.eligible, job.held, job.resources.nodes // max(1, job.tasks))


class View(NamedTuple):
    """What families follow from."""

    jobs: Sums
    nodes: Sums
    waiting: Iterable[Waiting] = ()
    now: float = 0.0

    @property
    def partitions(self) -> list[str]:
        """Every partition that has nodes or jobs."""
        names = {names[0]: None for sums in (self.nodes, self.jobs) for names, _ in sums.by("partition")}
        return sorted(names)

    def rows(self, table: Summed) -> Iterator[Row]:
        """Give the rows of a family. A partition without jobs has none of them, which is not the same as absent."""
        sums = self.jobs if table.source == "jobs" else self.nodes
        if table.amount == BY_STATE:
            yield from sums.states(table.kind)
        elif table.kind == "all":
            yield (), sums.get(("all",), table.amount)
        elif table.kind == "partition":
            yield from (((name,), sums.get(("partition", name), table.amount)) for name in self.partitions)
        else:
            yield from sums.rows(table.kind, table.amount)


class MetricSet(msgspec.Struct, frozen=True):
    """The families of one exporter."""

    nodes: tuple[PerNode, ...] = ()
    sums: tuple[Summed, ...] = ()
    computed: tuple[Computed, ...] = ()
    statistics: tuple[Measured, ...] = ()
    fair_share: Family | None = None
    """One with the label `account`."""

    def families(self) -> Iterator[Family]:
        tables: tuple[tuple[PerNode | Summed | Computed | Measured, ...], ...] = (
            self.nodes,
            self.sums,
            self.computed,
            self.statistics,
        )
        yield from (entry.family for table in tables for entry in table)
        if self.fair_share:
            yield self.fair_share


def measured(prefix: str, fields: Mapping[str, str]) -> tuple[Measured, ...]:
    """Families from fields of slurmctld's statistics, by name; Slurm gives microseconds for names in seconds."""

    def value(name: str, field: str) -> Callable[[Statistics], float | None]:
        read = attrgetter(field)
        return (lambda it: read(it) / US) if name.endswith("_seconds") else read

    return tuple(
        Measured(
            gauge(
                f"{prefix}_{name}", f"Of slurmctld's statistics: {name.removesuffix('_total').replace('_', ' ')}."
            ),
            value(name, field),
        )
        for name, field in fields.items()
    )


def gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, "gauge", help_text, labels)


def of_node(family: Family, value: Callable[[NodeFacts], float]) -> PerNode:
    """Make a family with one series for each node, of which the name is the only label."""
    return PerNode(family, lambda node: (((node.node.name,), value(node)),))


def most_nodes(view: View, *, held: bool = True) -> Iterator[Row]:
    """For each partition, the largest number of nodes that a waiting job asks for."""
    most = dict.fromkeys(view.partitions, 0)
    for job in view.waiting:
        if held or not job.held:
            most[job.partition] = max(most.get(job.partition, 0), job.nodes)
    return (((partition,), nodes) for partition, nodes in most.items())
