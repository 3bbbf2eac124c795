"""Runs the tests that can notice a fault, until one does: those without servers first, then flows."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

from msgspec import Struct

from tests.mutants.copies import Copy
from tests.mutants.reach import Reach
from tests.mutants.sample import Mutant

Readers = Mapping[str, set[tuple[str, int]]]


class Verdict(Struct, frozen=True):
    """What became of one fault."""

    place: str
    kind: str
    diff: str
    ring: str = ""
    """Which ring was asked last, and noticed it if one did; empty if no test runs the line."""
    noticed_by: str = ""
    asked: int = 0
    left_out: int = 0
    """Tests that run the line and were not asked, as there are so many."""

    @property
    def outcome(self) -> str:
        if self.noticed_by:
            return "detected"
        return "survived" if self.asked else "not run"


class Ring(NamedTuple):
    """How the tests of a ring are asked: how long one of them may take, and all."""

    name: str
    test_seconds: int
    seconds: float
    bounded: bool
    """Whether the memory is. Servers take what they take."""


UNITS = Ring("unit", test_seconds=60, seconds=300.0, bounded=True)
FLOWS = Ring("flows", test_seconds=150, seconds=900.0, bounded=False)


def unjudged(mutant: Mutant) -> Verdict:
    return Verdict(mutant.place, mutant.mutation.kind, mutant.diff)


class Judge:
    """Asks the tests of one ring after the other, about as many faults at a time as there are copies."""

    def __init__(self, copies: Sequence[Copy], readers: Readers, tell: Callable[[Verdict], None]) -> None:
        self._readers = readers
        self._tell = tell
        self._jobs = len(copies)
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    def ask(
        self, ring: Ring, reach: Reach, mutants: Sequence[Mutant], verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Ask about each fault that nobody has noticed so far."""
        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(lambda *it: self._ask(ring, reach, *it), mutants, verdicts))

    def _ask(self, ring: Ring, reach: Reach, mutant: Mutant, before: Verdict) -> Verdict:
        tests, left_out = reach.choose(reach.of(mutant, self._readers), mutant.path)
        if before.noticed_by or not tests:
            return before
        copy = self._free.get()
        try:
            noticed = _noticed(ring, copy, mutant, tests)
        finally:
            self._free.put(copy)
        asked, missed = before.asked + len(tests), before.left_out + left_out
        verdict = Verdict(before.place, before.kind, before.diff, ring.name, noticed, asked, missed)
        self._tell(verdict)
        return verdict


def _noticed(ring: Ring, copy: Copy, mutant: Mutant, tests: Sequence[str]) -> str:
    """Return who noticed the fault: a test that fails with it twice. Once may be by chance, on a busy machine."""

    def first(asked: Sequence[str]) -> str:
        options = ("-x", f"--timeout={ring.test_seconds}")
        return copy.pytest(asked, options, within=ring.seconds, mutant=mutant, bounded=ring.bounded).noticed

    while tests:
        noticed = first(tests)
        if noticed not in tests or first([noticed]):
            return noticed
        tests = tests[tests.index(noticed) + 1 :]
    return ""
