import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isthmus.local import files


def test_a_reader_sees_the_old_or_the_new_content_never_a_part(tmp_path: Path) -> None:
    path, versions = tmp_path / "file", [bytes([n]) * 300_000 for n in range(40)]
    files.write_whole(path, versions[0])
    done, seen = threading.Event(), set[bytes]()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    with ThreadPoolExecutor() as pool:
        reader = pool.submit(read)
        for version in versions:
            files.write_whole(path, version)
        done.set()
        reader.result()
    assert seen <= set(versions)
    assert path.read_bytes() == versions[-1]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_the_one_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.write_whole(tmp_path / "file", b"x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_everybody_may_read_what_is_written_without_a_mode_and_nobody_else_write_it(tmp_path: Path) -> None:
    files.write_whole(tmp_path / "file", b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.write_whole(target, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


@pytest.mark.parametrize("name", [".", "a.lock"])
def test_one_at_a_time_in_a_lock(tmp_path: Path, name: str) -> None:
    inside: list[int] = []

    def enter(number: int) -> None:
        with files.locked(tmp_path / name):
            inside.append(number)
            os.sched_yield()
            assert inside == [number]
            inside.clear()

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(enter, range(200)))
