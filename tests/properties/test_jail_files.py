"""Files on the shared root: nothing is ever written outside of it, and nobody ever sees half a file."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.errors import IsthmusError, Terminal
from isthmus.sharedroot.files import Root

NAMES = st.sampled_from(
    ["a", "b", "etc", "out", "in", "loop", "dangling", "file", "pipe", ".isthmus", "proc", "dev", "..", ".", ""]
) | st.text(min_size=0, max_size=5)
PATHS = st.builds(lambda start, parts: start + "/".join(parts), st.sampled_from(["/", "", "//"]), st.lists(NAMES))


@contextmanager
def hostile() -> Iterator[tuple[Path, Path]]:
    """Make a root in which users have laid traps, beside what they would like to have overwritten."""
    with tempfile.TemporaryDirectory() as made:
        above = Path(made)
        root, outside = above / "root", above / "outside"
        (root / "etc").mkdir(parents=True)
        (root / ".isthmus").mkdir()
        (root / ".isthmus" / "ready").write_text("{}")
        outside.mkdir()
        (outside / "etc").mkdir()
        (outside / "secret").write_text("secret")
        (root / "out").symlink_to("../outside")
        (root / "etc" / "out").symlink_to(outside)
        (root / "in").symlink_to("etc")
        (root / "loop").symlink_to("loop")
        (root / "dangling").symlink_to("../outside/new")
        (root / "etc" / "a").symlink_to("../../outside/secret")
        (root / "file").write_text("a user's")
        os.mkfifo(root / "pipe")
        yield root, outside


def tree(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for where, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = Path(where, name)
            key = str(path.relative_to(top))
            if path.is_symlink():
                found[key] = path.readlink()
            elif path.is_file():
                found[key] = path.read_bytes()
            else:
                found[key] = path.lstat().st_mode
    return found


def names_in(directory: Path) -> list[str]:
    return sorted(it.name for it in directory.iterdir())


@given(PATHS, st.binary(max_size=20))
@example("/out/secret", b"x")
@example("/etc/out/secret", b"x")
@example("/etc/a", b"x")
@example("/dangling", b"x")
@example("/etc/../../outside/secret", b"x")
@example("/.isthmus/ready", b"x")
@example("/a\0b", b"x")
@example("/" + "a" * 256, b"x")
@example("/" + "/a" * 600, b"x")
@example("/\ud800", b"x")
@example("/etc/passwd", b"x")
def test_a_file_is_written_where_it_was_asked_for_or_nothing_is(path: str, content: bytes) -> None:
    with hostile() as (root, outside):
        before, beside = tree(root), tree(outside)
        try:
            changed = Root(root).write([File(path, content, 0o640)])
        except IsthmusError:
            assert tree(root) == before
        else:
            assert changed == (path,)
            written = root / path[1:]
            assert written.resolve().is_relative_to(root)
            assert written.read_bytes() == content
            assert written.stat().st_mode & 0o7777 == 0o640
            after = tree(root)
            assert after.pop(path[1:]) == content
            above = {str(it) for it in Path(path[1:]).parents}
            before.pop(path[1:], None)
            assert {key: value for key, value in after.items() if key not in above} == {
                key: value for key, value in before.items() if key not in above
            }
        assert tree(outside) == beside


@given(
    st.lists(st.sampled_from(["/a", "/etc/b", "/new/c", "/new/d/e", "/pipe", "/loop/x", "/file/y"]), unique=True)
)
def test_of_several_files_all_are_written_or_none(paths: list[str]) -> None:
    with hostile() as (root, _):
        before = {path for path in tree(root) if not path.startswith("new")}
        files = [File(path, path.encode(), 0o644) for path in paths]
        try:
            Root(root).write(files)
        except Terminal:
            assert set(tree(root)) == before
            assert any(path.startswith(("/pipe", "/loop", "/file")) for path in paths)
        else:
            assert all((root / file.path[1:]).read_bytes() == file.content for file in files)


def test_when_one_file_cannot_be_put_in_its_place_the_others_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    root.write([File("/etc/a", b"old", 0o600), File("/etc/b", b"old", 0o644)])
    inodes = [(tmp_path / name).stat().st_ino for name in ("etc/a", "etc/b")]
    real, renames = os.rename, []

    def failing(*words: object, **more: object) -> None:
        renames.append(words)
        if len(renames) == 3:
            raise OSError(28, "No space left on device")
        real(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(IsthmusError, match="free space"):
        root.write([File(f"/etc/{name}", b"new", 0o644) for name in ("a", "new", "b")])
    monkeypatch.undo()
    assert [(tmp_path / name).stat().st_ino for name in ("etc/a", "etc/b")] == inodes
    assert names_in(tmp_path / "etc") == ["a", "b"]


def test_a_reader_never_sees_half_a_file_nor_none(tmp_path: Path) -> None:
    root = Root(tmp_path)
    versions = [bytes([letter]) * (200_000 + letter) for letter in b"abc"]
    root.write([File("/etc/big", versions[0], 0o644)])
    seen: set[bytes] = set()
    torn: list[int] = []
    begun, stop = threading.Event(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            content = (tmp_path / "etc/big").read_bytes()
            seen.add(content[:1])
            if content not in versions:
                torn.append(len(content))
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert begun.wait(60)
        for turn in range(60):
            root.write([File("/etc/big", versions[turn % 3], 0o644)])
    finally:
        stop.set()
        reader.join()
    assert not torn
    assert seen


_WRITER = """
import sys
from pathlib import Path
from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.sharedroot.files import Root
root = Root(Path(sys.argv[1]))
print("begun", flush=True)
turn = 0
while True:
    turn += 1
    content = bytes([97 + turn % 2]) * 100_000
    root.write([File(f"/opt/{name}", content, 0o755) for name in "xyz"])
"""


@pytest.mark.parametrize("turn", range(8))
def test_killed_at_any_moment_it_leaves_whole_files_and_the_next_one_cleans_up(tmp_path: Path, turn: int) -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"begun\n"
        # A different moment each time, counted in writes and not in seconds.
        names: set[str] = set()
        while len(names) < 3 * (turn + 1):
            if (tmp_path / "opt").exists():
                names |= {it for it in names_in(tmp_path / "opt") if it.startswith(".isthmus-")}
        writer.send_signal(signal.SIGKILL)
    for name in "xyz":
        path = tmp_path / "opt" / name
        if path.exists():
            assert path.read_bytes() in {b"a" * 100_000, b"b" * 100_000}
            assert path.stat().st_mode & 0o777 == 0o755
    files = [File(f"/opt/{name}", b"in the end", 0o755) for name in "xyz"]
    Root(tmp_path).write(files)
    assert names_in(tmp_path / "opt") == ["x", "y", "z"]
    assert Root(tmp_path).write(files) == ()


def test_what_is_left_over_goes_though_nothing_is_to_be_written(tmp_path: Path) -> None:
    file = File("/opt/x", b"x", 0o644)
    Root(tmp_path).write([file])
    (tmp_path / "opt" / ".isthmus-0123456789abcdef.old").write_text("left over")
    (tmp_path / "opt" / ".isthmus-notes").write_text("a user's")
    assert Root(tmp_path).write([file]) == ()
    assert names_in(tmp_path / "opt") == [".isthmus-notes", "x"]
