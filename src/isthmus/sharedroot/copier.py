"""Copies files into the root, a batch at a time, each file whole or not at all.

    stage     write every file of the batch under a temporary name
    sync      bring them to the disk
    verify    read them back from there, and compare
    begin     note down what is about to be put in place
    put       rename each to its place

So what has its final name is known to be right, and a run that was killed leaves nothing else but a directory of
unfinished files, which the next one removes. Batches are independent: while one waits for the disk, others copy.
"""

import errno
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeVar

import msgspec

from isthmus.domain.sharedroot.decision import Step
from isthmus.domain.sharedroot.entry import Entry
from isthmus.errors import Retry
from isthmus.sharedroot import rename
from isthmus.sharedroot.statedirectory import StateDirectory
from isthmus.sharedroot.tree import PIECE, READ, Tree, digest_of, unchanged, xattrs_of

_BATCH_SIZE: Final = 64 << 20
_BATCH_FILES: Final = 1024
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
T = TypeVar("T")
_ZEROS: Final = bytes(64 << 10)
_NO_XATTRS: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class Tally:
    """How much is done. Counted by several threads, read by the progress display."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.files = 0
        self.size = 0
        self.bare: list[str] = []
        """Paths whose extended attributes the root's file system does not keep."""
        self.taken: list[str] = []
        """Paths where a user was quicker."""

    def add(self, size: int) -> None:
        with self._lock:
            self.files += 1
            self.size += size


class Staged(msgspec.Struct, frozen=True):
    """A file that is written, but not in its place."""

    name: str
    step: Step
    entry: Entry


@dataclass(eq=False)
class Copier:
    """Carries files from an image to the root. Safe for use by several threads."""

    source: Tree
    root: Tree
    own: StateDirectory
    _: KW_ONLY
    staging: int
    check: Callable[[], None]
    tally: Tally = field(default_factory=Tally, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    _buffers: threading.local = field(default_factory=threading.local, init=False)

    def carry(self, batch: Sequence[Step]) -> list[Entry]:
        """Copy a batch of files to their places; what they are now, with their digests."""
        staged = [it for parent, steps in _by_directory(batch, _origin) for it in self._stage_all(parent, steps)]
        return self.finish(staged)

    def finish(self, staged: Sequence[Staged]) -> list[Entry]:
        """Put files that are written into their places, once they are known to be right."""
        rename.sync(self.staging)
        for it in staged:
            self._verify(it)
        self.own.begin(it.step.noted(it.entry) for it in staged)
        for parent, group in _by_directory(staged, lambda it: it.entry.path):
            with self.root.directory(parent) as directory:
                for it in group:
                    self.put(it.name, it.step, directory)
        return [it.entry for it in staged]

    def put(self, name: str, step: Step, directory: int) -> None:
        """Rename a staged file to its place; not over what a user has put there since we looked."""
        self.check()
        target = step.path.rpartition("/")[2]
        if step.root is None:
            try:
                rename.put_new(name, target, staging=self.staging, directory=directory)
            except FileExistsError:
                self.tally.taken.append(step.path)
        elif unchanged(step.root, directory):
            rename.put_over(name, target, staging=self.staging, directory=directory)
        else:
            self.tally.taken.append(step.path)

    def name(self) -> str:
        return str(next(self._numbers))

    def stage_content(self, step: Step, goal: Entry, content: bytes) -> Staged:
        """Write a small file that is in no image."""
        name = self.name()
        descriptor = os.open(name, _CREATE, 0o600, dir_fd=self.staging)
        try:
            os.write(descriptor, content)
            entry = msgspec.structs.replace(goal, digest=hashlib.sha256(content).hexdigest(), size=len(content))
            self.dress(descriptor, entry)
            os.utime(descriptor)  # it is not what the image has, and should not look like it
        finally:
            os.close(descriptor)
        return Staged(name, step, entry)

    def dress(self, descriptor: int, entry: Entry) -> None:
        """Give an open file or directory the owner, mode and attributes of an entry."""
        status = os.fstat(descriptor)
        if (entry.uid, entry.gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, entry.uid, entry.gid)
        # After the owner: a change of owner takes setuid and capabilities away.
        os.fchmod(descriptor, entry.mode)
        for name, value in entry.xattrs.items():
            try:
                os.setxattr(descriptor, name, value)
            except OSError as error:
                if error.errno not in _NO_XATTRS:
                    raise
                self.tally.bare.append(entry.path)
        os.utime(descriptor, ns=(entry.mtime, entry.mtime))

    def _stage_all(self, parent: str, steps: Iterable[Step]) -> Iterator[Staged]:
        with self.source.directory(parent) as directory:
            for step in steps:
                self.check()
                yield self._stage(step, directory)

    def _stage(self, step: Step, directory: int) -> Staged:
        goal = step.goal
        assert goal is not None  # noqa: S101 - whatever is copied has a goal
        name = self.name()
        reading = os.open(_origin(step).rpartition("/")[2], READ, dir_fd=directory)
        try:
            writing = os.open(name, _CREATE, 0o600, dir_fd=self.staging)
            try:
                digest, size = self._copy(reading, writing, sparse=bool(goal.held))
                if goal.digest and goal.digest != digest:
                    raise Retry(f"/{goal.path} of the image changed while it was read", remedy="start again")
                xattrs = goal.xattrs if goal.digest else xattrs_of(reading)
                entry = msgspec.structs.replace(goal, digest=digest, size=size, xattrs=xattrs, leader="")
                self.dress(writing, entry)
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        self.tally.add(size)
        return Staged(name, step, entry)

    def _copy(self, reading: int, writing: int, *, sparse: bool) -> tuple[str, int]:
        """Copy an open file, and its holes as holes: its digest and size."""
        digest, size, buffer = hashlib.sha256(), 0, self._buffer()
        for hole, length in _segments(reading) if sparse else [(0, None)]:
            self._add_zeros(digest, hole)
            size = os.lseek(writing, hole, os.SEEK_CUR) if hole else size
            while count := os.readv(reading, [buffer if length is None else buffer[: length - size]]):
                piece = buffer[:count]
                digest.update(piece)
                size += count
                while piece:
                    piece = piece[os.write(writing, piece) :]
                self.check()
        if sparse:
            os.ftruncate(writing, size)  # no write covers a hole at the end
        return digest.hexdigest(), size

    def _add_zeros(self, digest: "hashlib._Hash", count: int) -> None:
        for start in range(0, count, len(_ZEROS)):
            digest.update(_ZEROS[: count - start])
            self.check()

    def _verify(self, staged: Staged) -> None:
        """Read a file back from the disk. Its pages are clean after the sync, so the cache gives them up."""
        descriptor = os.open(staged.name, READ, dir_fd=self.staging)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            digest, size = digest_of(descriptor, buffer=self._buffer(), check=self.check)
        finally:
            os.close(descriptor)
        if (digest, size) != (staged.entry.digest, staged.entry.size):
            raise Retry(
                f"the copy of /{staged.entry.path} differs from what was written",
                remedy="the storage loses or changes data: check its server and the kernel's log",
            )

    def _buffer(self) -> memoryview:
        try:
            return self._buffers.one  # type: ignore[no-any-return]
        except AttributeError:
            self._buffers.one = memoryview(bytearray(PIECE))
            return self._buffers.one  # type: ignore[no-any-return]


def batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Divide files into batches, neighbours together."""
    batch: list[Step] = []
    size = 0
    for step in steps:
        batch.append(step)
        size += step.goal.size if step.goal else 0
        if size >= _BATCH_SIZE or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _segments(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield where data ends, each with the size of the hole before; leave the file to be read from there."""
    offset, end = 0, os.fstat(descriptor).st_size
    while offset < end:
        try:
            data = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = end  # nothing but a hole is left
        until = os.lseek(descriptor, data, os.SEEK_HOLE) if data < end else end
        os.lseek(descriptor, data, os.SEEK_SET)
        yield data - offset, until
        offset = until


def _origin(step: Step) -> str:
    return step.origin or step.path


def _by_directory(items: Iterable[T], path_of: Callable[[T], str]) -> Iterator[tuple[str, Iterator[T]]]:
    return itertools.groupby(items, key=lambda it: path_of(it).rpartition("/")[0])
