"""A tree of files, walked so that no symbolic link leads out of it.

No path of several components is ever given to the kernel: every directory is opened from the one above it, and a
link in its place is refused. So nothing outside is read or written, whatever users have put into the tree, and
whatever they exchange meanwhile.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from isthmus.domain.sharedroot.entry import Entry, kind_of

OWN: Final = ".isthmus"
"""The directory in the root where we keep what we know; it is not part of any image."""

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A fifo or device that took a file's place since we looked must not hold us.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_WAY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_PROCESS: Final = re.compile(r"(/proc/\d+)/root")
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")
PIECE: Final = 1 << 20

# Labels of the machine that unpacked an image are not the image's; what an overlay notes down is the overlay's.
_COPIED: Final = ("security.capability", "user.", "system.posix_acl_")


class Tree:
    """Everything below a directory. Safe for use by several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._mounts = _mounts(path)
        self._top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._top)

    def is_gone(self) -> bool:
        """Whether its path does not lead to it any more: of a running container, that it has ended."""
        try:
            found = Path(self.path).stat()
        except OSError:
            return True
        return not os.path.samestat(found, os.fstat(self._top))

    @property
    def top(self) -> int:
        """The open directory itself."""
        return self._top

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Open a directory below; raises OSError if it is not there, or something on the way is not a directory."""
        here = os.dup(self._top)
        try:
            for part in path.split("/") if path else ():
                below = os.open(part, DIRECTORY, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def walk(self) -> Iterator[Entry]:
        """Yield everything that can be copied, directories before what is in them; files are not read.

        What is mounted below is not part of it: a directory is empty then, and a file, such as the /etc/hosts of a
        running container, is left out.
        """
        device = os.fstat(self._top).st_dev
        leaders: dict[tuple[int, int], str] = {}
        pending = [""]
        while pending:
            below: list[str] = []
            here = pending.pop()
            with self.directory(here) as directory:
                for name in sorted(os.listdir(directory)):  # noqa: PTH208 - paths know no open directories
                    path = f"{here}/{name}" if here else name
                    if path == OWN:
                        continue
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    entry = _entry(path, name, found, directory)
                    mounted = found.st_dev != device or path in self._mounts
                    if mounted and entry.kind != "directory":
                        continue
                    if entry.kind == "directory":
                        entry = msgspec.structs.replace(entry, xattrs=_of_directory(name, directory))
                        if not mounted:
                            below.append(path)
                    elif entry.kind == "file" and found.st_nlink > 1:
                        leader = leaders.setdefault((found.st_dev, found.st_ino), path)
                        entry = entry if leader == path else msgspec.structs.replace(entry, leader=leader)
                    yield entry
            pending += reversed(below)

    def look(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Find those paths that are there, without reading files. Sorted paths cost one walk to each directory."""
        found: dict[str, Entry] = {}
        by_directory: dict[str, list[str]] = {}
        for path in paths:
            by_directory.setdefault(path.rpartition("/")[0], []).append(path)
        missing: set[str] = set()
        for parent, inside in by_directory.items():
            if parent and parent.rpartition("/")[0] in missing:
                missing.add(parent)
                continue
            try:
                with self.directory(parent) as directory:
                    for path in inside:
                        name = path.rpartition("/")[2]
                        try:
                            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                            found[path] = _entry(path, name, status, directory)
                        except FileNotFoundError:
                            continue
            except OSError as error:
                if error.errno not in _NO_WAY:
                    raise
                missing.add(parent)
        return found

    def read(self, entry: Entry, *, check: Callable[[], None]) -> Entry:
        """Read a file, or a directory's attributes: the same entry with digest and extended attributes."""
        with self.directory(entry.parent) as directory:
            descriptor = os.open(entry.name, READ, dir_fd=directory)
        try:
            xattrs = xattrs_of(descriptor)
            if entry.kind != "file":
                return msgspec.structs.replace(entry, xattrs=xattrs)
            buffer = memoryview(bytearray(min(PIECE, entry.size + 1)))
            digest, size = digest_of(descriptor, buffer=buffer, check=check)
            return msgspec.structs.replace(entry, digest=digest, size=size, xattrs=xattrs)
        finally:
            os.close(descriptor)

    def content(self, path: str) -> bytes:
        """Give what is in a small file."""
        parent, _, name = path.rpartition("/")
        with self.directory(parent) as directory:
            descriptor = os.open(name, READ, dir_fd=directory)
            with os.fdopen(descriptor, "rb") as file:
                return file.read()


def _mounts(path: str) -> frozenset[str]:
    """List what is mounted below the root of a process, by its own account: it may be of the same file system."""
    process = _PROCESS.fullmatch(str(Path(path).readlink())) if Path(path).is_symlink() else None
    if process is None:
        return frozenset()
    lines = Path(process[1], "mountinfo").read_bytes().splitlines()
    points = (_OCTAL.sub(lambda it: bytes([int(it[1], 8)]), line.split()[4]) for line in lines)
    return frozenset(os.fsdecode(point).strip("/") for point in points)


def digest_of(descriptor: int, *, buffer: memoryview, check: Callable[[], None]) -> tuple[str, int]:
    """Read an open file to its end: its digest, and how long it is. `check` may raise to end it early."""
    digest, size = hashlib.sha256(), 0
    while count := os.readv(descriptor, [buffer]):
        digest.update(buffer[:count])
        size += count
        check()
    return digest.hexdigest(), size


def unchanged(seen: Entry, directory: int) -> bool:
    """Whether what we saw at a path still looks the same."""
    try:
        status = os.stat(seen.name, dir_fd=directory, follow_symlinks=False)
        now = _entry(seen.path, seen.name, status, directory)
    except FileNotFoundError:
        return False
    return now.same_look(seen) and now.target == seen.target


def xattrs_of(descriptor: int) -> dict[str, bytes]:
    """Read the extended attributes that belong to a file and not to the machine it is on."""
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return {}
        raise
    return {name: os.getxattr(descriptor, name) for name in names if name.startswith(_COPIED)}


def _of_directory(name: str, parent: int) -> Mapping[str, bytes]:
    descriptor = os.open(name, DIRECTORY, dir_fd=parent)
    try:
        return xattrs_of(descriptor)
    finally:
        os.close(descriptor)


def _entry(path: str, name: str, found: os.stat_result, directory: int) -> Entry:
    kind = kind_of(found.st_mode)
    linked = kind == "symlink"
    return Entry(
        path,
        kind,
        mode=0 if linked else stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        size=found.st_size if kind == "file" else 0,
        held=taken if kind == "file" and (taken := found.st_blocks * 512) < found.st_size else 0,
        mtime=found.st_mtime_ns,
        target=os.readlink(name, dir_fd=directory) if linked else "",
    )
