"""Images ready in every node without being copied: one containerd root that holds them unpacked, shared by links.

    store/<n>/…blobs/sha256/*        ═ hard links ═  a node's root, same paths
    store/<n>/…overlayfs/snapshots/* ← symlinks ───  a node's root, same paths
    store/<n>/…meta.db, metadata.db  ── copies ───→  a node's root, same paths

A committed snapshot never changes, so any number of nodes can mount it; what a node removes is its own link. The
store only grows, since nodes that run have links into it: an image keeps its name by digest when its tag moves on.
A damaged store is left to those nodes, and the next number is begun.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from isthmus.errors import Terminal
from isthmus.local.images import blobs, cache
from isthmus.local.images.build import Image, stream_archive
from isthmus.local.images.enclosure import ENCLOSED
from isthmus.local.progress import Progress
from isthmus.local.shell import run

NAMESPACE: Final = "k8s.io"
"""Where Kubernetes keeps its images in a containerd."""

_METADATA = Path("io.containerd.metadata.v1.bolt/meta.db")
_CONTENT = Path("io.containerd.content.v1.content/blobs/sha256")
_SNAPSHOTTER = Path("io.containerd.snapshotter.v1.overlayfs")
_SNAPSHOTS = _SNAPSHOTTER / "snapshots"
_DATABASES = (_METADATA, _SNAPSHOTTER / "metadata.db")

_MANAGED = "io.cri-containerd.image=managed"
"""The label by which Kubernetes' side of containerd takes an image for its own."""

_START_SECONDS = 180
_REMEDY = "check whether the disk is full; it is safe to retry"

# Nothing is collected: blobs are linked in before they are registered, and older images stay for nodes that run.
_CONFIG = """
version = 2
root = "{root}"
state = "{state}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "{state}/socket"
[ttrpc]
address = "{state}/ttrpc"
[plugins."io.containerd.gc.v1.scheduler"]
startup_delay = "24h"
mutation_threshold = 1000000
"""


class Store(msgspec.Struct, frozen=True):
    """A containerd root that no containerd runs on."""

    root: Path


class _Record(msgspec.Struct, frozen=True):
    """What a store holds, written when it was last complete."""

    images: dict[str, str] = {}
    """Digest by reference."""
    blobs: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()


def ensure(images: Sequence[Image], progress: Progress) -> Store:
    """Return a store that holds these images, importing what it lacks."""
    with cache.locked("store"):
        root, record = _current()
        missing = [image for image in images if record.images.get(image.reference) != image.digest]
        if missing:
            cache.check_can_build(room=2 * sum(image.size for image in missing))
            with progress.step(f"Unpacking {', '.join(image.name for image in missing)}"), cache.explained():
                with _containerd(root) as socket:
                    _lend_blobs(missing, root, socket=socket)
                    _import(missing, socket, names=_names)
                _write_record(root, {**record.images, **{image.reference: image.digest for image in missing}})
        return Store(root)


def seed(store: Store, root: Path) -> None:
    """Prepare a fresh containerd root that has all images of the store."""
    with cache.locked("store"), cache.explained():
        for database in _DATABASES:
            (root / database).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store.root / database, root / database)
        (root / _CONTENT).mkdir(parents=True, exist_ok=True)
        for blob in os.scandir(store.root / _CONTENT):
            _link_or_copy(blob.path, root / _CONTENT / blob.name)
        (root / _SNAPSHOTS).mkdir(exist_ok=True)
        (root / _SNAPSHOTS).chmod(0o700)
        for snapshot in os.scandir(store.root / _SNAPSHOTS):
            (root / _SNAPSHOTS / snapshot.name).symlink_to(snapshot.path)


def load(images: Sequence[Image], socket: Path) -> None:
    """Import images into a node's containerd, where Kubernetes' side of it adds the other names by itself."""
    _import(images, socket, names=lambda image: (image.reference,))


def _import(images: Sequence[Image], socket: Path, *, names: Callable[[Image], tuple[str, ...]]) -> None:
    """Have a containerd that runs take images under these names, and unpack them."""
    ctr = _ctr(socket)
    present = frozenset(run([*ctr, "content", "ls", "--quiet"]).split())
    with subprocess.Popen(
        [*ctr, "images", "import", "--snapshotter", "overlayfs", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as importing:
        assert importing.stdin  # noqa: S101 - for the type checker: it is a pipe
        assert importing.stderr  # noqa: S101 - likewise
        try:
            stream_archive(images, importing.stdin, names=names, without=present)
            importing.stdin.close()
        except BrokenPipeError:
            pass  # it ended early, and says why
        said = importing.stderr.read().decode(errors="replace").strip()
    if importing.returncode:
        _drop_damaged(images)
        raise Terminal(f"containerd did not accept the images: {said}", remedy=_REMEDY)
    for image in images:
        for name in names(image):
            run([*ctr, "images", "label", name, _MANAGED])


def _names(image: Image) -> tuple[str, ...]:
    """Name an image as Kubernetes does for one that it pulled: by tag, by digest, and by its config's digest."""
    repository = image.reference.rpartition(":")[0]
    return (image.reference, f"{repository}@{image.digest}", image.config.digest)


def _drop_damaged(images: Sequence[Image]) -> None:
    """Look for a blob whose content is not what its name says; dropped, it is made again by the next run."""
    for blob in {blob for image in images for blob in image.blobs}:
        blobs.verified(blob)


def _current() -> tuple[Path, _Record]:
    """Return the newest store and what is in it, or a new one if that is damaged or was never complete."""
    numbers = [int(entry.name) for entry in cache.directory("store").iterdir() if entry.name.isdigit()]
    newest = cache.directory("store") / str(max(numbers, default=0))
    root = newest / "root"
    try:
        record = msgspec.json.decode((newest / "record.json").read_bytes(), type=_Record)
        if _holds(root, record):
            return root, record
    except FileNotFoundError:
        cache.remove(newest)  # no node has links into a store that was never complete
    except msgspec.DecodeError:
        pass
    root = cache.directory("store", str(max(numbers, default=0) + 1), "root")
    return root, _Record()


def _holds(root: Path, record: _Record) -> bool:
    return (
        all((root / database).is_file() for database in _DATABASES)
        and set(record.blobs) <= _names_in(root / _CONTENT)
        and set(record.snapshots) <= _names_in(root / _SNAPSHOTS)
    )


def _names_in(directory: Path) -> set[str]:
    return {entry.name for entry in os.scandir(directory)} if directory.is_dir() else set()


def _write_record(root: Path, images: dict[str, str]) -> None:
    record = _Record(
        images,
        blobs=tuple(sorted(_names_in(root / _CONTENT))),
        snapshots=tuple(sorted(_names_in(root / _SNAPSHOTS))),
    )
    unfinished = root.with_name("record.json.partial")
    unfinished.write_bytes(msgspec.json.encode(record))
    unfinished.rename(root.with_name("record.json"))


def _lend_blobs(images: Sequence[Image], root: Path, *, socket: Path) -> None:
    """Spare containerd the copying: a blob that already lies where it belongs is only registered.

    containerd does not verify such a blob, so its content is verified here.
    """
    (root / _CONTENT).mkdir(parents=True, exist_ok=True)
    for blob in {blob for image in images for blob in image.blobs}:
        path = blobs.verified(blob)
        _link_or_copy(path, root / _CONTENT / path.name)
        told = ["--expected-digest", blob.digest, "--expected-size", str(blob.size), blob.digest]
        with path.open("rb") as content:
            ingest = subprocess.run(
                [*_ctr(socket), "content", "ingest", *told],
                check=False,
                stdin=content,
                capture_output=True,
                text=True,
            )
        if ingest.returncode:
            raise Terminal(f"containerd did not accept {path}: {ingest.stderr.strip()}", remedy=_REMEDY)


def _ctr(socket: Path) -> list[str]:
    return ["ctr", "--address", str(socket), "--namespace", NAMESPACE]


def _link_or_copy(source: str | Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        pass
    except OSError:  # another file system
        shutil.copyfile(source, target)


@contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """Run a containerd on the store, with no sockets and mounts that others could see, until the block ends."""
    with TemporaryDirectory(prefix="isthmus-store-") as state, Path(state, "log").open("wb") as log:
        config = Path(state, "config.toml")
        config.write_text(_CONFIG.format(root=root, state=state))
        daemon = subprocess.Popen([*ENCLOSED, "containerd", "--config", config], stdout=log, stderr=log)
        try:
            _await_start(daemon, Path(state))
            yield Path(state, "socket")
        finally:
            daemon.kill()
            daemon.wait()


def _await_start(daemon: subprocess.Popen[bytes], state: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ctr = ["ctr", "--address", str(state / "socket"), "--timeout", "2s", "version"]
    while subprocess.run(ctr, check=False, capture_output=True).returncode:
        if daemon.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join((state / "log").read_text(errors="replace").splitlines()[-5:])
            raise Terminal(f"containerd did not start on the image store:\n{tail}", remedy="see the message above")
        time.sleep(0.02)
