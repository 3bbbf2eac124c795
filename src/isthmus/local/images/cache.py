"""Where made things are kept, and how they get there whole: one maker at a time, under a temporary name, renamed.

    <cache>/images/layers/<name>-<key>/   a layer's tree and its record
    <cache>/images/blobs/<sha256>         what an OCI image is made of: layers, configs, manifests
    <cache>/images/roots/<name>-<key>/    whole root file systems, for use without containers
    <cache>/images/apt/<suite>/           downloaded package lists and packages
    <cache>/images/store/                 a containerd root with the images unpacked
    <cache>/images/locks/                 one lock per thing being made

A name without `.partial` at its end is complete, because a rename is the last step. Whoever holds a thing's lock
may throw away its `.partial`: the maker that left it is dead, or the lock would not have been free.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from isthmus.errors import Terminal
from isthmus.local import files
from isthmus.local.paths import cache_dir

_KEY_LENGTH = 16


def directory(*parts: str) -> Path:
    """Return a directory of the image cache, made if it is not there."""
    path = cache_dir().joinpath("images", *parts)
    if set(str(path)) & set(':,\\"'):
        # The path goes into overlay mount options, where these characters separate or escape.
        raise Terminal(
            f'the cache directory {path} contains one of : , \\ "',
            remedy="set XDG_CACHE_HOME to a directory with a plain name",
        )
    path.mkdir(parents=True, exist_ok=True)
    return path


def key_of(*inputs: object) -> str:
    """Name the outcome of a deterministic step by what goes into it."""
    return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()[:_KEY_LENGTH]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Wait until nobody else, in this process or another, makes the thing of this name."""
    with files.locked(directory("locks") / name):
        yield


@contextmanager
def replacing(final: Path) -> Iterator[Path]:
    """Give a fresh directory to fill, which takes the place of `final` when the block ends well.

    The caller holds the thing's lock.
    """
    partial = final.with_name(f"{final.name}.partial")
    remove(partial)
    partial.mkdir(parents=True)
    with explained():
        yield partial
        remove(final)
        partial.rename(final)


def remove(path: Path) -> None:
    """Remove a tree that may not exist."""
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def explained() -> Iterator[None]:
    """Turn a full or read-only disk into a sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}:
            raise
        raise Terminal(
            f"cannot write to the image cache: {error.strerror} ({error.filename or directory()})",
            remedy="free space there, or set XDG_CACHE_HOME to a directory on another disk",
        ) from error


def check_can_build(*, room: int) -> None:
    """Say at once, not after minutes, that a build cannot work here."""
    if os.geteuid() != 0:
        raise Terminal("building images needs root, for mounts and chroots", remedy="run it with sudo")
    free = shutil.disk_usage(directory()).free
    if free < room:
        raise Terminal(
            f"{directory()} has {free >> 20} MiB free; building needs {room >> 20} MiB",
            remedy="free space there, or set XDG_CACHE_HOME to a directory on another disk",
        )
