"""What the building machine itself puts into layers: built programs, locked Python packages, our own code."""

import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from isthmus.errors import Terminal
from isthmus.local import resources
from isthmus.local.architecture import Architecture
from isthmus.local.images import cache
from isthmus.local.images.recipes import Layer
from isthmus.local.shell import run

_PACKAGES = Path("usr/local/lib/python3.13/dist-packages")
"""Debian's Python looks here by itself. The version is the one that the `python` layer expects."""

SPANK = Path("usr/src/isthmus-spank")
"""Where the source of our plugin for Slurm is compiled. The `spank` layers name it in their script."""


class Source(Struct, frozen=True):
    """Files from this machine; `key` changes whenever they do."""

    key: str
    fill: Callable[[Path], None]


def find(layer: Layer, binaries: Mapping[str, Path], architecture: Architecture) -> Source | None:
    """Find what a layer takes from this machine, if anything."""
    if layer.source == "binary":
        return _binary(layer.name, binaries)
    if layer.source == "wheels":
        return _wheels(resources.find("requirements.lock"), architecture.machine)
    if layer.source == "isthmus":
        return _tree(resources.PACKAGE, place=_PACKAGES / "isthmus")
    if layer.source == "spank":
        return _tree(resources.find("images/spank"), place=SPANK)
    return None


def _binary(name: str, binaries: Mapping[str, Path]) -> Source:
    program = binaries.get(name)
    if program is None or not program.is_file():
        raise Terminal(f"the image {name} needs the program {name}, which was not built", remedy="build it first")

    def fill(tree: Path) -> None:
        shutil.copy(program, tree / name)
        (tree / name).chmod(0o755)

    return Source(_file_digest(program), fill)


def _wheels(lock: Path, machine: str) -> Source:
    def fill(tree: Path) -> None:
        run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--target", tree / _PACKAGES, "--no-deps", "--no-compile", "--require-hashes"),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.13"),
                *("--platform", f"manylinux_2_28_{machine}", "--platform", f"manylinux2014_{machine}"),
                *("--requirement", lock),
            ],
            remedy="packages come from the index that pip uses: check that `pip download` works",
        )
        # Console scripts carry the path of this machine's Python; nobody calls them in the image.
        cache.remove(tree / _PACKAGES / "bin")

    return Source(_file_digest(lock), fill)


def _tree(directory: Path, *, place: Path) -> Source:
    def fill(tree: Path) -> None:
        for path in _own_files(directory):
            target = tree / place / path.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o644)

    parts = [(str(path.relative_to(directory)), _file_digest(path)) for path in _own_files(directory)]
    return Source(cache.key_of(parts), fill)


def _own_files(directory: Path) -> Iterator[Path]:
    """List what belongs to a layer, and is the same in a clone and in a wheel.

    A wheel's charts and the like, which no process in an image reads, are left out.
    """
    for path in sorted(directory.rglob("*")):
        first, *_ = path.relative_to(directory).parts
        if path.is_file() and "__pycache__" not in path.parts and first != resources.IN_WHEEL:
            yield path


def _file_digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
