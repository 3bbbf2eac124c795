"""Which tests run which lines of `src`, and so which of them can notice a fault. Pure."""

from collections.abc import Iterable, Mapping
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from tests.mutants.sample import Mutant

UNIT = ("tests/unit", "tests/properties")

_UNIT_SECONDS = 30.0
"""Hundreds of tests run what everything uses; nearly all of them take milliseconds."""

_MOST_FLOWS = 12
"""A flow takes seconds. What is noticed at all is mostly noticed by one of the first."""


class ModuleReach(Struct, frozen=True):
    """What the tests of one module ran: for each line of each file, the numbers of tests."""

    tests: list[str]
    seconds: list[float]
    failed: list[str]
    """These fail without any fault, too, so they cannot tell anything."""
    lines: dict[str, dict[int, list[int]]]


class Chosen(NamedTuple):
    """Tests to run, and how many more there are that run the line."""

    tests: list[str]
    left_out: int


class Reach:
    """The reach of many modules of tests."""

    def __init__(self, modules: Iterable[ModuleReach]) -> None:
        self._modules = list(modules)
        self._seconds = {
            test: seconds for it in self._modules for test, seconds in zip(it.tests, it.seconds, strict=True)
        }
        self.failed = {test for it in self._modules for test in it.failed}

    def of(self, mutant: Mutant, readers: Mapping[str, set[tuple[str, int]]]) -> set[str]:
        """Find the tests that run the faulty code, or read what it left at import."""
        path, mutation = mutant.path, mutant.mutation
        if not mutation.names:
            first, last = mutation.runs
            return self._running((path, line) for line in range(first, last + 1))
        found = self._running(place for name in mutation.names for place in readers.get(name, ()))
        # What is read at import only, by other constants, shows wherever the module is used.
        return found or self._running((path, line) for it in self._modules for line in it.lines.get(path, ()))

    def _running(self, places: Iterable[tuple[str, int]]) -> set[str]:
        return {
            module.tests[number]
            for path, line in set(places)
            for module in self._modules
            for number in module.lines.get(path, {}).get(line, ())
        } - self.failed

    def choose(self, tests: set[str], path: str) -> Chosen:
        """Choose the quickest unit tests and flows; of flows, some named after the file, then of each module."""
        modules: dict[str, list[str]] = {}
        units: list[str] = []
        for test in self._quickest(tests):
            if test.startswith(UNIT):
                units.append(test)
            else:
                modules.setdefault(test.partition("::")[0], []).append(test)
        ends = accumulate(self._seconds[it] for it in units)
        units = units[: sum(end <= _UNIT_SECONDS for end in ends) or 1]
        names = (f"/test_{Path(path).stem}.py", f"/test_{Path(path).parent.name}.py")
        namesakes = [test for module, those in modules.items() if module.endswith(names) for test in those]
        turns = (test for turn in zip_longest(*modules.values()) for test in turn if test is not None)
        flows = list(dict.fromkeys((*namesakes[: _MOST_FLOWS // 2], *turns)))[:_MOST_FLOWS]
        return Chosen([*units, *flows], len(tests) - len(units) - len(flows))

    def _quickest(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda it: (self._seconds[it], it))
