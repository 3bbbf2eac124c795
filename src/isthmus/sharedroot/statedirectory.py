"""The state that we keep in the root, in `.isthmus`: it says what is ours.

lock       who works on the root at this moment
staging/   files that are not whole yet, or not yet known to be
journal    what a run was about to put in place or to remove, written down before
manifest   what the last run that finished took from its image
ready      there when, and only when, jobs can live in the root
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from isthmus.domain.sharedroot.entry import Entry, from_lines, to_line
from isthmus.domain.sharedroot.known import Knowledge
from isthmus.errors import Terminal
from isthmus.sharedroot.tree import OWN

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644

READY: Final = "ready"
MANIFEST: Final = "manifest"
JOURNAL: Final = "journal"
STAGING: Final = "staging"


class Ready(msgspec.Struct, frozen=True):
    """What `ready` says: which image, since when, how much, and the digest of its manifest."""

    image: str
    when: str
    files: int
    revision: str


class StateDirectory:
    """The directory `.isthmus` of a root."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    @contextmanager
    def made(cls, top: int) -> Iterator["StateDirectory"]:
        """Open it, and make it if it is not there."""
        with suppress(FileExistsError):
            os.mkdir(OWN, 0o755, dir_fd=top)
        with cls.found(top) as own:
            status = os.fstat(own.descriptor)
            if (status.st_uid, status.st_mode & 0o7777) != (os.geteuid(), 0o755):
                # Made by another user, who could exchange its content.
                os.fchown(own.descriptor, os.geteuid(), os.getegid())
                os.fchmod(own.descriptor, 0o755)
            yield own

    @classmethod
    @contextmanager
    def found(cls, top: int) -> Iterator["StateDirectory"]:
        """Open it; FileNotFoundError if it is not there."""
        try:
            descriptor = os.open(OWN, _DIRECTORY, dir_fd=top)
        except NotADirectoryError as error:
            raise Terminal(
                f"{OWN} in the root is not a directory, or is a symbolic link that someone created",
                remedy=f"check it, and move {OWN} away",
            ) from error
        try:
            yield cls(descriptor)
        finally:
            os.close(descriptor)

    def ready(self) -> Ready | None:
        """Read what `ready` says; None if it is not there."""
        try:
            return msgspec.json.decode(self.read(READY), type=Ready)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            return Ready(image="", when="", files=0, revision="")

    def entries(self, name: str) -> list[Entry]:
        """Read the manifest or the journal; empty if it is not there."""
        try:
            return list(from_lines(self.read(name).splitlines()))
        except FileNotFoundError:
            return []

    def knowledge(self) -> Knowledge:
        """Read all that earlier runs wrote down."""
        return Knowledge(listed=self.entries(MANIFEST), begun=self.entries(JOURNAL))

    def read(self, name: str) -> bytes:
        with os.fdopen(os.open(name, _READ, dir_fd=self.descriptor), "rb") as file:
            return file.read()

    def begin(self, entries: Iterable[Entry]) -> None:
        """Note down, on the disk, what is about to be put in place, or to be removed."""
        lines = b"".join(map(to_line, entries))
        if not lines:
            return
        descriptor = os.open(JOURNAL, _APPEND, 0o600, dir_fd=self.descriptor)
        try:
            _write(descriptor, lines)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def mend_journal(self) -> None:
        """Cut off a line that a killed run left half written, so that the next one does not join it."""
        with suppress(FileNotFoundError):
            text = self.read(JOURNAL)
            whole = text.rfind(b"\n") + 1
            if whole != len(text):
                descriptor = os.open(JOURNAL, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
                try:
                    os.ftruncate(descriptor, whole)
                finally:
                    os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Write a file that is there whole or not at all, and on the disk when this returns."""
        unfinished = f"{name}.unfinished"
        descriptor = os.open(unfinished, _CREATE, _MODE, dir_fd=self.descriptor)
        try:
            os.fchmod(descriptor, _MODE)
            _write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(unfinished, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        os.fsync(self.descriptor)

    def forget(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    @contextmanager
    def staging(self) -> Iterator[int]:
        """Open an empty place for unfinished files, and remove what an earlier run left there."""
        self._empty_staging()
        os.mkdir(STAGING, 0o700, dir_fd=self.descriptor)
        descriptor = os.open(STAGING, _DIRECTORY, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
            self._empty_staging()

    def _empty_staging(self) -> None:
        try:
            descriptor = os.open(STAGING, _DIRECTORY, dir_fd=self.descriptor)
        except FileNotFoundError:
            return
        try:
            for name in os.listdir(descriptor):  # noqa: PTH208 - paths know no open directories
                try:
                    os.unlink(name, dir_fd=descriptor)
                except IsADirectoryError:
                    os.rmdir(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(STAGING, dir_fd=self.descriptor)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
