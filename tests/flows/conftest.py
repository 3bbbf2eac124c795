"""What holds for every flow."""

import pytest

from isthmus.kube.config import Config, load
from isthmus.runtime.manager import Manager
from tests.bed.control_plane import ControlPlaneBed


@pytest.fixture(autouse=True)
def _signals_are_for_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C end the tests, and not a process under test that is really a part of this one."""
    monkeypatch.setattr(Manager, "_hear_signals", lambda _: None)


@pytest.fixture
def config(control_plane: ControlPlaneBed) -> Config:
    return load(control_plane.kubeconfig)
