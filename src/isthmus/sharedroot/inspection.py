"""Inspects a root without changing it: its state, and how it differs from what we put there."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import msgspec

from isthmus.domain.sharedroot import fitness, verification
from isthmus.domain.sharedroot.entry import Entry, shown
from isthmus.domain.sharedroot.verification import Verdict
from isthmus.errors import Terminal
from isthmus.sharedroot import lock
from isthmus.sharedroot.operations import THREADS, explained, opened
from isthmus.sharedroot.statedirectory import JOURNAL, MANIFEST, Ready, StateDirectory
from isthmus.sharedroot.tree import Tree


class Status(msgspec.Struct, frozen=True):
    """How a root stands."""

    ready: Ready | None
    unfinished: bool
    """Whether a run was ended before it was done."""
    holder: str
    """Who works on it at this moment; empty if nobody does."""
    paths: int
    size: int
    """Of the image's files."""
    free: int


class Verified(msgspec.Struct, frozen=True):
    """How a root differs from what we put there: paths with their verdicts."""

    image: str
    counts: Mapping[str, int]
    differing: Mapping[str, Verdict]
    lacking: tuple[str, ...]
    """What no job can do without, and is not there."""

    @property
    def well(self) -> bool:
        """Whether nothing is broken; what users changed is their business."""
        return not self.lacking and "damaged" not in self.counts


def status(root: str) -> Status:
    with ExitStack() as stack:
        stack.enter_context(explained(root))
        tree = opened(root, "the root", stack)
        there = os.fstatvfs(tree.top)
        free = there.f_bavail * there.f_frsize
        try:
            own = stack.enter_context(StateDirectory.found(tree.top))
        except FileNotFoundError:
            return Status(None, unfinished=False, holder="", paths=0, size=0, free=free)
        holder = lock.holder(own.descriptor)
        entries = own.entries(MANIFEST)
        return Status(
            own.ready(),
            unfinished=bool(own.entries(JOURNAL)),
            holder=str(holder) if holder else "",
            paths=len(entries),
            size=sum(it.size for it in entries if not it.leader),
            free=free,
        )


def verify(root: str, *, told: Callable[[int, int], None]) -> Verified:
    """Read everything that was filled into a root; `told` is called with the number of checked paths and of all."""
    with ExitStack() as stack:
        stack.enter_context(explained(root))
        tree = opened(root, "the root", stack)
        try:
            own = stack.enter_context(StateDirectory.found(tree.top))
        except FileNotFoundError:
            own = None
        entries = own.entries(MANIFEST) if own else []
        if own is None or not entries:
            raise Terminal(f"{root} is not filled: it has no manifest", remedy="fill it: isthmus jail populate")
        ready = own.ready()
        there = tree.look(it.path for it in entries)
        threads = stack.enter_context(ThreadPoolExecutor(THREADS))
        verdicts: dict[str, Verdict] = {}
        for listed, verdict in zip(
            entries, threads.map(lambda it: _verdict(tree, it, there.get(it.path)), entries), strict=True
        ):
            verdicts[listed.path] = verdict
            told(len(verdicts), len(entries))
    gone = {"removed", "replaced", "damaged"}
    return Verified(
        image=ready.image if ready else "",
        counts=Counter(verdicts.values()),
        differing={shown(path): verdict for path, verdict in verdicts.items() if verdict != "as it was"},
        lacking=tuple(path for path, it in verdicts.items() if it in gone and fitness.essential(path)),
    )


def _verdict(tree: Tree, listed: Entry, root: Entry | None) -> Verdict:
    if root is not None and root.kind == listed.kind == "file":
        try:
            root = tree.read(root, check=lambda: None)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return "removed"
            if error.errno == errno.EIO:
                return "damaged"
            raise
    return verification.judge(listed, root)
