"""What earlier runs wrote into the root: the way to tell what is the image's from what is a user's."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from isthmus.domain.jail.entry import Entry


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known of one path.

    `listed` is in the manifest: the last run that finished left it there. `begun` are in the journal: a run that
    did not finish was about to put them there, and may or may not have come to it.
    """

    listed: Entry | None = None
    begun: tuple[Entry, ...] = ()

    def holds(self, found: Entry) -> bool:
        """Whether what is in the root is what we put there."""
        return found.same_content(self.listed) or any(found.same_content(it) for it in self.begun)


NOTHING: Final = Known()


class Knowledge:
    """All of it, by path."""

    def __init__(self, listed: Iterable[Entry] = (), begun: Iterable[Entry] = ()) -> None:
        self._listed: Mapping[str, Entry] = {entry.path: entry for entry in listed}
        several: dict[str, tuple[Entry, ...]] = {}
        for entry in begun:
            several[entry.path] = (*several.get(entry.path, ()), entry)
        self._begun = several

    def __getitem__(self, path: str) -> Known:
        listed, begun = self._listed.get(path), self._begun.get(path, ())
        return Known(listed, begun) if listed or begun else NOTHING

    def __iter__(self) -> Iterator[str]:
        yield from self._listed
        yield from (path for path in self._begun if path not in self._listed)

    @property
    def has_manifest(self) -> bool:
        """Whether a run has finished before."""
        return bool(self._listed)
