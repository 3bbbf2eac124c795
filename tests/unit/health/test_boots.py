"""Which boot this is, read from /proc."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.health import boots

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TICKS = os.sysconf("SC_CLK_TCK")


def show(proc: Path, *, started: int, kernel: str = "k1") -> None:
    """Write what /proc says of a machine whose first process began so many seconds after its kernel."""
    (proc / "1").mkdir(parents=True, exist_ok=True)
    zeros = "0 " * 18
    (proc / "1" / "stat").write_text(f"1 (a) daemon) S {zeros}{started * TICKS} 0 0\n")
    random = proc / "sys" / "kernel" / "random"
    random.mkdir(parents=True, exist_ok=True)
    (random / "boot_id").write_text(f"{kernel}\n")


def test_a_boot_is_when_the_first_process_began(tmp_path: Path) -> None:
    show(tmp_path, started=100)
    found = boots.current(tmp_path, now=lambda: NOW, kernel=lambda: 160.0)
    assert found.at == NOW - timedelta(seconds=60)


@pytest.mark.parametrize(("started", "kernel"), [(5, "k1"), (3, "k2")], ids=["process", "kernel"])
def test_another_first_process_and_another_kernel_are_another_boot(
    tmp_path: Path, started: int, kernel: str
) -> None:
    show(tmp_path, started=3)
    before = boots.current(tmp_path).id
    assert boots.current(tmp_path).id == before
    show(tmp_path, started=started, kernel=kernel)
    assert boots.current(tmp_path).id != before


def test_the_boot_of_this_machine_is_in_the_past() -> None:
    assert boots.current().at < datetime.now(UTC)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match=f"{tmp_path} does not show"):
        boots.current(tmp_path)
