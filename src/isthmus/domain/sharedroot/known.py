"""What earlier runs wrote into the root: it distinguishes files of the image from files of users."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.sharedroot.entry import Entry


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known of one path.

    `listed` is in the manifest: the last run that finished left it there. `begun` are in the journal: a run that
    did not finish was about to put them there, and may or may not have come to it. `removed` says that such a run
    was about to remove what was there: if nothing is there now, no user need have done it.
    """

    listed: Entry | None = None
    begun: tuple[Entry, ...] = ()
    removed: bool = False

    @property
    def written(self) -> tuple[Entry, ...]:
        """All that we may have put there."""
        return (self.listed, *self.begun) if self.listed else self.begun

    def holds(self, found: Entry) -> bool:
        """Whether what is in the root is what we put there."""
        return any(found.same_content(it) for it in self.written)


NOTHING: Final = Known()


class Knowledge:
    def __init__(self, listed: Iterable[Entry] = (), begun: Iterable[Entry] = ()) -> None:
        self._listed: Mapping[str, Entry] = {entry.path: entry for entry in listed}
        self._removed: set[str] = set()
        several: dict[str, tuple[Entry, ...]] = {}
        for entry in begun:
            if entry.kind == "absent":
                self._removed.add(entry.path)
            else:
                several[entry.path] = (*several.get(entry.path, ()), entry)
        self._begun = several

    def __getitem__(self, path: str) -> Known:
        listed, begun = self._listed.get(path), self._begun.get(path, ())
        return Known(listed, begun, path in self._removed) if listed or begun else NOTHING

    def __iter__(self) -> Iterator[str]:
        yield from self._listed
        yield from (path for path in self._begun if path not in self._listed)

    @property
    def touched(self) -> set[str]:
        """The paths at which a run that did not finish changed something, or was about to."""
        return {*self._begun, *self._removed}

    @property
    def has_manifest(self) -> bool:
        """Whether a run has finished before."""
        return bool(self._listed)
