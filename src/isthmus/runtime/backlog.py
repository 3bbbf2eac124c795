"""What waits to be done: the order of keys, apart from the event loop that hands them out.

A key is in at most one of three states, and may be asked for again in any of them:

    add ──► waiting ──► ready ──► taken ──► (gone)
              due in      due        │ done
            the future               └──► waiting or ready, if it was added while taken

Invariants: a key is handed out once however often it was added; no key is handed out twice at a time; an add while
a key is taken leads to one more pass after `done`. Asking again only ever brings a key forward: the earliest time
and the highest priority win. Every operation costs O(log n), amortised.

Time is a parameter of every method, in seconds on one clock that never goes back.
"""

from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

# A heap entry that was overtaken stays until it surfaces; a heap is rebuilt when more than half of it is dross.
_COMPACT_ABOVE = 64


class _Item:
    """Why a key waits. A heap entry counts only while its ticket is the item's."""

    __slots__ = ("due", "priority", "ready", "ticket")

    def __init__(self, due: float, priority: int) -> None:
        self.due = due
        self.priority = priority
        self.ready = False
        self.ticket = 0


class Backlog(Generic[KeyT]):
    """Keys by due time, then by priority, then in the order in which they became ready."""

    def __init__(self) -> None:
        self._items: dict[KeyT, _Item] = {}
        self._taken: dict[KeyT, float] = {}
        self._later: list[tuple[float, int, KeyT]] = []
        self._ready: list[tuple[int, int, KeyT]] = []
        self._ready_count = 0
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        later = len(self._items) - self._ready_count
        return f"<Backlog: {self._ready_count} ready, {later} later, {len(self._taken)} taken>"

    @property
    def taken(self) -> Mapping[KeyT, float]:
        """The keys that are being worked on, with the time at which each was taken."""
        return self._taken

    def add(self, key: KeyT, now: float, *, due: float, priority: int = 0) -> None:
        """Ask for a key at `due`; if it waits already, the earlier time and the higher priority hold."""
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(due, priority)
        elif due >= item.due and priority <= item.priority:
            return
        else:
            item.due = min(item.due, due)
            item.priority = max(item.priority, priority)
        if key not in self._taken:
            self._enlist(key, item, now)

    def take(self, now: float) -> tuple[KeyT, float] | None:
        """Hand out the first key that is due, with the time since which it was; None if none is."""
        self.ready_count(now)
        while self._ready:
            _, ticket, key = heappop(self._ready)
            item = self._items.get(key)
            if item is not None and item.ticket == ticket:
                del self._items[key]
                self._ready_count -= 1
                self._taken[key] = now
                return key, item.due
        return None

    def done(self, key: KeyT, now: float) -> None:
        del self._taken[key]
        if item := self._items.get(key):
            self._enlist(key, item, now)

    def ready_count(self, now: float) -> int:
        """How many keys could be taken at this moment."""
        while self._later and self._later[0][0] <= now:
            _, ticket, key = heappop(self._later)
            item = self._items.get(key)
            if item is not None and item.ticket == ticket:
                self._enlist(key, item, now)
        return self._ready_count

    def next_due(self) -> float | None:
        """When the next key that is not due yet will be; None if there is no such key."""
        while self._later:
            due, ticket, key = self._later[0]
            item = self._items.get(key)
            if item is not None and item.ticket == ticket:
                return due
            heappop(self._later)
        return None

    def _enlist(self, key: KeyT, item: _Item, now: float) -> None:
        """Put the item on the heap where it belongs now; its older entry, if any, no longer counts."""
        self._tickets += 1
        item.ticket = self._tickets
        if item.due <= now:
            self._ready_count += not item.ready
            item.ready = True
            heappush(self._ready, (-item.priority, item.ticket, key))
            if len(self._ready) > _COMPACT_ABOVE + 2 * self._ready_count:
                self._ready = [entry for entry in self._ready if self._counts(entry)]
                heapify(self._ready)
        else:
            heappush(self._later, (item.due, item.ticket, key))
            if len(self._later) > _COMPACT_ABOVE + 2 * (len(self._items) - self._ready_count):
                self._later = [entry for entry in self._later if self._counts(entry)]
                heapify(self._later)

    def _counts(self, entry: tuple[float, int, KeyT]) -> bool:
        item = self._items.get(entry[2])
        return item is not None and item.ticket == entry[1]
