"""A copy of the checkout, in which a file may be broken and tests run, while the checkout itself stays as it is."""

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.mutants.mutations import mutated
from tests.mutants.sample import Mutant

_LEFT_OUT = (".git", ".venv", "build", "dist", "__pycache__", ".hypothesis", ".*_cache")
_MEMORY = 6 << 30
"""Bytes: a loop that a fault made endless must not take the machine's memory with it."""

_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Told(NamedTuple):
    """How a run of pytest ended."""

    seconds: dict[str, float]
    failed: list[str]
    code: int
    output: str
    hung: bool = False

    @property
    def noticed(self) -> str:
        """What failed first: a test, or an import before any; nothing if all passed."""
        if self.hung:
            return "(time)"
        return (*self.failed, "" if self.code == 0 else f"(pytest ended with {self.code})")[0]


class Copy:
    """A context manager: a directory with the checkout's files, and the tests of another one if wanted."""

    def __init__(self, root: Path, tests: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="isthmus-mutant-"))
        ignore = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(root, self.root, ignore=ignore, dirs_exist_ok=True, symlinks=True)
        if tests != root / "tests":
            shutil.rmtree(self.root / "tests")
            shutil.copytree(tests, self.root / "tests", ignore=ignore)
            # The plugin that listens is this program's own, whatever the other tests bring along.
            shutil.copytree(root / "tests/mutants", self.root / "tests/mutants", ignore=ignore, dirs_exist_ok=True)
        # Two states of a file within one second, equally long, look the same to Python's cache: it has to compare
        # hashes. A copy of 350 files would take seconds to start without a cache.
        words = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash", "src", "tests/bed"]
        subprocess.run(words, check=True, cwd=self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def pytest(
        self,
        tests: Iterable[str],
        options: Iterable[str] = (),
        *,
        within: float,
        mutant: Mutant | None = None,
        environment: dict[str, str] | None = None,
        bounded: bool = False,
    ) -> Told:
        """Run tests, with a fault if there is one, for so many seconds at most."""
        if mutant is None:
            return self._pytest(tests, options, within, environment or {}, bounded=bounded)
        file = self.root / mutant.path
        before = file.read_text()
        file.write_text(mutated(before, mutant.mutation))
        try:
            return self._pytest(tests, options, within, environment or {}, bounded=bounded)
        finally:
            file.write_text(before)

    def _pytest(
        self,
        tests: Iterable[str],
        options: Iterable[str],
        within: float,
        environment: dict[str, str],
        *,
        bounded: bool,
    ) -> Told:
        told, wanted, log = (self.root / f"build-{it}" for it in ("told.json", "tests", "log"))
        told.unlink(missing_ok=True)
        wanted.write_text("\n".join(tests))
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.listener"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*words, f"--told={told}", *options, f"@{wanted}"],
                cwd=self.root,
                env=self._environment() | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_prepare, bounded=bounded),  # noqa: PLW1509 - it takes no lock
            )
            try:
                code, hung = process.wait(within), False
            except subprocess.TimeoutExpired:
                code, hung = -signal.SIGKILL, True
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        ended = json.loads(told.read_text()) if told.exists() else {"seconds": {}, "failed": []}
        return Told(ended["seconds"], ended["failed"], code, log.read_text(errors="replace"), hung)

    def _environment(self) -> dict[str, str]:
        # Where a test runs us, its name must not pass for that of a test which runs in the copy.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return inherited | {"PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def _prepare(*, bounded: bool) -> None:
    _libc.prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # so that nothing runs on when we are killed
    if bounded:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
