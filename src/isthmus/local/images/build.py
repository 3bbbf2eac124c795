"""From recipes to images: makes the layers, packs them, and remembers what came out."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from isthmus.errors import Terminal
from isthmus.local import files
from isthmus.local.architecture import AMD64, ARCHITECTURES, Architecture, native
from isthmus.local.images import blobs, cache, layers, oci
from isthmus.local.images.recipes import IMAGES, Recipe, reference
from isthmus.local.progress import Progress

# Most of the time goes to apt, which works on one layer per Debian release at a time; the rest is small.
_AT_ONCE = 4


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image whose parts are all in the cache."""

    name: str
    reference: str
    key: str
    """Stands for everything that it was made from."""
    manifest: oci.Descriptor
    config: oci.Descriptor
    layers: tuple[oci.Descriptor, ...]
    architecture: str = AMD64.name

    @property
    def digest(self) -> str:
        """What a registry knows it by."""
        return self.manifest.digest

    @property
    def size(self) -> int:
        """Bytes of all layers, of which other images may share some."""
        return sum(layer.size for layer in self.layers)

    @property
    def blobs(self) -> tuple[oci.Descriptor, ...]:
        """Everything that belongs to it."""
        return (self.manifest, self.config, *self.layers)


def build(
    names: Iterable[str],
    progress: Progress,
    *,
    binaries: Mapping[str, Path] | None = None,
    architecture: Architecture | None = None,
) -> list[Image]:
    """Return images, made now as far as they are not in the cache; one-file images take theirs from `binaries`.

    They are for this machine, if no architecture is named.
    """
    recipes = [recipe_of(name) for name in names]
    one = partial(_build_one, progress=progress, binaries=binaries or {}, architecture=architecture or native())
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="images") as pool:
        return list(pool.map(one, recipes))


def list_images() -> list[Image]:
    """Return the images for this machine that are in the cache, complete."""
    found = (_remembered(name, native()) for name in IMAGES)
    return [image for image in found if image]


def write_archives(images: Sequence[Image], directory: Path) -> list[Path]:
    """Write every image to an OCI archive of its own, which tools can push to a registry."""
    directory.mkdir(parents=True, exist_ok=True)
    return [_write_archive(image, directory / f"{_marked(image)}.oci.tar") for image in images]


def stream_archive(
    images: Sequence[Image],
    target: IO[bytes],
    *,
    names: Callable[[Image], Iterable[str]] = lambda image: (image.reference,),
    without: Collection[str] = (),
) -> None:
    """Write images to one archive, in which parts that they share are held once.

    `names` says what an image is called in it. Blobs whose digests are in `without` are left out.
    """
    parts = {blob.digest: blob for image in images for blob in image.blobs if blob.digest not in without}
    index = oci.index((name, image.manifest, image.architecture) for image in images for name in names(image))
    oci.write_archive(index, blobs.opened(parts.values()), target)


def _write_archive(image: Image, path: Path) -> Path:
    for blob in image.blobs:
        blobs.verified(blob)
    unfinished = path.with_name(f"{path.name}.partial")
    with cache.explained(), unfinished.open("wb") as target:
        stream_archive([image], target)
    return unfinished.rename(path)


def recipe_of(name: str) -> Recipe:
    """Find a recipe by the image's name."""
    try:
        return IMAGES[name]
    except KeyError:
        raise Terminal(f"there is no image {name!r}", remedy=f"choose from {', '.join(IMAGES)}") from None


def _build_one(
    recipe: Recipe, *, progress: Progress, binaries: Mapping[str, Path], architecture: Architecture
) -> Image:
    ensure = partial(layers.ensure, recipe.layer, progress, binaries=binaries, architecture=architecture)
    top = ensure()
    key = cache.key_of(recipe, top.key)
    known = _remembered(recipe.name, architecture)
    if known and known.key == key:
        return known
    # A tree that lost files would be packed without complaint.
    top = ensure(verify=True)
    key = cache.key_of(recipe, top.key)
    packed = tuple(_pack(tree, progress) for tree in (*top.parents, top))
    config = blobs.put(oci.config(recipe, packed, architecture=architecture.name), oci.CONFIG)
    image = Image(
        name=recipe.name,
        reference=reference(recipe.name),
        key=key,
        manifest=blobs.put(oci.manifest(config, packed), oci.MANIFEST),
        config=config,
        layers=packed,
        architecture=architecture.name,
    )
    # Others may do so at the same time.
    files.write_whole(_memory(architecture.marked(recipe.name)), msgspec.json.encode(image))
    return image


def _pack(tree: layers.Tree, progress: Progress) -> oci.Descriptor:
    note = tree.path.with_name("packed.json")
    with cache.locked(f"pack-{tree.path.parent.name}"):
        try:
            blob = msgspec.json.decode(note.read_bytes(), type=oci.Descriptor)
        except (OSError, msgspec.DecodeError):
            pass
        else:
            if blobs.has(blob):
                return blob
        with progress.step(f"Packing {tree.architecture.marked(tree.layer.name)}"):
            blob = blobs.put_stream(tree.path.parent.name, oci.LAYER, write=partial(oci.write_layer, tree.path))
            files.write_whole(note, msgspec.json.encode(blob))
        return blob


def _memory(name: str) -> Path:
    return cache.directory("records") / f"{name}.json"


def _marked(image: Image) -> str:
    return ARCHITECTURES[image.architecture].marked(image.name)


def _remembered(name: str, architecture: Architecture) -> Image | None:
    try:
        image = msgspec.json.decode(_memory(architecture.marked(name)).read_bytes(), type=Image)
    except (OSError, msgspec.DecodeError):
        return None
    return image if all(map(blobs.has, image.blobs)) else None
