import platform

import pytest

from isthmus.errors import Terminal
from isthmus.local.architecture import AMD64, ARM64, native


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", AMD64), ("aarch64", ARM64)])
def test_a_machine_is_known_by_what_its_kernel_calls_it(
    monkeypatch: pytest.MonkeyPatch, machine: str, expected: object
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert native() == expected


def test_a_machine_that_nothing_is_made_for_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(Terminal, match=r"does not support s390x(.|\n)*amd64 or arm64"):
        native()


def test_what_was_cached_before_there_was_a_choice_stays_valid() -> None:
    assert AMD64.marked("0123") == "0123"
    assert ARM64.marked("0123") == "0123-arm64"
