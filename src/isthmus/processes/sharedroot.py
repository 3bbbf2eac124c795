"""Runs the actions of `isthmus jail`, with progress for users and for Kubernetes."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from isthmus.domain.sharedroot.plans import Summary
from isthmus.domain.sharedroot.space import readable
from isthmus.errors import IsthmusError
from isthmus.sharedroot import inspection, operations
from isthmus.sharedroot.inspection import Status, Verified
from isthmus.sharedroot.operations import Done, Progress
from isthmus.sharedroot.statedirectory import Ready

# Kubernetes shows what is in there when a container has failed.
_TERMINATION_LOG: Final = Path("/dev/termination-log")
_FIRST: Final = 20
_TELL_EVERY: Final = 2.0


def populate(source: str, root: str, *, image: str, say: Callable[[str], None], clock: Callable[[], float]) -> None:
    """Fill a root, or say that it is filled."""
    begun = clock()
    done = operations.populate(source, root, image=image, now=_now(), tell=_telling(say, clock))
    tell_kubernetes(done if isinstance(done, Ready) else done.ready)
    if isinstance(done, Ready):
        for line in _already(done, image):
            say(line)
        return
    for line in _notes(done):
        say(line)
    say(f"{root} is filled: {_sum(done, clock() - begun)}")


def refresh(
    source: str,
    root: str,
    *,
    image: str,
    say: Callable[[str], None],
    clock: Callable[[], float],
    restored: Iterable[str] = (),
) -> None:
    begun = clock()
    wanted = frozenset(path.strip("/") for path in restored)
    done = operations.refresh(source, root, image=image, now=_now(), tell=_telling(say, clock), restored=wanted)
    tell_kubernetes(done.ready)
    for line in _notes(done):
        say(line)
    say(f"{root} is refreshed: {_sum(done, clock() - begun)}")


def plan(source: str, root: str) -> Summary:
    return operations.plan(source, root)


def plan_lines(summary: Summary, *, all_paths: bool) -> Iterator[str]:
    """Write a plan for people: how many of each kind, and the first of them."""
    counts = summary.counts
    if not (counts.new or counts.changed or counts.removed):
        yield "Nothing to do: the root matches the image, except for what users changed."
    kinds = (("new", summary.new), ("changed", summary.changed), ("removed", summary.removed))
    for title, paths in kinds:
        if paths:
            yield f"{title}: {len(paths):,}"
            yield from _some([f"/{path}" for path in paths], all_paths=all_paths)
    if summary.kept:
        yield f"kept as they are: {len(summary.kept):,}"
        yield from _some([f"/{path}: {why}" for path, why in summary.kept.items()], all_paths=all_paths)
    yield f"unchanged: {counts.unchanged:,}; to be written: {readable(counts.written)}"


def verify(root: str, *, say: Callable[[str], None], clock: Callable[[], float]) -> Verified:
    """Compare a root with its manifest."""
    told = clock()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if clock() - told >= _TELL_EVERY:
            told = clock()
            say(f"{done:,} of {total:,} paths")

    return inspection.verify(root, told=tell)


def verified_lines(found: Verified, *, all_paths: bool) -> Iterator[str]:
    """Write what differs for people: the gravest first."""
    yield f"Filled from {found.image or 'an unknown image'}: {sum(found.counts.values()):,} paths"
    for verdict, count in sorted(found.counts.items(), key=lambda it: (it[0] != "damaged", it[0])):
        yield f"{verdict}: {count:,}"
        paths = [f"/{path}" for path, it in found.differing.items() if it == verdict]
        yield from _some(paths, all_paths=all_paths)
    if found.lacking:
        yield f"Missing, and needed by every job: {', '.join(f'/{path}' for path in found.lacking)}"
    if not found.well:
        yield "  → to restore a path from the image: isthmus jail refresh --restore PATH"


def status(root: str) -> Status:
    return inspection.status(root)


def status_lines(found: Status) -> Iterator[str]:
    if found.ready:
        yield f"Filled from {found.ready.image}, on {found.ready.when}"
        yield f"  {found.paths:,} paths, {readable(found.size)}; manifest {found.ready.revision[:12]}"
    else:
        yield "Not filled: jobs cannot use it. Fill it: isthmus jail populate"
    if found.holder:
        yield f"In use by: {found.holder}"
    elif found.unfinished:
        yield "A run was interrupted. Start it again: it continues where it stopped"
    yield f"{readable(found.free)} are free"


def tell_kubernetes(told: IsthmusError | Ready) -> None:
    """Write the result, or what is wrong, to the termination message of this pod, if it is one."""
    if isinstance(told, Ready):
        text = msgspec.json.encode(told).decode()
    else:
        text = f"{told.what}. Remedy: {told.remedy}" if told.remedy else told.what
    if _TERMINATION_LOG.is_file():
        try:
            _TERMINATION_LOG.write_text(f"{text}\n")
        except OSError:
            return  # it is only told twice


def _already(ready: Ready, image: str) -> Iterator[str]:
    yield f"Already filled from {ready.image}, on {ready.when}: nothing to do."
    if image and image != ready.image:
        yield f"To update it to {image}: isthmus jail plan, then isthmus jail refresh"


def _telling(say: Callable[[str], None], clock: Callable[[], float]) -> Callable[[Progress], None]:
    begun = clock()

    def tell(progress: Progress) -> None:
        speed = progress.size / max(clock() - begun, 0.001)
        say(
            f"{progress.files:,} of {progress.all_files:,} files, {readable(progress.size)} of "
            f"{readable(progress.all_size)}, {readable(speed)}/s"
        )

    return tell


def _notes(done: Done) -> Iterator[str]:
    if done.there_before:
        yield f"Kept, because it existed before: {', '.join(f'/{name}' for name in done.there_before)}"
    if done.kept:
        yield f"Kept as they are: {len(done.kept):,}"
        yield from _some([f"/{path}: {why}" for path, why in done.kept.items()], all_paths=False)
    if done.bare:
        yield f"The file system does not support capabilities or access lists: {len(done.bare):,} files lost theirs"
        yield from _some([f"/{path}" for path in done.bare], all_paths=False)


def _sum(done: Done, seconds: float) -> str:
    counts = done.summary.counts
    speed = f"{readable(done.size / max(seconds, 0.001))}/s"
    return (
        f"{counts.new:,} new, {counts.changed:,} changed, {counts.removed:,} removed, {len(done.kept):,} kept; "
        f"{readable(done.size)} in {seconds:.1f} s, {speed}, read back and compared"
    )


def _some(lines: list[str], *, all_paths: bool) -> Iterator[str]:
    shown = lines if all_paths else lines[:_FIRST]
    yield from (f"  {line}" for line in shown)
    if len(shown) < len(lines):
        yield f"  … and {len(lines) - len(shown):,} more"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
