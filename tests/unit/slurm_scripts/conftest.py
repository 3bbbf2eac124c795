"""A node to run the scripts on."""

from pathlib import Path

import pytest

from tests.unit.slurm_scripts.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)
