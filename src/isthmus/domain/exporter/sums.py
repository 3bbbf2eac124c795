"""Sums of amounts by group, kept by differences: a changed job costs a few additions, however long the queue is.

A group is a kind and the names that tell it apart: `("partition", "gpu")`, `("whose", "gpu", "physics", "normal")`.
Amounts have names, such as `jobs`, `cpus_alloc` or `state/running`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

Group = tuple[str, ...]
Amounts = Mapping[str, float]

ALL: Final[Group] = ("all",)
STATE: Final = "state/"


class Sums:
    """Amounts by group. A group whose amounts are all zero is gone."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[str, float]] = {}
        self.version = 0
        """Another number after each change."""

    def add(self, groups: Iterable[Group], amounts: Amounts, *, sign: int = 1) -> None:
        """Add amounts to each of these groups, or take them away (`sign` -1)."""
        self.version += 1
        for group in groups:
            sums = self._groups.setdefault(group, {})
            for name, amount in amounts.items():
                if total := sums.get(name, 0) + sign * amount:
                    sums[name] = total
                else:
                    sums.pop(name, None)
            if not sums:
                del self._groups[group]

    def get(self, group: Group, amount: str) -> float:
        return self._groups.get(group, {}).get(amount, 0)

    def by(self, kind: str) -> Iterator[tuple[tuple[str, ...], Amounts]]:
        """Give the groups of a kind, as names and amounts."""
        return ((group[1:], sums) for group, sums in self._groups.items() if group[0] == kind)

    def rows(self, kind: str, amount: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """Give one amount of each group of a kind, 0 where there is none."""
        return ((names, sums.get(amount, 0)) for names, sums in self.by(kind))

    def states(self, kind: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """Give what each group has in each state, with the state as the last name."""
        for names, sums in self.by(kind):
            for name, amount in sums.items():
                if name.startswith(STATE):
                    yield (*names, name.removeprefix(STATE)), amount
