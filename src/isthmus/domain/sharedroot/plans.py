"""What is done with all paths, in an order in which it can be done, and how much of what kind."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.sharedroot.decision import BESIDE, Step, decide, restore
from isthmus.domain.sharedroot.entry import Entry, shown
from isthmus.domain.sharedroot.known import Knowledge

_AS_THE_IMAGE_HAS_IT: Final = frozenset({"place", "replace", "attributes", "leave"})


class Plan(msgspec.Struct, frozen=True):
    """Every step, directories before what is in them."""

    steps: tuple[Step, ...]
    unplaced: frozenset[str] = frozenset()
    """What the image has below something that is not a directory in the root, and cannot be placed."""

    def of(self, *actions: str) -> Iterator[Step]:
        return (step for step in self.steps if step.action in actions)


def paths_of(image: Mapping[str, Entry], knowledge: Knowledge) -> list[str]:
    """List every path that something is to be decided about, directories before what is in them."""
    return sorted({*image, *knowledge})


def is_below(path: str, tops: Collection[str]) -> bool:
    while path:
        if path in tops:
            return True
        path = path.rpartition("/")[0]
    return False


def plan(
    image: Mapping[str, Entry],
    root: Mapping[str, Entry],
    knowledge: Knowledge,
    *,
    restored: Collection[str] = (),
) -> Plan:
    """Decide about everything. Files that matter must have been read; linear in the number of paths.

    What is `restored` comes back as the image has it, whatever users did there.
    """
    steps: list[Step] = []
    closed: set[str] = set()
    unplaced: set[str] = set()
    for path in paths_of(image, knowledge):
        if _is_beside(path, image, knowledge):
            continue  # decided together with the file that it lies beside
        entry, parent = image.get(path), path.rpartition("/")[0]
        if parent in closed:
            if entry is not None:
                closed.add(path)
                unplaced.add(path)
            continue
        if entry is not None and restored and is_below(path, restored):
            step = restore(entry, root.get(path))
        else:
            step = decide(entry, root.get(path), knowledge[path])
        steps.append(step)
        if entry is not None and entry.kind == "directory" and step.action == "leave" and _is_no_directory(step):
            closed.add(path)
    steps = list(_linked_again(steps, image, knowledge))
    steps += _beside(steps, image, root, knowledge)
    return Plan(tuple(steps), frozenset(unplaced))


def _linked_again(steps: list[Step], image: Mapping[str, Entry], knowledge: Knowledge) -> Iterator[Step]:
    """Where a file is placed again, let its other names follow, though their content is right already.

    So where a run was killed that placed it: it may not have come to the other names.
    """
    placed = {step.path for step in steps if step.action in {"place", "replace"}}
    for step in steps:
        entry = image.get(step.path)
        right = step.action in {"leave", "attributes"} and step.root is not None and not step.why
        anew = entry is not None and (entry.leader in placed or (entry.leader and knowledge[entry.leader].begun))
        if entry is not None and anew and right and entry.same_content(step.root):
            yield Step(step.path, "replace", goal=entry, root=step.root)
        else:
            yield step


def _is_no_directory(step: Step) -> bool:
    return step.root is None or step.root.kind != "directory"


def _is_beside(path: str, image: Mapping[str, Entry], knowledge: Knowledge) -> bool:
    original = path.removesuffix(BESIDE)
    return original != path and path not in image and (original in image or knowledge[original].listed is not None)


def _beside(
    steps: Iterable[Step], image: Mapping[str, Entry], root: Mapping[str, Entry], knowledge: Knowledge
) -> Iterator[Step]:
    """Decide about the image's versions that lie beside users' files: new ones, and those of earlier runs."""
    for step in steps:
        path = step.path + BESIDE
        known = knowledge[path]
        if step.action == "beside" and step.goal is not None:
            goal = msgspec.structs.replace(step.goal, path=path, leader="")
            if path in root or not goal.same_content(known.listed):
                # A user who has dealt with an older version, and removed it, is shown the newer one.
                found = root.get(path)
                decided = decide(goal, found, known) if found else Step(path, "place", goal=goal)
                yield msgspec.structs.replace(decided, origin=step.path)
        elif known.written:
            original = image.get(step.path)
            if known.listed is None or original is None or not _is_unresolved(step, original, knowledge):
                yield decide(None, root.get(path), known)
            elif known.begun or known.removed:
                # A run that was killed, on its way to another image, may have exchanged it.
                goal = msgspec.structs.replace(original, path=path, leader="")
                yield msgspec.structs.replace(decide(goal, root.get(path), known), origin=step.path)


def _is_unresolved(step: Step, image: Entry, knowledge: Knowledge) -> bool:
    """Whether the image's version that lies beside a user's file is still the one to be shown."""
    return step.action == "leave" and image.same_content(knowledge[step.path].listed)


class Counts(msgspec.Struct, frozen=True):
    """How many paths of each kind a plan has, and the bytes that would be written."""

    new: int
    changed: int
    removed: int
    kept: int
    unchanged: int
    written: int


class Summary(msgspec.Struct, frozen=True):
    """A plan, for people and for programs: paths by what happens to them."""

    counts: Counts
    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: Mapping[str, str]
    """Paths that differ from the image's and stay, each with the reason."""


def summary(made: Plan) -> Summary:
    new = tuple(shown(step.path) for step in made.of("place"))
    changed = tuple(shown(step.path) for step in made.of("replace", "merge", "attributes"))
    removed = tuple(shown(step.path) for step in made.of("remove"))
    kept = {shown(step.path): step.why for step in made.steps if step.why}
    written = sum(step.goal.size for step in made.of("place", "replace") if step.goal and not step.goal.leader)
    unchanged = len(made.steps) - len(new) - len(changed) - len(removed) - len(kept)
    counts = Counts(len(new), len(changed), len(removed), len(kept), unchanged, written)
    return Summary(counts, new, changed, removed, kept)


def manifest(image: Mapping[str, Entry], made: Plan, knowledge: Knowledge) -> list[Entry]:
    """List what the root holds of the image once a plan is carried out: the manifest to write."""
    decided = {step.path: step for step in made.steps}
    entries = [entry for path, entry in image.items() if path not in made.unplaced]
    for path, step in decided.items():
        if path not in image and step.action in _AS_THE_IMAGE_HAS_IT and step.goal is not None:
            entries.append(step.noted(step.goal))
    for path in knowledge:
        listed = knowledge[path].listed
        if listed is not None and path not in image and path not in decided:
            entries.append(listed)  # beside a file that the image has not changed since
    return sorted(entries, key=lambda it: it.path)
