"""Trees of files as plain values: made from them, and read back as them, so that two trees can be compared.

tree = {"etc": Dir(), "etc/passwd": File(b"root:x:0:0::/root:/bin/sh\n"), "bin": Link("usr/bin")}
make(tmp_path / "image", tree)
assert seen(tmp_path / "root") == seen(tmp_path / "image")
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class File:
    content: bytes = b""
    mode: int = 0o644
    owner: int = 0
    mtime: int = 1_700_000_000
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Dir:
    mode: int = 0o755
    owner: int = 0
    mtime: int = 1_700_000_000


@dataclass(frozen=True)
class Link:
    target: str


@dataclass(frozen=True)
class Hard:
    """Another name of a file."""

    of: str


@dataclass(frozen=True)
class Fifo:
    mode: int = 0o600
    mtime: int = 1_700_000_000


Node = File | Dir | Link | Hard | Fifo

# The least that can be a shared root.
FIT: dict[str, Node] = {
    "etc": Dir(),
    "etc/passwd": File(b"root:x:0:0:root:/root:/bin/bash\n"),
    "usr": Dir(),
    "usr/bin": Dir(),
    "usr/bin/bash": File(b"\x7fELF bash", 0o755),
    "usr/bin/sbatch": File(b"\x7fELF sbatch", 0o755),
    "usr/bin/setpriv": File(b"\x7fELF setpriv", 0o755),
    "usr/lib": Dir(),
    "usr/lib/slurm": Dir(),
    "usr/lib/slurm/isthmus_jail.so": File(b"\x7fELF plugin"),
    "usr/sbin": Dir(),
    "usr/sbin/sshd": File(b"\x7fELF sshd", 0o755),
    "tmp": Dir(0o1777),
}


def make(top: Path, tree: Mapping[str, Node]) -> Path:
    """Make a tree, parents first; times of directories last, since making what is in them changes them."""
    top.mkdir(exist_ok=True)
    for name in sorted(tree, key=lambda it: (isinstance(tree[it], Hard), it)):
        _make(top, top / name, tree[name])
    for name in sorted(tree, reverse=True):
        node = tree[name]
        if isinstance(node, Dir):
            os.utime(top / name, (node.mtime, node.mtime))
    return top


def _make(top: Path, path: Path, node: Node) -> None:
    if isinstance(node, Link):
        path.symlink_to(node.target)
    elif isinstance(node, Hard):
        path.hardlink_to(top / node.of)
    elif isinstance(node, Fifo):
        os.mkfifo(path)
        path.chmod(node.mode)
        os.utime(path, (node.mtime, node.mtime))
    elif isinstance(node, Dir):
        path.mkdir(exist_ok=True)
        os.chown(path, node.owner, node.owner)
        path.chmod(node.mode)
    else:
        path.write_bytes(node.content)
        os.chown(path, node.owner, node.owner)
        path.chmod(node.mode)
        for name, value in node.xattrs.items():
            os.setxattr(path, name, value)
        os.utime(path, (node.mtime, node.mtime))


def seen(top: Path) -> dict[str, Any]:
    """Read everything that a copy has to have in common with the original, except what we keep about a root."""
    found: dict[str, Any] = {}
    for here, directories, files in os.walk(top):
        if Path(here) == top:
            directories[:] = [name for name in directories if name != ".isthmus"]
        for name in [*directories, *files]:
            path = Path(here) / name
            relative = str(path.relative_to(top))
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            about: tuple[Any, ...] = (kind, status.st_uid, status.st_gid)
            if kind == stat.S_IFLNK:
                about += (os.readlink(path),)  # noqa: PTH115 - a Path would tidy it up
            else:
                about += (stat.S_IMODE(status.st_mode), status.st_mtime_ns)
            if kind == stat.S_IFREG:
                xattrs = {it: os.getxattr(path, it) for it in os.listxattr(path)}
                about += (path.read_bytes(), xattrs)
            found[relative] = about
    return found


def links(top: Path) -> set[frozenset[str]]:
    """Group the names of files that have several."""
    groups: dict[int, set[str]] = {}
    for here, _, files in os.walk(top):
        for name in files:
            path = Path(here) / name
            if path.lstat().st_nlink > 1:
                groups.setdefault(path.lstat().st_ino, set()).add(str(path.relative_to(top)))
    return {frozenset(group) for group in groups.values()}


@cache
def fast() -> str | None:
    """Memory, if files there can have attributes (since Linux 6.6); else where all temporary files go."""
    memory = "/dev/shm"  # noqa: S108 - nothing there has a name that others could know
    with tempfile.NamedTemporaryFile(dir=memory) as file:
        try:
            os.setxattr(file.name, "user.note", b"")
        except OSError:
            return None
    return memory
