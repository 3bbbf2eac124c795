import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.local import binaries, cgroups, delegation, host, state
from isthmus.local.paths import cache_dir
from isthmus.local.progress import PlainProgress
from tests.bed.addresses import quiet_port


def eventually(condition: Callable[[], object], *, within: float = 120) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.005)


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Machines need a few Debian packages, also on a machine on which nothing was ever run."""
    host.ensure_packages(PlainProgress())


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of clusters of the test's own; it is made when it is needed, as the real one is."""
    home = tmp_path / "state"
    monkeypatch.setattr(state, "state_dir", lambda: home)
    return home


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody listens, and which nobody gets by chance."""
    with quiet_port() as number:
        yield number


@pytest.fixture
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The path of a control group that nobody else uses; whatever the test makes of it is gone afterwards."""
    monkeypatch.setattr(delegation, "by_systemd", lambda: False)  # also where systemd would make it
    path = f"isthmus/unit-{os.getpid()}-{abs(hash(request.node.nodeid)) % 10**6}"
    yield path
    cgroups.remove(path)
    cgroups.remove_if_empty("isthmus")
    assert not cgroups.exists(path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; Go's modules are those that were fetched before."""
    real = cache_dir()
    (real / "go").mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PATH", str(binaries.find_go(PlainProgress()).parent), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = cache_dir()
    own.mkdir(parents=True)
    (own / "go").symlink_to(real / "go")
    return own
