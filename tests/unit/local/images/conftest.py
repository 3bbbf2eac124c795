import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.local.progress import Step


class Steps:
    """A progress that remembers what was done."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self._lock = threading.Lock()

    def plan(self, *titles: str) -> None:
        """Nothing is shown ahead."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        with self._lock:
            self.titles.append(title)
        yield self

    def detail(self, text: str) -> None:
        """Details are not asked about."""

    def note(self, text: str) -> None:
        """Nor are notes."""


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home / "isthmus" / "images"


@pytest.fixture
def binaries(tmp_path: Path) -> dict[str, Path]:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(100_000))
    return {"coredns": program}
