"""A pytest plugin that writes down how each test ended and, where coverage runs, tells it which test runs.

It is loaded in the copies alone: `pytest -p tests.mutants.listener --told FILE`.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest


class _Listener:
    def __init__(self, file: Path, *, measured: bool) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: list[str] = []
        self._measured = measured

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self._measured:
            _switch(item.nodeid)
        result = yield
        if self._measured:
            _switch("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # What a shared fixture takes is no property of the test that happens to come first.
        self._seconds[report.nodeid] += report.duration if report.when == "call" else 0
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps({"seconds": self._seconds, "failed": self._failed}))


def _switch(context: str) -> None:
    import coverage  # noqa: PLC0415 - only where it runs

    if running := coverage.Coverage.current():
        running.switch_context(context)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--told", type=Path, required=True, help="where to write how each test ended")


def pytest_configure(config: pytest.Config) -> None:
    measured = "COVERAGE_PROCESS_START" in os.environ
    config.pluginmanager.register(_Listener(config.getoption("--told"), measured=measured))
