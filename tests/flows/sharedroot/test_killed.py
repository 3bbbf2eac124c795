"""Refreshing a shared root that is killed at any moment: a run that died makes no difference to the next one.

A root is filled, and users change this and that. From there on, a refresh that follows killed ones must lead to the
same as one that follows none. `make test` tries some moments, `make soak` all of them. A seed that failed is run
again by its number:

    ISTHMUS_SEEDS=17, .venv/bin/pytest tests/flows/sharedroot/test_killed.py
"""

import itertools
import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from isthmus.sharedroot import inspection, operations
from tests.bed.killing import Killer
from tests.bed.seeds import seeds
from tests.bed.trees import FIT, Dir, Fifo, File, Hard, Link, Node, fast, links, make, seen

EVERY = 12
"""So many seeds try every change."""

About = dict[str, dict[str, object]]


def an_image(version: int) -> dict[str, Node]:
    """One of three images that differ in every way in which images can, and in no file's size or time."""
    file = File(b"%d" % version)
    nothing: Mapping[str, Node] = {}
    plain: Mapping[str, Node] = {"": file}
    link: Mapping[str, Node] = {"": Link(f"to-{version}")}
    tree: Mapping[str, Node] = {"": Dir(), "/inside": file, "/deeper": Dir(), "/deeper/inside": file}
    kinds = {
        "content": (plain, plain, plain),
        "link": (link, link, link),
        "in-0": (plain, nothing, nothing),
        "in-1": (nothing, plain, nothing),
        "in-0-and-1": (plain, plain, nothing),
        "in-0-and-2": (plain, nothing, plain),
        "in-1-and-2": (nothing, plain, plain),
        "tree-in-0": (tree, nothing, nothing),
        "tree-in-1": (nothing, tree, nothing),
        "tree-in-0-and-2": (tree, nothing, tree),
        "file-tree-file": (plain, tree, plain),
        "tree-file-tree": (tree, plain, tree),
        "tree-link-file": (tree, link, plain),
        "link-file-tree": (link, plain, tree),
    }
    mode, owner = (0o644, 0o755, 0o600)[version], (0, 1000, 1001)[version]
    return {
        **FIT,
        "opt": Dir(),
        **{f"opt/{name}{below}": node for name, it in kinds.items() for below, node in it[version].items()},
        "opt/mode": File(b"same", mode),
        "opt/mode-and-back": File(b"same", (0o644, 0o755, 0o644)[version]),
        "opt/owner": File(b"same", 0o4755, owner),
        "opt/directory": Dir((0o755, 0o700, 0o2775)[version], owner),
        "opt/fifo": Fifo(mode),
        "opt/attributes": File(b"same", xattrs={"user.one": b"%d" % version, f"user.two-{version}": b""}),
        "opt/content-and-attributes": File(b"%d" % version, mode, owner, xattrs={"user.one": b"%d" % version}),
        "opt/names": Dir(),
        "opt/names/first": file,
        "opt/names/second": Hard("opt/names/first"),
        **({"opt/names/more": File(b"same")} if version else {}),
        "opt/names/third": Hard("opt/names/more") if version else File(b"same"),
        "opt/users": Dir(),
        **{f"opt/users/{name}": file for name in ("edits", "removes", "closes")},
        "opt/users/edits-too": File(b"same"),
        "opt/users/closes-too": File(b"same", mode),
    }


def edit(root: Path) -> None:
    """Do what users do: in one directory, so that the times of all others can be compared."""
    place = root / "opt/users"
    (place / "edits").write_bytes(b"!")
    (place / "edits-too").write_bytes(b"mine")
    (place / "removes").unlink()
    (place / "closes").chmod(0o640)
    (place / "closes-too").chmod(0o640)
    (place / "own").write_bytes(b"mine")


class Ground:
    """Three images, and a root that was filled from the first and then used."""

    def __init__(self, top: Path, killer: Killer) -> None:
        self._top = top
        self._killer = killer
        self._images = [make(top / str(it), an_image(it)) for it in range(3)]
        self._root = top / "root"
        self._roots: dict[tuple[int, ...], Path] = {(): make(top / "filled", {})}
        operations.populate(str(self._images[0]), str(self._roots[()]), image="", now="today", tell=lambda _: None)
        edit(self._roots[()])
        self.begin()

    def begin(self) -> None:
        """Begin again, with the root as users left it."""
        shutil.rmtree(self._root, ignore_errors=True)
        _copy(self._roots[()], self._root)
        self._finished: tuple[int, ...] = ()
        self._history: list[str] = []

    def kill(self, version: int, *, until: int) -> bool:
        """Refresh the root until some change; False if it came to its end before."""
        self._history.append(f"a refresh to image {version}, killed at change {until}")
        manifest = self._root / ".isthmus/manifest"
        before = manifest.stat().st_ino
        with manifest.open():  # so that the number is not given to another file
            killed = self._killer.run("refresh", self._root, self._images[version], until=until)
            if manifest.stat().st_ino != before:
                self._finished = (*self._finished, version)  # killed after that, it has nothing left to do
        return killed

    def check(self, version: int) -> None:
        """Refresh the root for good, and hold it against one that knows only of the runs that finished."""
        self._refresh(self._root, version)
        found, wanted = about(self._root), about(self._never_killed((*self._finished, version)))
        for name, it in wanted.items():
            differing = {path for path in {*it, *found[name]} if it.get(path) != found[name].get(path)}
            assert not differing, f"{name} after {self._history}: {sorted(differing)}"

    def _never_killed(self, versions: tuple[int, ...]) -> Path:
        if versions not in self._roots:
            root = self._top / "-".join(("never-killed", *map(str, versions)))
            _copy(self._never_killed(versions[:-1]), root)
            self._refresh(root, versions[-1])
            self._roots[versions] = root
        return self._roots[versions]

    def _refresh(self, root: Path, version: int) -> None:
        operations.refresh(str(self._images[version]), str(root), image="", now="today", tell=lambda _: None)


def about(root: Path) -> About:
    """All there is to say about a root, by path, except for the time of the directory in which users work."""
    files = seen(root)
    files["opt/users"] = files["opt/users"][:4]
    manifest = (root / ".isthmus/manifest").read_bytes().splitlines()
    return {
        "files": files,
        "names": {path: group for group in links(root) for path in group},
        "verified": dict(inspection.verify(str(root), told=lambda *_: None).differing),
        "manifest": {json.loads(line)["path"]: line for line in manifest},
        "state": dict.fromkeys((it.name for it in (root / ".isthmus").iterdir()), "there"),
    }


def _copy(root: Path, place: Path) -> None:
    subprocess.run(["cp", "--archive", root, place], check=True)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(dir=fast(), prefix="isthmus-") as top, Killer() as killer:
        yield Ground(Path(top), killer)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("first", sorted({1 + seed % EVERY for seed in seeds()}))
def test_a_refresh_that_was_killed_at_any_change_makes_no_difference(
    ground: Ground, first: int, version: int
) -> None:
    """On the way to the second image; the next run is for the one before, the same, or another."""
    for until in itertools.count(first, EVERY):
        ground.begin()
        killed = ground.kill(1, until=until)
        ground.check(version)
        if not killed:
            break
    assert until > 150, "it had not as much to do as it should have"


@pytest.mark.parametrize("seed", seeds())
def test_refreshes_that_were_killed_one_after_another_make_no_difference(ground: Ground, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - to be repeated
    ground.begin()
    for _ in range(choose.randint(2, 5)):
        ground.kill(choose.randrange(3), until=choose.randrange(1, 190))
    ground.check(choose.randrange(3))
