"""Fills a root from an image, refreshes it to another one, or says what that would do."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from isthmus.domain.sharedroot import fitness, plans, space
from isthmus.domain.sharedroot.decision import IN_THE_WAY, NOT_OURS
from isthmus.domain.sharedroot.entry import Entry, shown, to_line
from isthmus.domain.sharedroot.known import Knowledge
from isthmus.domain.sharedroot.plans import Plan, Summary
from isthmus.domain.sharedroot.space import readable
from isthmus.errors import Retry, Terminal
from isthmus.sharedroot import lock, rename
from isthmus.sharedroot.copier import Copier
from isthmus.sharedroot.executor import Filler
from isthmus.sharedroot.gatherer import Gathered, Reader, gather, image_of
from isthmus.sharedroot.statedirectory import JOURNAL, MANIFEST, READY, Ready, StateDirectory
from isthmus.sharedroot.tree import OWN, Tree

# More than cores: most of the time each of them waits for a disk or for a server.
THREADS: Final = 4
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_ALLOWED: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class Done(msgspec.Struct, frozen=True):
    ready: Ready
    summary: Summary
    files: int = 0
    size: int = 0
    kept: dict[str, str] = {}
    """What is not as the image has it, and why."""
    there_before: tuple[str, ...] = ()
    """What was in the root and is in no image."""
    bare: tuple[str, ...] = ()
    """Paths whose capabilities or access lists the root's file system does not keep."""


class Progress(msgspec.Struct, frozen=True):
    files: int
    size: int
    all_files: int
    all_size: int


OnProgress = Callable[[Progress], None]


def populate(source: str, root: str, *, image: str, now: str, tell: OnProgress) -> Done | Ready:
    """Fill a root that is not filled; what `ready` says if it is."""
    with _Run(source, root) as run:
        if ready := run.ready():
            return ready
        return run.fill(doing="isthmus jail populate", image=image, now=now, tell=tell)


def refresh(
    source: str, root: str, *, image: str, now: str, tell: OnProgress, restored: frozenset[str] = frozenset()
) -> Done:
    """Update a filled root to another image; `restored` paths are taken from the image in any case."""
    with _Run(source, root) as run:
        if run.ready() is None:
            raise Terminal(f"{root} is not filled, or only in part", remedy="fill it: isthmus jail populate")
        return run.fill(doing="isthmus jail refresh", image=image, now=now, tell=tell, restored=restored)


def plan(source: str, root: str) -> Summary:
    """What a refresh, or a first filling, would do."""
    with _Run(source, root) as run:
        return plans.summary(run.look().plan)


class _Run:
    """An image and a root, opened."""

    def __init__(self, source: str, root: str) -> None:
        self._names = source, root
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._lost: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        source, root = self._names
        with ExitStack() as stack:
            stack.enter_context(explained(root))
            self._root = opened(root, "the root", stack)
            self._source = opened(source, "the image", stack)
            self._threads = stack.enter_context(ThreadPoolExecutor(THREADS))
            stack.callback(self._threads.shutdown, cancel_futures=True)
            stack.callback(self._ended.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self._stack.__exit__(*error)  # type: ignore[arg-type]

    def ready(self) -> Ready | None:
        """Read what the root says about itself."""
        try:
            with StateDirectory.found(self._root.top) as own:
                return own.ready()
        except FileNotFoundError:
            return None

    def look(self) -> Gathered:
        """Make a plan without touching anything."""
        try:
            with StateDirectory.found(self._root.top) as own:
                knowledge = own.knowledge()
        except FileNotFoundError:
            knowledge = Knowledge()
        return self._gather(knowledge, self._fit_image())

    def fill(
        self, *, doing: str, image: str, now: str, tell: OnProgress, restored: frozenset[str] = frozenset()
    ) -> Done:
        """Make a plan and carry it out, alone."""
        entries = self._fit_image()
        os.fchown(self._root.top, os.geteuid(), os.getegid())
        os.fchmod(self._root.top, 0o755)
        with (
            StateDirectory.made(self._root.top) as own,
            lock.held(own.descriptor, doing=doing, since=now) as self._lost,
        ):
            before = own.ready()
            if before is not None and doing.endswith("populate"):
                return Done(before, plans.summary(Plan(())))  # another run did it while we waited for the lock
            own.mend_journal()
            gathered = self._gather(own.knowledge(), entries, restored)
            self._check_essentials(gathered.plan)
            self._check_room(gathered.plan)
            before_us = self._there_before(gathered)
            with own.staging() as staging:
                copier = Copier(self._source, self._root, own, staging=staging, check=self._check)
                filler = Filler(gathered, self._source, self._root, own, copier=copier, staging=staging)
                total = _total(gathered.plan)
                filler.fill(self._threads, lambda: tell(Progress(copier.tally.files, copier.tally.size, *total)))
            manifest = plans.manifest(gathered.image, gathered.plan, gathered.knowledge)
            ready = self._finish(own, manifest, image=image, now=now)
            summary = plans.summary(gathered.plan)
            found = {**filler.kept, **dict.fromkeys(copier.tally.taken, "changed during the run")}
            return Done(
                ready,
                summary,
                files=copier.tally.files,
                size=copier.tally.size,
                kept={**summary.kept, **{shown(path): why for path, why in found.items()}},
                there_before=before_us,
                bare=tuple(sorted(map(shown, set(copier.tally.bare)))),
            )

    def _gather(
        self, knowledge: Knowledge, image: dict[str, Entry], restored: frozenset[str] = frozenset()
    ) -> Gathered:
        reader = Reader(self._threads, check=self._check)
        return gather(self._source, self._root, knowledge, image=image, reader=reader, restored=restored)

    def _fit_image(self) -> dict[str, Entry]:
        image = image_of(self._source)
        if self._source.is_gone():
            # What it seems to lack now must not be taken for removed.
            raise _went_away(self._source.path)
        if complaint := fitness.unfit(image.keys()):
            what, remedy = complaint
            raise Terminal(f"the image at {self._source.path} cannot be a shared root: {what}", remedy=remedy)
        return image

    def _check(self) -> None:
        """Raise if there is no sense in going on; called between pieces of work, from every thread."""
        if self._ended.is_set():
            raise Retry("the run was interrupted", remedy="start again: it continues where it stopped")
        self._lost()

    def _check_essentials(self, made: Plan) -> None:
        for step in made.steps:
            if step.why == IN_THE_WAY and fitness.essential(step.path):
                raise Terminal(
                    f"{self._root.path}/{step.path} is not a directory, and not written by Isthmus: nothing can "
                    "be written there",
                    remedy="check what it is, and move it away",
                )
            if step.why == NOT_OURS and step.path == fitness.RELEASE:
                # Two of them in each other's directories would be none.
                raise Terminal(
                    f"{self._root.path} already contains another Linux: its /{step.path} is not from the image",
                    remedy="use an empty volume, and mount the old one's /home into it (jailSubMounts)",
                )

    def _check_room(self, made: Plan) -> None:
        needed, there = space.need(made), os.fstatvfs(self._root.top)
        free = there.f_bavail * there.f_frsize
        if needed.size > free:
            raise Terminal(
                f"{self._root.path} is too small: {readable(needed.size)} needed, {readable(free)} free",
                remedy="enlarge the volume or free space on it, and start again",
            )
        # Some file systems make inodes as they need them, and say 0.
        if there.f_files and needed.files > there.f_favail:
            raise Terminal(
                f"{self._root.path} has too few inodes: {needed.files} needed, {there.f_favail} free",
                remedy="use a file system with more inodes, or remove files from it, and start again",
            )

    def _there_before(self, gathered: Gathered) -> tuple[str, ...]:
        ours = {*gathered.image, *gathered.knowledge, OWN}
        fresh = not gathered.knowledge.has_manifest
        there = os.listdir(self._root.top)  # noqa: PTH208 - paths know no open directories
        return tuple(sorted(map(shown, set(there) - ours))) if fresh else ()

    def _finish(self, own: StateDirectory, manifest: list[Entry], *, image: str, now: str) -> Ready:
        """Say that it is done, in an order in which every half of it is true."""
        text = b"".join(map(to_line, manifest))
        self._check()
        rename.sync(self._root.top)
        own.write(MANIFEST, text)
        ready = Ready(image or self._source.path, now, len(manifest), hashlib.sha256(text).hexdigest())
        own.forget(JOURNAL)
        own.write(READY, msgspec.json.encode(ready) + b"\n")
        return ready


def _total(made: Plan) -> tuple[int, int]:
    files = [step.goal for step in made.of("place", "replace") if step.goal and step.goal.kind == "file"]
    copied = [it for it in files if not it.leader]
    return len(copied), sum(it.size for it in copied)


def opened(path: str, what: str, stack: ExitStack) -> Tree:
    """Open a tree for as long as the stack lasts."""
    try:
        tree = Tree(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if Path(path).is_symlink():
            raise _went_away(path) from error
        raise Terminal(f"{what} is missing: {path} is not a directory", remedy="mount it there") from error
    stack.callback(tree.close)
    return tree


def _went_away(path: str) -> Retry:
    return Retry(f"the image at {path} disappeared: its container has ended", remedy="start again when it runs")


@contextmanager
def explained(root: str) -> Iterator[None]:
    """What an error of the operating system means for the root."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            there = os.statvfs(root)
            raise Terminal(
                f"{root} is full: only {readable(there.f_bavail * there.f_frsize)} free",
                remedy="enlarge the volume or free space on it, and start again: it continues from here",
            ) from error
        if error.errno in _NOT_ALLOWED:
            raise Terminal(f"{root}: {error}", remedy="it must be writable by root") from error
        raise Retry(f"{root}: {error}", remedy="start again: it continues where it stopped") from error
