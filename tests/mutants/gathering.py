"""Learns which tests run which lines, by running them once under coverage, and remembers it below `build`.

What a module of tests was seen to run is kept by the contents of that module and of `src`. So a changed test is
measured again, and all others are not. Processes that a test starts are measured, too, unless they are killed.
"""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage
import msgspec

from tests.mutants.copies import Copy, Told
from tests.mutants.reach import ModuleReach

_LONGEST = 3600.0
_SETTINGS = """[run]
data_file = {data}
parallel = true
source = {source}
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, already-imported, no-ctracer
"""
"""pytest sets the variable, so a process that a test starts inherits that test's name."""

_PHASE = re.compile(r" \((setup|call|teardown)\)$")


class Gathering:
    """Measures modules of tests, named by paths below the checkout."""

    def __init__(self, root: Path, copies: Sequence[Copy]) -> None:
        self._copies = copies
        sources = hashlib.sha256()
        for file in sorted((root / "src").rglob("*.py")):
            sources.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
        self._cache = root / "build" / "mutants" / sources.hexdigest()[:16]

    def reach(self, paths: Iterable[str]) -> list[ModuleReach]:
        """Return what the tests below these paths run, measuring what is not known."""
        modules = sorted(set(self._modules(paths)))
        unknown = [it for it in modules if not self._file(it).exists()]
        if unknown:
            sys.stderr.write(f"measuring which lines {len(unknown)} modules of tests run\n")
            with ThreadPoolExecutor(len(self._copies)) as pool:
                shares = [unknown[number :: len(self._copies)] for number in range(len(self._copies))]
                list(pool.map(self._measure, self._copies, shares))
        return [msgspec.json.decode(self._file(it).read_bytes(), type=ModuleReach) for it in modules]

    def _modules(self, paths: Iterable[str]) -> Iterator[str]:
        root = self._copies[0].root
        for path in paths:
            found = sorted((root / path).rglob("test_*.py")) if (root / path).is_dir() else [root / path]
            # The tests of this program run none of the code that is mutated.
            yield from (str(it.relative_to(root)) for it in found if it.parent.name != "mutants")

    def _file(self, module: str) -> Path:
        content = (self._copies[0].root / module).read_bytes()
        return self._cache / f"{hashlib.sha256(module.encode() + content).hexdigest()[:24]}.json"

    def _measure(self, copy: Copy, modules: Sequence[str]) -> None:
        if not modules:
            return
        directory = copy.root / "build-coverage"
        directory.mkdir(exist_ok=True)
        settings = directory / "settings"
        settings.write_text(_SETTINGS.format(data=directory / "data", source=copy.root / "src"))
        told = copy.pytest(modules, within=_LONGEST, environment={"COVERAGE_PROCESS_START": str(settings)})
        if not told.seconds:
            raise SystemExit(f"no test ran:\n{told.output}")
        data = coverage.Coverage(config_file=str(settings))
        data.combine()
        self._cache.mkdir(parents=True, exist_ok=True)
        for module, reach in split(data.get_data(), told, copy.root, modules).items():
            self._file(module).write_bytes(msgspec.json.encode(reach))


def split(data: coverage.CoverageData, told: Told, root: Path, modules: Iterable[str]) -> dict[str, ModuleReach]:
    """Sort what was measured by modules of tests."""
    found: dict[str, ModuleReach] = {}
    numbers: dict[str, int] = {}
    for module in modules:
        tests = [it for it in told.seconds if it.partition("::")[0] == module]
        failed = [it for it in told.failed if it.partition("::")[0] == module]
        numbers |= {test: number for number, test in enumerate(tests)}
        found[module] = ModuleReach(tests, [round(told.seconds[it], 3) for it in tests], failed, {})
    for file in data.measured_files():
        path = str(Path(file).relative_to(root))
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in {_PHASE.sub("", it) for it in contexts} & numbers.keys():
                lines = found[test.partition("::")[0]].lines.setdefault(path, {})
                lines.setdefault(line, []).append(numbers[test])
    return found
