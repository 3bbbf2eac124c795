"""Filling a root from the files of a running container: by a link to its root, beside its mounts, until it ends."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.domain.sharedroot.entry import Entry
from isthmus.errors import Retry, Terminal
from isthmus.sharedroot import gatherer, operations
from isthmus.sharedroot.operations import Done
from isthmus.sharedroot.statedirectory import Ready
from isthmus.sharedroot.tree import Tree

ASLEEP = "import os, signal, sys; os.chroot(sys.argv[1]); os.chdir('/'); signal.pause()"
NOW = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A small image that could be a shared root."""
    made = tmp_path / "image"
    for name, text in {
        "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
        "etc/hosts": "127.0.0.1 image\n",
        "usr/bin/bash": "bash",
        "usr/bin/sbatch": "sbatch",
        "usr/bin/setpriv": "setpriv",
        "usr/sbin/sshd": "sshd",
        "usr/lib/slurm/isthmus_jail.so": "plugin",
        "srv/kept": "kept",
        "usr/lib/os-release": "ID=debian\n",
    }.items():
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (made / "proc").mkdir()
    return made


@contextmanager
def container(image: Path, link: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Let a process live in the image, with mounts as container runtimes make them, and link to its root."""
    mounts = (
        f"mount -t tmpfs none {image}/proc && touch {image}/proc/cpuinfo"
        f" && mount --bind /etc/hostname {image}/etc/hosts"
    )
    asleep = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c", ASLEEP, image]
    )
    root = Path(f"/proc/{asleep.pid}/root")
    deadline = time.monotonic() + 60
    while not (root / "srv" / "kept").exists() or (root / "home").exists():
        assert time.monotonic() < deadline, "the process did not get into the image"
        time.sleep(0.01)
    link.unlink(missing_ok=True)
    link.symlink_to(root)
    try:
        yield asleep
    finally:
        asleep.kill()
        asleep.wait()


def fill(source: Path, root: Path) -> Done | Ready:
    return operations.populate(str(source), str(root), image="login:1", now=NOW, tell=lambda _: None)


def test_what_is_mounted_in_the_container_is_no_part_of_the_image(image: Path, tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "source"
    root.mkdir()
    with container(image, link):
        done = fill(link, root)
    assert isinstance(done, Done)
    assert done.ready.image == "login:1"
    assert (root / "srv/kept").read_text() == "kept"
    assert list((root / "proc").iterdir()) == []
    assert not (root / "etc/hosts").exists()
    assert (root / "etc/passwd").exists()


def test_a_container_that_ended_is_worth_another_try(image: Path, tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "source"
    root.mkdir()
    with container(image, link):
        pass
    with pytest.raises(Retry, match="disappeared"):
        fill(link, root)
    with container(image, link):
        assert isinstance(fill(link, root), Done)


def test_a_container_that_ends_while_it_is_read_has_not_removed_anything(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks then must not be taken for what a newer image no longer has."""
    root, link = tmp_path / "root", tmp_path / "source"
    root.mkdir()
    with container(image, link):
        fill(link, root)
    with container(image, link) as asleep:
        walk = gatherer.image_of

        def ends_meanwhile(source: Tree) -> dict[str, Entry]:
            asleep.kill()
            asleep.wait()
            found = walk(source)
            found.pop("srv/kept", None)
            return found

        monkeypatch.setattr(operations, "image_of", ends_meanwhile)
        with pytest.raises(Retry, match="disappeared"):
            operations.refresh(str(link), str(root), image="login:2", now=NOW, tell=lambda _: None)
    assert (root / "srv/kept").read_text() == "kept"


def test_another_linux_that_is_there_already_is_not_mixed_with_ours(image: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/os-release").write_text("ID=ubuntu\n")
    (root / "home").mkdir()
    with pytest.raises(Terminal, match="another Linux") as refused:
        fill(image, root)
    assert "jailSubMounts" in refused.value.remedy
    assert not (root / "srv").exists()
    # The same one, perhaps from a backup, is welcome.
    (root / "usr/lib/os-release").write_text("ID=debian\n")
    assert isinstance(fill(image, root), Done)
