"""The time that a test may take here: the first that needs a cluster, or a Slurm in it, waits for it to come up."""

from pathlib import Path

import pytest

_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this directory that says nothing about it more time than others have."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SECONDS))
