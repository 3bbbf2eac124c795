"""Writes files onto the shared root: whole or not at all, as asked, and nowhere else.

    look      walk to every file, directory by directory; refuse what is in the way; compare with what is there
    stage     write what differs under hidden names beside its place, to the disk
    commit    rename each to its place; what was there is kept until all are done, and put back if one fails

Users own directories of the shared root and change them while we walk. So no path is ever given to the kernel, only
one name at a time relative to a directory that is open already, and no symbolic link is followed: a link anywhere
is refused, whether it leads out or not. Who reads sees a file as it was or as it is to be, and never half of one.

Only renames of single files are atomic. Killed between two of them, we leave some files old; who starts us again
makes the rest so, because it compares.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from isthmus.domain.operator.jailedconfigs import paths
from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.errors import IsthmusError, Retry, Terminal

READY: Final = ".isthmus/ready"

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT: Final = 0
_LEFT_OVER: Final = re.compile(r"\.isthmus-[0-9a-f]{16}\.(new|old)")
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
_NEEDS_SOMEBODY: Final = frozenset({errno.EACCES, errno.EPERM})


class Place(NamedTuple):
    file: File
    directory: tuple[str, ...]
    name: str


class Root:
    """The shared root at `path`. `covered` are places on which nodes mount something else."""

    def __init__(self, path: Path, *, covered: tuple[str, ...] = ()) -> None:
        self._path = path
        self._covered = covered

    def is_filled(self) -> bool:
        """Whether the shared root is there and complete."""
        with suppress(OSError), self._opened() as root:
            return stat.S_ISREG(os.stat(READY, dir_fd=root, follow_symlinks=False).st_mode)
        return False

    def write(self, files: Sequence[File]) -> tuple[str, ...]:
        """Make all files so, or none; return the paths of those that were not so already."""
        places = [self._place(file) for file in files]
        try:
            with ExitStack() as stack:
                root = stack.enter_context(self._opened())
                walker = _Walker(root, stack)
                changed = [it for it in places if not walker.has(it)]
                walker.clean({it.directory for it in places})
                if changed:
                    _replace(changed, walker)
        except OSError as error:
            raise _told(error) from error
        return tuple(it.file.path for it in changed)

    def _place(self, file: File) -> Place:
        *directory, name = paths.parts(file.path)
        if over := paths.covering(file.path, self._covered):
            raise Terminal(
                f"{file.path} would be hidden: nodes mount something else at {over}",
                remedy="choose a path outside of it",
            )
        return Place(file, tuple(directory), name)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        root = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield root
        finally:
            os.close(root)


class _Walker:
    """Opens directories of the root, each once; all are closed with the stack."""

    def __init__(self, root: int, stack: ExitStack) -> None:
        self._root = root
        self._stack = stack
        self._open: dict[tuple[str, ...], int] = {(): root}

    def has(self, place: Place) -> bool:
        """Whether a file is as it should be; raises if something else is in its place."""
        directory = self.directory(place.directory)
        if directory is None:
            return False
        try:
            found = os.stat(place.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise _in_the_way((*place.directory, place.name), found.st_mode, directory, wanted="a file")
        if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != (place.file.mode, _ROOT, _ROOT):
            return False
        return found.st_size == len(place.file.content) and _content(place.name, directory) == place.file.content

    def directory(self, names: tuple[str, ...], *, make: bool = False) -> int | None:
        """Open a directory; None if it is not there and is not to be made."""
        known = self._open.get(names)
        if known is not None:
            return known
        above = self.directory(names[:-1], make=make)
        if above is None:
            return None
        try:
            opened = os.open(names[-1], _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            if not make:
                return None
            # Its mode is not looked at again: in a user's directory, another one may be in its place already.
            os.mkdir(names[-1], 0o755, dir_fd=above)
            opened = os.open(names[-1], _DIRECTORY, dir_fd=above)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            mode = os.stat(names[-1], dir_fd=above, follow_symlinks=False).st_mode
            raise _in_the_way(names, mode, above, wanted="a directory") from error
        self._stack.callback(os.close, opened)
        self._open[names] = opened
        return opened

    def clean(self, directories: set[tuple[str, ...]]) -> None:
        """Remove what an earlier process left when it was killed."""
        for directory in (self._open[it] for it in directories if it in self._open):
            for name in os.listdir(directory):  # noqa: PTH208 - a directory that is open has no path
                if _LEFT_OVER.fullmatch(name):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)


class _Staged:
    """One file on its way: written under a hidden name, then in its place; and back, if another one fails."""

    def __init__(self, place: Place, directory: int) -> None:
        self._place = place
        self._directory = directory
        token = secrets.token_hex(8)
        self._new = f".isthmus-{token}.new"
        self._old = f".isthmus-{token}.old"
        self._replaces = False
        self._kept = False
        self._done = False

    def stage(self) -> None:
        """Write the file, to the disk, beside its place."""
        file = self._place.file
        # It is not visible before it is complete and has its mode.
        opened = os.open(self._new, _CREATE, 0o600, dir_fd=self._directory)
        with os.fdopen(opened, "wb") as written:
            written.write(file.content)
            written.flush()
            os.fchown(opened, _ROOT, _ROOT)
            os.fchmod(opened, file.mode)
            os.fsync(opened)

    def commit(self) -> None:
        """Put it in its place, and keep what was there."""
        name, directory = self._place.name, self._directory
        try:
            os.link(name, self._old, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            self._replaces = self._kept = True
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._replaces = True  # and cannot be put back: still better than never to change it
        os.rename(self._new, name, src_dir_fd=directory, dst_dir_fd=directory)
        self._done = True

    def undo(self) -> None:
        name, directory = self._place.name, self._directory
        with suppress(OSError):
            if self._done and self._kept:
                os.rename(self._old, name, src_dir_fd=directory, dst_dir_fd=directory)
            elif self._done and not self._replaces:
                os.unlink(name, dir_fd=directory)
        self.forget()

    def forget(self) -> None:
        """Remove what is no longer needed."""
        for name in (self._new, self._old):
            with suppress(OSError):
                os.unlink(name, dir_fd=self._directory)


def _replace(changed: Sequence[Place], walker: _Walker) -> None:
    """Put all files in their places, or leave all as they were."""
    staged: list[_Staged] = []
    directories: set[int] = set()
    try:
        for place in changed:
            directory = walker.directory(place.directory, make=True)
            assert directory is not None  # noqa: S101 - it has just been made
            directories.add(directory)
            staged.append(_Staged(place, directory))
            staged[-1].stage()
        for it in staged:
            it.commit()
    except BaseException:
        for it in reversed(staged):
            it.undo()
        raise
    for it in staged:
        it.forget()
    for directory in directories:
        os.fsync(directory)


def _content(name: str, directory: int) -> bytes | None:
    """Read a file; None if it became something else, or cannot be read, a moment ago."""
    try:
        opened = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as found:
        return found.read() if stat.S_ISREG(os.fstat(opened).st_mode) else None


def _in_the_way(names: tuple[str, ...], mode: int, above: int, *, wanted: str) -> Terminal:
    path = "/" + "/".join(names)
    if stat.S_ISLNK(mode):
        target = os.readlink(names[-1], dir_fd=above)
        real = os.path.normpath(os.path.join("/", *names[:-1], target))  # noqa: PTH118 - text, and never opened
        return Terminal(
            f"{path} is a symbolic link to {target}; links are not followed",
            remedy=f"use the real path: {real} instead of {path}",
        )
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFREG: "a file", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    there = kinds.get(stat.S_IFMT(mode), "a device")
    return Terminal(f"{path} is {there}, and not {wanted}", remedy="use another path, or move it away")


def _told(error: OSError) -> IsthmusError:
    """What the file system said, and what to do about it."""
    what = f"cannot write to the shared root: {os.strerror(error.errno or errno.EIO)}"
    if error.filename:
        what += f" ({error.filename})"
    if error.errno in _NEEDS_SOMEBODY:
        return Terminal(
            what, remedy="files are written by root without extra privileges: choose a directory that root owns"
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Retry(what, remedy="free space on its volume, or enlarge it")
    return Retry(what)
