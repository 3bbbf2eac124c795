"""Makes the root what a plan says, so that it can be ended at any moment and started again.

    note down ─ directories ─ files, in batches ─ names ─ owners and modes ─ removals ─ manifest
                                                  │
                                                  hard and symbolic links, fifos, accounts

What is new comes first and what is gone goes last, so that at every moment in between the programs in the root find
their files: the old ones, or the new ones.
"""

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import suppress
from typing import Final

import msgspec

from isthmus.domain.sharedroot import accounts
from isthmus.domain.sharedroot.decision import Step
from isthmus.domain.sharedroot.entry import Entry
from isthmus.sharedroot.copier import Copier, Staged, batches
from isthmus.sharedroot.gatherer import Gathered
from isthmus.sharedroot.statedirectory import StateDirectory
from isthmus.sharedroot.tree import DIRECTORY, Tree, unchanged, xattrs_of

_TELL_EVERY: Final = 2.0
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV})
_STAYS: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOENT})


class Filler:
    """Carries out one plan."""

    def __init__(
        self, gathered: Gathered, source: Tree, root: Tree, own: StateDirectory, *, copier: Copier, staging: int
    ) -> None:
        self._image = gathered.image
        self._plan = gathered.plan
        self._fresh = not gathered.knowledge.has_manifest
        self._begun = gathered.knowledge.touched
        self._steps = {step.path: step for step in gathered.plan.steps}
        self._source = source
        self._root = root
        self._own = own
        self._copier = copier
        self._staging = staging
        self.kept: dict[str, str] = {}
        """What could not be done after all, because of what users did, and why."""

    def fill(self, threads: Executor, tell: Callable[[], None]) -> None:
        due = [step for step in self._plan.of("place", "replace") if step.goal is not None]
        last = {step.path for step in due if _takes_a_directorys_place(step)}
        late = [step for step in due if step.path in last or _leader(step) in last]
        now = [step for step in due if step.path not in last and _leader(step) not in last]
        files = [step for step in now if _kind(step) == "file" and not _leader(step)]
        others = [step for step in now if _kind(step) not in {"file", "directory"} or _leader(step)]
        directories = [step for step in now if _kind(step) == "directory"]
        self._own.begin(self._goal(step) for step in directories)
        self._begin_removal(step for step in directories if step.root is not None)
        for step in directories:
            self._make_directory(step)
        self._carry_all(files, threads, tell)
        self._place_others(others)
        self._merge_accounts()
        self._own.begin(step.noted(self._goal(step)) for step in self._plan.of("attributes"))
        for step in self._plan.of("attributes"):
            self._set_attributes(step)
        self._begin_removal((*self._plan.of("remove"), *filter(_takes_a_directorys_place, late)))
        self._remove()
        self._place_late(late)
        self._set_times()

    def _goal(self, step: Step) -> Entry:
        assert step.goal is not None  # noqa: S101 - only steps that have one get here
        return step.goal

    def _begin_removal(self, steps: Iterable[Step]) -> None:
        """Record what is about to be removed, so that the next run does not take it for removed by a user."""
        self._own.begin(Entry(step.path, "absent") for step in steps)

    def _carry_all(self, files: Iterable[Step], threads: Executor, tell: Callable[[], None]) -> None:
        waiting: set[Future[list[Entry]]] = {threads.submit(self._copier.carry, batch) for batch in batches(files)}
        while waiting:
            done, waiting = wait(waiting, timeout=_TELL_EVERY, return_when=FIRST_EXCEPTION)
            tell()
            for future in done:
                self._learn(future.result())

    def _learn(self, entries: Iterable[Entry]) -> None:
        """Remember what was read while it was copied, unless it was before: that has what users gave it, too."""
        for entry in entries:
            origin = self._steps[entry.path].origin or entry.path
            if self._image[origin].digest:
                continue
            self._image[origin] = msgspec.structs.replace(
                self._image[origin], digest=entry.digest, size=entry.size, xattrs=entry.xattrs
            )

    def _make_directory(self, step: Step) -> None:
        goal, name = self._goal(step), self._copier.name()
        with self._root.directory(goal.parent) as directory:
            if step.root is not None:
                os.unlink(goal.name, dir_fd=directory)
                step = msgspec.structs.replace(step, root=None)
            os.mkdir(name, 0o700, dir_fd=self._staging)
            made = os.open(name, DIRECTORY, dir_fd=self._staging)
            try:
                self._copier.dress(made, goal)
            finally:
                os.close(made)
            self._copier.put(name, step, directory)

    def _place_others(self, steps: list[Step]) -> None:
        """Place what takes no room: further names of files, symbolic links, fifos."""
        self._own.begin(self._known(step) for step in steps)
        apart: list[Step] = []
        for step in steps:
            goal, name = self._goal(step), self._copier.name()
            if goal.kind == "file" and not self._link(goal, name):
                apart.append(step)
                continue
            if goal.kind == "symlink":
                os.symlink(goal.target, name, dir_fd=self._staging)
            elif goal.kind == "fifo":
                os.mkfifo(name, 0o600, dir_fd=self._staging)
            if goal.kind != "file":
                self._dress_name(name, goal)
            with self._root.directory(goal.parent) as directory:
                self._copier.put(name, step, directory)
            if goal.kind == "file":
                self._learn([self._known(step)])
        if apart:
            self._learn(self._copier.carry(apart))

    def _known(self, step: Step) -> Entry:
        """Give a goal with what is known of the file whose name it is."""
        goal = self._goal(step)
        leader = self._image.get(goal.leader)
        if leader is None or goal.digest:
            return goal
        return msgspec.structs.replace(goal, digest=leader.digest, size=leader.size, xattrs=leader.xattrs)

    def _dress_name(self, name: str, goal: Entry) -> None:
        os.chown(name, goal.uid, goal.gid, dir_fd=self._staging, follow_symlinks=False)
        if goal.kind == "fifo":
            os.chmod(name, goal.mode, dir_fd=self._staging)
        os.utime(name, ns=(goal.mtime, goal.mtime), dir_fd=self._staging, follow_symlinks=False)

    def _link(self, goal: Entry, name: str) -> bool:
        """Give the image's file another name, if the root has that file as the image has it."""
        leader = self._image[goal.leader]
        step = self._steps.get(goal.leader)
        if step is None or step.action == "beside" or not leader.digest:
            return False
        try:
            with self._root.directory(leader.parent) as directory:
                if not unchanged(leader, directory):
                    return False
                os.link(leader.name, name, src_dir_fd=directory, dst_dir_fd=self._staging, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINKS | {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                return False
            raise
        return True

    def _merge_accounts(self) -> None:
        staged: list[Staged] = []
        for step in self._plan.of("merge"):
            before = self._root.content(step.path)
            after, refused = accounts.merged(step.path, before, self._source.content(step.path))
            if refused:
                self.kept[step.path] = f"the IDs of {', '.join(refused)} are already in use"
            if after != before:
                staged.append(self._copier.stage_content(step, self._goal(step), after))
        if staged:
            self._copier.finish(staged)

    def _set_attributes(self, step: Step) -> None:
        goal = self._goal(step)
        with self._root.directory(goal.parent) as directory:
            if goal.kind == "fifo":
                os.chown(goal.name, goal.uid, goal.gid, dir_fd=directory, follow_symlinks=False)
                os.chmod(goal.name, goal.mode, dir_fd=directory)
                return
            flags = DIRECTORY if goal.kind == "directory" else os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(goal.name, flags, dir_fd=directory)
        try:
            for name in xattrs_of(descriptor).keys() - goal.xattrs:
                os.removexattr(descriptor, name)
            self._copier.dress(descriptor, goal)
        finally:
            os.close(descriptor)

    def _remove(self) -> None:
        """Remove what the image no longer has: files before the directories that they were in."""
        for step in sorted(self._plan.of("remove"), key=lambda it: it.path, reverse=True):
            self._remove_one(step)

    def _remove_one(self, step: Step) -> None:
        assert step.root is not None  # noqa: S101 - only what is there is removed
        try:
            with self._root.directory(step.root.parent) as directory:
                if step.root.kind == "directory":
                    os.rmdir(step.root.name, dir_fd=directory)
                elif unchanged(step.root, directory):
                    os.unlink(step.root.name, dir_fd=directory)
                else:
                    self.kept[step.path] = "changed during the run"
        except OSError as error:
            if error.errno not in _STAYS:
                raise
            if error.errno != errno.ENOENT:
                self.kept[step.path] = "not empty"

    def _place_late(self, steps: Iterable[Step]) -> None:
        """Place what takes the place of a directory, if nothing of users' is left in there."""
        free: list[Step] = []
        for step in steps:
            if _takes_a_directorys_place(step):
                self._remove_one(step)
                step = msgspec.structs.replace(step, root=None)  # noqa: PLW2901 - the same, with its place free
            if step.path not in self.kept:
                free.append(step)
        files = [step for step in free if _kind(step) == "file" and not _leader(step)]
        if files:
            self._learn(self._copier.carry(files))
        self._place_others([step for step in free if _kind(step) != "file" or _leader(step)])

    def _set_times(self) -> None:
        """Give directories the image's times: caches of fonts and the like are kept by these."""
        changed = {*self._begun, *(step.path for step in self._plan.of("place", "replace", "remove"))}
        touched = {path.rpartition("/")[0] for path in changed}
        for path, entry in self._image.items():
            if entry.kind == "directory" and (self._fresh or path in touched):
                with suppress(FileNotFoundError, NotADirectoryError), self._root.directory(path) as directory:
                    os.utime(directory, ns=(entry.mtime, entry.mtime))


def _kind(step: Step) -> str:
    return step.goal.kind if step.goal else ""


def _leader(step: Step) -> str:
    return step.goal.leader if step.goal else ""


def _takes_a_directorys_place(step: Step) -> bool:
    return step.root is not None and step.root.kind == "directory" and _kind(step) != "directory"
