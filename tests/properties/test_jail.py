"""The shared root after filling and refreshing it, for any images, and whatever users do in between."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from isthmus.sharedroot import inspection, operations
from isthmus.sharedroot.statedirectory import Ready
from tests.bed.trees import FIT, Dir, Fifo, File, Hard, Link, Node, fast, links, make, seen

names = st.sampled_from(["a", "b", "c", "d\udcff", "e\\x41"])
files = st.builds(
    File,
    content=st.sampled_from([b"", b"one", b"two", b"\0" * 9000 + b"end"]),
    mode=st.sampled_from([0o644, 0o755, 0o4755]),
    owner=st.sampled_from([0, 1000]),
    xattrs=st.sampled_from([{}, {"user.note": b"\0x"}]),
)
leaves: st.SearchStrategy[Node] = st.one_of(
    files, files, st.builds(Link, st.sampled_from(["a", "../b", "/etc", "nowhere"])), st.builds(Fifo)
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Node]:
    """A fit image with anything below /any."""
    tree: dict[str, Node] = {**FIT, "any": Dir()}

    def fill(parent: str, depth: int) -> None:
        inside: list[str] = draw(st.lists(names, max_size=3, unique=True))
        for name in inside:
            path = f"{parent}/{name}"
            deeper: bool = draw(st.booleans())
            if depth and deeper:
                tree[path] = Dir(draw(st.sampled_from([0o755, 0o700, 0o2775])), draw(st.sampled_from([0, 1000])))
                fill(path, depth - 1)
            else:
                tree[path] = draw(leaves)

    fill("any", 2)
    plain = sorted(path for path, node in tree.items() if isinstance(node, File) and path.startswith("any/"))
    doubled: bool = draw(st.booleans())
    if plain and doubled:
        # Sorted behind every other name, so that this is not the first of the two.
        tree["any/~"] = Hard(draw(st.sampled_from(plain)))
    return tree


@contextmanager
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir=fast(), prefix="isthmus-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def populate(image: Path, root: Path) -> operations.Done | Ready:
    return operations.populate(str(image), str(root), image=image.name, now="today", tell=lambda _: None)


def refresh(image: Path, root: Path) -> operations.Done:
    return operations.refresh(str(image), str(root), image=image.name, now="today", tell=lambda _: None)


@given(tree=trees())
def test_a_filled_root_is_the_image(tree: dict[str, Node]) -> None:
    with place() as here:
        image, root = make(here / "image", tree), make(here / "root", {})
        populate(image, root)
        assert seen(root) == seen(image)
        assert links(root) == links(image)
        assert inspection.verify(str(root), told=lambda *_: None).differing == {}
        done = refresh(image, root)
        assert (done.files, done.kept) == (0, {})
        assert seen(root) == seen(image)


@given(old=trees(), new=trees())
def test_a_refreshed_root_is_the_new_image(old: dict[str, Node], new: dict[str, Node]) -> None:
    with place() as here:
        first, second = make(here / "old", old), make(here / "new", new)
        root = make(here / "root", {})
        populate(first, root)
        done = refresh(second, root)
        assert done.kept == {}
        assert without_times(root) == without_times(second)
        assert links(root) == links(second)
        assert operations.plan(str(second), str(root)).counts.written == 0


@st.composite
def edits(draw: st.DrawFn) -> dict[str, bytes | None]:
    """What users do below /any: they write files, also where there was nothing, and remove some."""
    paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(("any", *parts)))
    return draw(st.dictionaries(paths, st.sampled_from([b"his", b"hers", None]), max_size=4))


@given(old=trees(), new=trees(), before=edits(), after=edits())
def test_what_users_wrote_stays_and_all_else_is_the_new_image(
    old: dict[str, Node], new: dict[str, Node], before: dict[str, bytes | None], after: dict[str, bytes | None]
) -> None:
    with place() as here:
        first, second = make(here / "old", old), make(here / "new", new)
        root = make(here / "root", {})
        touched = apply(root, before)
        populate(first, root)
        touched |= apply(root, after)
        refresh(second, root)
        for path, content in touched.items():
            if content is not None:
                assert (root / path).read_bytes() == content
            elif path in old and not any(other.startswith(f"{path}/") for other in touched):
                assert not os.path.lexists(root / path)
        now, wanted, once = without_times(root), without_times(second), without_times(first)
        for path in {*now, *wanted, *once} - set(touched):
            if not any(_related(path, other) for other in touched):
                assert now.get(path) == wanted.get(path), path


def apply(root: Path, edits: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Do what users do, where they can; gives what they did."""
    done: dict[str, bytes | None] = {}
    for path, content in edits.items():
        place = root / path
        if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in place.parents):
            continue
        if place.is_symlink() or place.is_dir() or place.is_fifo():
            continue
        if content is None:
            if not place.exists():
                continue
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists() and place.stat().st_nlink > 1:
                continue
            place.write_bytes(content)
        done[path] = content
    return done


def _related(path: str, touched: str) -> bool:
    """Whether a path is above or below one that users touched, or lies beside it."""
    path = path.removesuffix(".isthmus-new")
    above, below = f"{touched}/".startswith(f"{path}/"), f"{path}/".startswith(f"{touched}/")
    return above or below


def without_times(top: Path) -> dict[str, object]:
    """Leave out the times of directories: what users and removals do there changes them."""
    return {path: it[:4] if it[0] == 0o040000 else it for path, it in seen(top).items()}
