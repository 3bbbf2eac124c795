"""Reads what a plan is made from: the image, the manifest, and the root where one of these has something.

What users have elsewhere is never looked at: a root with millions of files in its home directories costs nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor

import msgspec

from isthmus.domain.sharedroot import accounts, decision, plans
from isthmus.domain.sharedroot.decision import BESIDE
from isthmus.domain.sharedroot.entry import Entry
from isthmus.domain.sharedroot.known import Knowledge
from isthmus.domain.sharedroot.plans import Plan
from isthmus.sharedroot.tree import Tree


class Gathered(msgspec.Struct, frozen=True):
    """What there is, and what is to be done about it."""

    image: dict[str, Entry]
    root: dict[str, Entry]
    knowledge: Knowledge
    plan: Plan


class Reader:
    """Reads files of a tree, several at a time."""

    def __init__(self, threads: Executor, *, check: Callable[[], None]) -> None:
        self._threads = threads
        self._check = check

    def read(self, tree: Tree, into: dict[str, Entry], paths: Iterable[str]) -> None:
        """Replace entries by the same with digests."""
        wanted = [into[path] for path in paths]
        for entry in self._threads.map(lambda it: tree.read(it, check=self._check), wanted, chunksize=16):
            into[entry.path] = entry


def image_of(source: Tree) -> dict[str, Entry]:
    """Walk an image: what can be copied, by path."""
    return {entry.path: entry for entry in source.walk() if entry.kind != "other"}


def gather(
    source: Tree,
    root: Tree,
    knowledge: Knowledge,
    *,
    image: dict[str, Entry],
    reader: Reader,
    restored: Collection[str] = (),
) -> Gathered:
    """Read as much as the decisions need, and decide."""
    there = root.look(plans.paths_of(image, knowledge))
    _renumber(source, root, image, there)
    _read(source, root, knowledge, image, there, reader=reader)
    if restored:
        wanted = [path for path, it in there.items() if it.kind == "file" and plans.is_below(path, restored)]
        reader.read(root, there, wanted)
    plan = plans.plan(image, there, knowledge, restored=restored)
    laid = root.look(step.path + BESIDE for step in plan.of("beside"))
    if laid:
        there.update(laid)
        reader.read(root, there, (path for path, it in laid.items() if it.kind == "file"))
        plan = plans.plan(image, there, knowledge, restored=restored)
    return Gathered(image, there, knowledge, plan)


def _renumber(source: Tree, root: Tree, image: dict[str, Entry], there: Mapping[str, Entry]) -> None:
    """Let the image's files belong to the users and groups of the same names in the root."""
    maps = []
    for path in ("etc/passwd", "etc/group"):
        both = path in image and path in there and image[path].kind == there[path].kind == "file"
        maps.append(accounts.renumbered(root.content(path), source.content(path)) if both else {})
    users, groups = maps
    for path, it in image.items() if users or groups else ():
        if it.uid in users or it.gid in groups:
            owner = {"uid": users.get(it.uid, it.uid), "gid": groups.get(it.gid, it.gid)}
            image[path] = msgspec.structs.replace(it, **owner)


def _read(
    source: Tree,
    root: Tree,
    knowledge: Knowledge,
    image: dict[str, Entry],
    there: dict[str, Entry],
    *,
    reader: Reader,
) -> None:
    reader.read(
        source,
        image,
        [path for path, it in image.items() if decision.image_must_be_read(it, there.get(path), knowledge[path])],
    )
    reader.read(
        root,
        there,
        [
            path
            for path, it in there.items()
            if decision.root_must_be_read(image.get(path), it, knowledge[path]) or _has_attributes(path, it, image)
        ],
    )


def _has_attributes(path: str, root: Entry, image: Mapping[str, Entry]) -> bool:
    """Whether a directory is to be compared by attributes that only opening it shows."""
    return root.kind == "directory" and path in image and bool(image[path].xattrs)
