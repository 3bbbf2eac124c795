"""Who comes at the very moment at which another takes the lock, or lets it go."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from isthmus.errors import Retry
from isthmus.sharedroot import lock


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_holder_who_has_not_written_his_name_yet_is_named_when_he_has(tmp_path: Path, directory: int) -> None:
    other = lock.Holder("here", 7, "filling", "noon", "token")
    with (tmp_path / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def writes(_: float) -> None:
            (tmp_path / "lock").write_bytes(msgspec.json.encode(other))

        with (
            pytest.raises(Retry, match="filling, process 7 on here"),
            lock.held(directory, doing="a test", since="now", pause=writes),
        ):
            pass


def test_a_holder_who_has_removed_his_name_is_about_to_let_go(tmp_path: Path, directory: int) -> None:
    with (tmp_path / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with lock.held(directory, doing="a test", since="now", pause=lambda _: held.close()) as check:
            check()


def test_a_holder_who_never_says_who_he_is_is_not_waited_for_for_ever(tmp_path: Path, directory: int) -> None:
    with (tmp_path / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(Retry, match="unidentified process"),
            lock.held(directory, doing="a test", since="now", pause=lambda _: None),
        ):
            pass
