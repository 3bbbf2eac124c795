"""What holds for every flow."""

import pytest

from isthmus.runtime.manager import Manager


@pytest.fixture(autouse=True)
def _signals_are_for_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C end the tests, and not a process under test that is really a part of this one."""
    monkeypatch.setattr(Manager, "_hear_signals", lambda _: None)
