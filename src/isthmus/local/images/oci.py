"""The OCI image format, as much of it as we write: a tar per layer, a config, a manifest, an archive around them.

The same tree gives the same bytes on every machine: entries are sorted, owners are numbers, no time is later than
SOURCE_DATE_EPOCH, and nothing is compressed, so no compressor's version shows.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from isthmus.local.images.enclosure import SOURCE_DATE_EPOCH
from isthmus.local.images.layers import walk
from isthmus.local.images.recipes import Recipe

LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"

_CAPABILITY = "security.capability"
_OPAQUE = "trusted.overlay.opaque"


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """How OCI points at a blob."""

    media_type: str
    digest: str
    size: int


def describe(data: bytes, media_type: str) -> Descriptor:
    """Describe a blob that is in memory."""
    return Descriptor(media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def write_layer(tree: Path, target: IO[bytes]) -> None:
    """Write the upper directory of an overlay as a layer."""
    first_name: dict[tuple[int, int], str] = {}
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, status in walk(tree):
            entry = _entry(path, status)
            if stat.S_ISREG(status.st_mode):
                earlier = first_name.setdefault((status.st_dev, status.st_ino), path)
                if earlier != path:
                    entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, earlier, 0
            elif stat.S_ISLNK(status.st_mode):
                entry.linkname = os.readlink(tree / path)  # noqa: PTH115 - a Path would normalise the target
            elif _is_whiteout(status):
                entry = _marker(*os.path.split(path))
            if entry.isreg() and entry.size:
                _keep_capability(entry, tree / path)
                with (tree / path).open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
            if stat.S_ISDIR(status.st_mode) and _xattr(tree / path, _OPAQUE) == b"y":
                archive.addfile(_marker(path, ".wh..opq"))


def config(recipe: Recipe, layers: Iterable[Descriptor], *, architecture: str) -> bytes:
    """How the image starts, and what its layers are once they are unpacked."""
    process: dict[str, Any] = {"Env": recipe.env, "Labels": {"org.opencontainers.image.title": recipe.title}}
    if recipe.entrypoint:
        process["Entrypoint"] = recipe.entrypoint
    if recipe.command:
        process["Cmd"] = recipe.command
    if recipe.user:
        process["User"] = recipe.user
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": process,
        # Plain tars: a layer's digest is that of its content, too.
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
    }
    return msgspec.json.encode(document, order="deterministic")


def manifest(config_blob: Descriptor, layers: Iterable[Descriptor]) -> bytes:
    """Join config and layers to an image."""
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config_blob, "layers": list(layers)}
    return msgspec.json.encode(document, order="deterministic")


def index(manifests: Iterable[tuple[str, Descriptor, str]]) -> bytes:
    """List the images of an archive: reference, manifest, architecture; for containerd and for everyone else."""
    entries = [
        {
            **msgspec.to_builtins(descriptor),
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {
                "io.containerd.image.name": reference,
                "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
            },
        }
        for reference, descriptor, architecture in manifests
    ]
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    return msgspec.json.encode(document, order="deterministic")


def write_archive(index_json: bytes, blobs: Iterable[tuple[Descriptor, IO[bytes]]], target: IO[bytes]) -> None:
    """Write an OCI archive as a stream."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, text in (("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("index.json", index_json)):
            archive.addfile(_plain(name, len(text)), io.BytesIO(text))
        for blob, content in blobs:
            archive.addfile(_plain(f"blobs/{blob.digest.replace(':', '/')}", blob.size), content)


def _entry(path: str, status: os.stat_result) -> tarfile.TarInfo:
    entry = _plain(path, 0)
    entry.mode = stat.S_IMODE(status.st_mode)
    entry.uid, entry.gid = status.st_uid, status.st_gid
    entry.mtime = min(int(status.st_mtime), SOURCE_DATE_EPOCH)
    kinds = {
        stat.S_IFREG: tarfile.REGTYPE,
        stat.S_IFDIR: tarfile.DIRTYPE,
        stat.S_IFLNK: tarfile.SYMTYPE,
        stat.S_IFCHR: tarfile.CHRTYPE,
        stat.S_IFBLK: tarfile.BLKTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE,
    }
    entry.type = kinds[stat.S_IFMT(status.st_mode)]
    if entry.isreg():
        entry.size = status.st_size
    if entry.isdev():
        entry.devmajor, entry.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return entry


def _plain(path: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mtime = size, SOURCE_DATE_EPOCH
    return entry


def _marker(parent: str, name: str) -> tarfile.TarInfo:
    return _plain(os.path.join(parent, f".wh.{name}"), 0)  # noqa: PTH118 - a name in an archive, not a file


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _keep_capability(entry: tarfile.TarInfo, path: Path) -> None:
    """Keep what lets a program do one privileged thing, such as ping. Other attributes are the overlay's own."""
    value = _xattr(path, _CAPABILITY)
    if value:
        entry.pax_headers = {f"SCHILY.xattr.{_CAPABILITY}": value.decode(errors="surrogateescape")}


def _xattr(path: Path, name: str) -> bytes:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:  # not set, or a file system without attributes
        return b""
