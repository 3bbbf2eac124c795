"""The parts of images, each in a file named by its SHA-256, shared by all images that have it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from isthmus.errors import Terminal
from isthmus.local.images import cache, oci


def path_of(blob: oci.Descriptor) -> Path:
    return cache.directory("blobs") / blob.digest.removeprefix("sha256:")


def has(blob: oci.Descriptor) -> bool:
    """Whether a blob is there in full length. `verified` looks at its content."""
    try:
        return path_of(blob).stat().st_size == blob.size
    except FileNotFoundError:
        return False


def verified(blob: oci.Descriptor) -> Path:
    """Return a blob's path after reading it through; drop it if its content is not what its name says."""
    path = path_of(blob)
    with path.open("rb") as content:
        if f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}" == blob.digest:
            return path
    path.unlink()
    raise Terminal(
        f"the cached file {path} was damaged and has been deleted", remedy="run the command again to rebuild it"
    )


def opened(blobs: Iterable[oci.Descriptor]) -> Iterator[tuple[oci.Descriptor, IO[bytes]]]:
    """Open one blob after another for reading."""
    for blob in blobs:
        with path_of(blob).open("rb") as content:
            yield blob, content


def put(data: bytes, media_type: str) -> oci.Descriptor:
    """Keep a small blob."""
    blob = oci.describe(data, media_type)
    if not has(blob):
        with cache.locked("blobs"):
            partial = path_of(blob).with_suffix(".partial")
            partial.write_bytes(data)
            partial.rename(path_of(blob))
    return blob


def put_stream(name: str, media_type: str, *, write: Callable[[IO[bytes]], None]) -> oci.Descriptor:
    """Keep a large blob that `write` produces; `name` stands for it until its digest is known."""
    with cache.locked(f"blob-{name}"), cache.explained():
        partial = cache.directory("blobs") / f"{name}.partial"
        with partial.open("w+b") as target:
            write(target)
            size = target.tell()
            target.seek(0)
            digest = hashlib.file_digest(target, "sha256").hexdigest()
        blob = oci.Descriptor(media_type, f"sha256:{digest}", size)
        partial.rename(path_of(blob))
    return blob
