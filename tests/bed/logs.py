"""When a test fails, what its real parts logged: kept under build/logs/<test>, and the last lines in the report.

A fixture that starts parts says where they log as long as it gives them to a test:

    with logs.shown(request.config, name="slurm-26.05", directory=bed.log_directory):
        yield bed
"""

import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LAST_LINES = 5
_SHOWN: pytest.StashKey[dict[str, Path]] = pytest.StashKey()


@contextmanager
def shown(config: pytest.Config, *, name: str, directory: Path) -> Iterator[None]:
    """While the block lasts, tests that fail show and keep the logs in that directory."""
    directories = config.stash.setdefault(_SHOWN, {})
    directories[name] = directory
    try:
        yield
    finally:
        directories.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs to the report of a failure."""
    report = yield
    if report.failed:
        kept = item.config.rootpath / "build" / "logs" / re.sub(r"[^\w.-]+", "-", item.nodeid)
        for name, directory in item.config.stash.get(_SHOWN, {}).items():
            report.sections += _keep(directory, kept / name, root=item.config.rootpath)
    return report


def _keep(directory: Path, kept: Path, *, root: Path) -> Iterator[tuple[str, str]]:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in sorted(path for path in directory.iterdir() if path.is_file() and path.stat().st_size):
        copy = kept / log.name
        shutil.copyfile(log, copy)
        yield f"the end of {copy.relative_to(root)}", tail(copy, lines=_LAST_LINES)


def tail(log: Path, *, lines: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
