"""What is refused when files are written onto the shared root, and what is said then."""

import os
from pathlib import Path

import pytest

from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.errors import Retry, Terminal
from isthmus.sharedroot.files import Root


def file(path: str, content: bytes = b"#!/bin/sh\n", mode: int = 0o755) -> File:
    return File(path, content, mode)


def test_files_and_their_directories_are_made_and_belong_to_root(tmp_path: Path) -> None:
    assert Root(tmp_path).write([file("/opt/slurm_scripts/prolog.sh")]) == ("/opt/slurm_scripts/prolog.sh",)
    made = (tmp_path / "opt/slurm_scripts/prolog.sh").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (0, 0, 0o755)
    assert (tmp_path / "opt/slurm_scripts").stat().st_mode & 0o7777 == 0o755


def test_modes_of_files_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Root(tmp_path).write([file("/new/a", mode=0o664)])
    finally:
        os.umask(before)
    assert (tmp_path / "new/a").stat().st_mode & 0o777 == 0o664


def test_what_is_so_already_is_not_written(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.write([file("/etc/a"), file("/etc/b")])
    inode = (tmp_path / "etc/a").stat().st_ino
    assert root.write([file("/etc/a"), file("/etc/b", b"other")]) == ("/etc/b",)
    assert (tmp_path / "etc/a").stat().st_ino == inode


@pytest.mark.parametrize("change", ["content", "mode", "owner"])
def test_what_somebody_changed_is_made_so_again(tmp_path: Path, change: str) -> None:
    root, there = Root(tmp_path), tmp_path / "etc/a"
    root.write([file("/etc/a")])
    if change == "content":
        there.write_bytes(b"#!/bin/xx\n")
    elif change == "mode":
        there.chmod(0o777)
    else:
        os.chown(there, 1000, 1000)
    assert root.write([file("/etc/a")]) == ("/etc/a",)
    assert root.write([file("/etc/a")]) == ()


def test_who_has_it_open_goes_on_reading_the_old_one(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.write([file("/etc/a", b"old")])
    with (tmp_path / "etc/a").open("rb") as opened:
        root.write([file("/etc/a", b"new")])
        assert opened.read() == b"old"


def test_a_link_is_refused_with_the_place_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    with pytest.raises(Terminal) as refused:
        Root(tmp_path).write([file("/bin/tool")])
    assert refused.value.what == "/bin is a symbolic link to usr/bin; links are not followed"
    assert refused.value.remedy == "use the real path: /usr/bin instead of /bin"


def test_a_link_in_the_place_of_the_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/conf").symlink_to("/etc/shadow")
    with pytest.raises(Terminal, match="/etc/conf is a symbolic link to /etc/shadow"):
        Root(tmp_path).write([file("/etc/conf")])
    assert (tmp_path / "etc/conf").is_symlink()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/directory", "/directory is a directory, and not a file"),
        ("/pipe", "/pipe is a pipe, and not a file"),
        ("/plain/below", "/plain is a file, and not a directory"),
        ("etc/a", "is not absolute"),
        ("/etc/../a", "has the part '..'"),
        ("/etc//a", "has an empty part"),
        ("/etc/", "has an empty part"),
        ("/", "has an empty part"),
        ("/a\0", "control characters"),
        ("/a\nb", "control characters"),
        ("/" + "a" * 256, "component that is too long"),
        ("/" + "a/" * 600 + "b", "has 1202 bytes"),
        ("/.isthmus/ready", "/.isthmus, where the state of the shared root is kept"),
        ("/proc/sys/kernel/x", "in /proc"),
        ("/sys/x", "in /sys"),
        ("/dev/x", "in /dev"),
        ("/home/a", "nodes mount something else at /home"),
    ],
)
def test_what_is_refused_is_said(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "plain").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Terminal) as refused:
        Root(tmp_path, covered=("/home",)).write([file(path)])
    assert said in refused.value.what
    assert refused.value.remedy


def test_what_is_beside_a_covered_place_is_written(tmp_path: Path) -> None:
    assert Root(tmp_path, covered=("/home", "/data/")).write([file("/homes/a"), file("/data2")])


def test_a_root_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(Retry, match="cannot write to the shared root: No such file or directory"):
        Root(tmp_path / "gone").write([file("/etc/a")])


def test_a_root_is_filled_when_it_says_so_with_a_file(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert not root.is_filled()
    (tmp_path / ".isthmus").mkdir()
    (tmp_path / ".isthmus/ready").symlink_to("/etc/passwd")
    assert not root.is_filled()
    (tmp_path / ".isthmus/ready").unlink()
    (tmp_path / ".isthmus/ready").write_text("{}")
    assert root.is_filled()
    assert not Root(tmp_path / "gone").is_filled()
