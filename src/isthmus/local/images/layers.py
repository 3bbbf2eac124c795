"""Makes the trees of layers from their recipes, each once: see `recipes` for what, `cache` for where.

A layer's tree is what an overlay's upper directory holds: new and changed files, whiteouts for removed ones. Its
key is made of the recipe, the parent's key and what the building machine puts in, never of the mirror's state: a
cached layer stays as it is until its recipe changes.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from isthmus.errors import Terminal
from isthmus.local.architecture import Architecture, native
from isthmus.local.images import apt, cache, sources
from isthmus.local.images.enclosure import run_enclosed
from isthmus.local.images.recipes import Layer, layer_for
from isthmus.local.progress import Progress

_ROOM = 3 << 30
_LAYER_SCRIPT = Path(__file__).with_name("layer.sh")

# Debian without what nobody reads in a container. The options stay in the base layer and hold for the later ones.
_DEBIAN_OPTIONS = (
    '--aptopt=Acquire::Check-Valid-Until "false"',  # a testing release may be served past its date
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=APT::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
)

# What differs from machine to machine or from hour to hour, or belongs to one machine alone.
_SCRAPS = (
    "dev/*",
    "etc/*-",
    "etc/.pwd.lock",
    "etc/machine-id",
    "run/*",
    "tmp/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/lib/apt/lists/*",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/*-old",
    "var/lib/systemd/catalog/database",
    "var/log/**/*.log",
    "var/log/apt/*",
    "var/log/*log",
    "var/log/*tmp",
)

# slurmctld looks up every client's address: without this file each burst of connections stalls for seconds.
_HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"

# mmdebstrap copies the machine's own host name and resolver, and writes down its mirror.
_SETTINGS = {"hosts": _HOSTS, "hostname": "localhost\n", "resolv.conf": "", "apt/sources.list": ""}


class Tree(msgspec.Struct, frozen=True):
    """A made layer: where its files are, and those of the layers below it."""

    layer: Layer
    key: str
    path: Path
    parents: tuple["Tree", ...]
    """From the bottom up."""
    origins: dict[str, "Tree"]
    """Layers from which it takes files."""
    source: sources.Source | None
    """What the building machine puts in."""
    architecture: Architecture


class _Record(msgspec.Struct, frozen=True):
    fingerprint: str


def ensure(
    name: str,
    progress: Progress,
    *,
    binaries: Mapping[str, Path] | None = None,
    architecture: Architecture | None = None,
    verify: bool = False,
) -> Tree:
    """Return a layer's tree, made now if it is not in the cache; for this machine, if no architecture is named.

    With `verify`, the trees are looked through, and one that lost something is made again.
    """
    tree = plan(name, binaries=binaries, architecture=architecture)
    layer, entry = tree.layer, tree.path.parent
    again = partial(ensure, progress=progress, binaries=binaries, architecture=architecture)
    needed = [below for below in (layer.parent, *tree.origins) if below]
    for below in needed:
        again(below, verify=verify)
    if _intact(entry, verify=verify):
        return tree
    with cache.locked(entry.name):
        if _intact(entry, verify=verify):
            return tree
        cache.check_can_build(room=_ROOM)
        for below in needed:
            again(below, verify=True)
        title = f"Layer {tree.architecture.marked(name)}"
        with progress.step(title), cache.replacing(entry) as unfinished:
            made = unfinished / "tree"
            made.mkdir()
            if tree.source:
                tree.source.fill(made)
            _write_files(made, layer, tree.origins)
            if layer.suite and not layer.parent:
                _bootstrap(made, layer, tree.architecture)
            elif tree.parents:
                _install(made, tree, scratch=unfinished)
            _tidy(made, layer)
            record = _Record(fingerprint(made))
            (unfinished / "layer.json").write_bytes(msgspec.json.encode(record))
    return tree


def plan(
    name: str, *, binaries: Mapping[str, Path] | None = None, architecture: Architecture | None = None
) -> Tree:
    """What a layer is made of, and where its tree is once it is made."""
    chosen = architecture or native()
    layer = layer_for(name, chosen)
    again = partial(plan, binaries=binaries, architecture=chosen)
    below = again(layer.parent) if layer.parent else None
    parents = (*below.parents, below) if below else ()
    origins = {origin: again(origin) for origin, _ in layer.copies}
    source = sources.find(layer, binaries or {}, chosen)
    inputs = [tree.key for tree in (*parents[-1:], *origins.values())]
    key = chosen.marked(cache.key_of(_method(), layer, inputs, source.key if source else ""))
    path = cache.directory("layers") / f"{name}-{key}" / "tree"
    return Tree(layer, key, path, parents, origins, source, chosen)


def _method() -> str:
    """Stand for the way in which layers are made: a change to it makes every layer again."""
    return cache.key_of(_DEBIAN_OPTIONS, _SCRAPS, _SETTINGS, _LAYER_SCRIPT.read_text())


def overlay_order(tree: Tree) -> str:
    """List a tree and those below it as an overlay wants them: the topmost first."""
    return ":".join(str(each.path) for each in (tree, *reversed(tree.parents)))


def fingerprint(tree: Path) -> str:
    """Sum up a tree by names, kinds and sizes: enough to notice lost or cut files, without reading them."""
    digest = hashlib.sha256()
    for path, status in walk(tree):
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        digest.update(f"{path}\0{status.st_mode:o}\0{size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def walk(tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a directory, sorted, a directory before what is in it; paths are relative."""
    pending = [""]
    while pending:
        here = pending.pop()
        status = os.lstat(tree / here)
        if here:
            yield here, status
        if stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(tree / here), reverse=True)  # noqa: PTH208 - a Path per file takes twice as long
            pending += [f"{here}/{name}" if here else name for name in names]


def _intact(entry: Path, *, verify: bool) -> bool:
    try:
        record = msgspec.json.decode((entry / "layer.json").read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return False
    tree = entry / "tree"
    return record.fingerprint == fingerprint(tree) if verify else tree.is_dir()


def _write_files(tree: Path, layer: Layer, origins: Mapping[str, Tree]) -> None:
    for origin, path in layer.copies:
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(origins[origin].path / path, target)
    for name, text in layer.files.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if text.startswith("#!") else 0o644)


def _bootstrap(tree: Path, layer: Layer, architecture: Architecture) -> None:
    packages = ",".join(layer.packages)
    # mmdebstrap looks for one of two ways to emulate, where any will do: see `emulation`.
    foreign = () if architecture == native() else (f"--architectures={architecture.name}", "--skip=check/qemu")
    run_enclosed(
        [
            *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={packages}", *foreign),
            *(*_DEBIAN_OPTIONS, layer.suite, str(tree), apt.mirror()),
        ],
        f"make a Debian {layer.suite} system",
        env={},
    )
    for name, text in _SETTINGS.items():
        (tree / "etc" / name).write_text(text)
        (tree / "etc" / name).chmod(0o644)


def _install(made: Path, tree: Tree, *, scratch: Path) -> None:
    layer = tree.layer
    work, merged = scratch / "work", scratch / "merged"
    work.mkdir()
    merged.mkdir()
    kept = tree.architecture.marked(layer.suite or "none")
    downloads = cache.directory("apt", kept)
    for name in ("lists/partial", "archives/partial"):
        (downloads / name).mkdir(parents=True, exist_ok=True)
    settings = {
        "LOWER": overlay_order(tree.parents[-1]),
        "UPPER": str(made),
        "WORK": str(work),
        "MERGED": str(merged),
        "SUITE": layer.suite,
        "MIRROR": apt.mirror() if layer.packages else "",
        "PACKAGES": " ".join(layer.packages),
        "LISTS": str(downloads / "lists"),
        "ARCHIVES": str(downloads / "archives"),
    }
    with cache.locked(f"apt-{kept}"):
        run_enclosed(["sh", str(_LAYER_SCRIPT)], f"make the layer {layer.name}", env=settings, stdin=layer.script)
    if layer.expects:
        _check_version(made, *layer.expects)
    shutil.rmtree(work)
    merged.rmdir()


def _check_version(tree: Path, package: str, prefix: str) -> None:
    status = (tree / "var/lib/dpkg/status").read_text(errors="replace")
    version = installed_version(status, package)
    if not version.startswith(prefix):
        raise Terminal(
            f"the Debian mirror has {package} {version or '(none)'}, but this recipe is for {prefix}*",
            remedy="Debian's testing release has moved on: update Isthmus, or use a mirror of an earlier day",
        )


def installed_version(status: str, package: str) -> str:
    """Look up a package's version in dpkg's status file; empty if it is not there."""
    for stanza in status.split("\n\n"):
        if f"\n{stanza}".find(f"\nPackage: {package}\n") >= 0:
            return next((line[9:] for line in stanza.splitlines() if line.startswith("Version: ")), "")
    return ""


def _tidy(tree: Path, layer: Layer) -> None:
    """Remove what would make two builds differ, and what must not be in an image."""
    for pattern in (*_SCRAPS, *layer.remove):
        for path in tree.glob(pattern):
            _remove_any(path)


def _remove_any(path: Path) -> None:
    remover: Callable[[Path], None] = shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink
    remover(path)
