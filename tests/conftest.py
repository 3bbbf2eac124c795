"""Fixtures for every ring of tests; each lives in the module of the part that it starts."""

import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

# Whoever starts the tests in the background ignores Ctrl-C, and so would every program that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A shared machine may pause at any moment. New examples are for the soak: who changes nothing sees the same result.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", patient, derandomize=True)
settings.register_profile("soak", patient, max_examples=10_000)
settings.load_profile("default")

_ON_BRIDGE_GROUND = ("tests/e2e/test_bridge", "tests/e2e/test_workload_controllers")

pytest_plugins = [
    # Who is imported by others comes first: pytest must see a plugin before anyone else does.
    "tests.bed.logs",
    "tests.bed.cluster",
    "tests.bed.control_plane",
    "tests.bed.faults",
    "tests.bed.slurm",
    "tests.bed.jail",
    "tests.bed.bridge_ground",
    "tests.bed.operator_ground",
    "tests.bed.workload_controllers",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with long modules: in the end, others would wait for the process that began such a one last."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


class ByGround(LoadFileScheduling):  # type: ignore[misc]  # likewise
    """Hands out modules, as pytest-xdist does, but those of the bridge together: their Slurms come up once."""

    def _split_scope(self, nodeid: str) -> str:
        module = str(super()._split_scope(nodeid))
        return "the bridge" if module.startswith(_ON_BRIDGE_GROUND) else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ByGround(config, log) if config.getoption("dist") == "loadfile" else None
