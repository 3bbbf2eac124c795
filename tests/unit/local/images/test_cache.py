import errno
import os
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local.images import cache


def make_half(final: Path) -> None:
    with cache.replacing(final) as partial:
        (partial / "bad").touch()
        raise ValueError("half way")


def test_a_failed_build_does_not_replace_what_is_there(cache_home: Path) -> None:
    final = cache_home / "thing"
    final.mkdir(parents=True)
    (final / "good").touch()
    with pytest.raises(ValueError, match="half way"):
        make_half(final)
    assert [path.name for path in final.iterdir()] == ["good"]


def test_a_full_disk_is_said_with_a_remedy(cache_home: Path) -> None:
    with (
        pytest.raises(Terminal, match=r"No space left(.|\n)*XDG_CACHE_HOME"),
        cache.replacing(cache_home / "thing"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("cache_home")
def test_too_little_room_is_said_before_the_build() -> None:
    with pytest.raises(Terminal, match="MiB free"):
        cache.check_can_build(room=1 << 60)


@pytest.mark.usefixtures("cache_home")
def test_whoever_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Terminal, match="sudo"):
        cache.check_can_build(room=0)


def test_a_directory_that_no_overlay_could_mount_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(Terminal, match="plain name"):
        cache.directory()


def test_a_key_changes_with_every_input() -> None:
    assert len({cache.key_of("a", ["b"]), cache.key_of("a", ["b", "c"]), cache.key_of("a b")}) == 3
