"""Objects of one kind by key and by index, read without awaiting.

Only the informer writes. Between two awaits a reader sees one consistent state: the objects, every index and what
the hooks were told always agree. Objects are frozen and are never copied; a changed object is another object.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from isthmus import hooks
from isthmus.model.meta import HasMeta, Key

T = TypeVar("T", bound=HasMeta)

Index = Callable[[T], Iterable[Hashable]]
"""Which values an object is found under. Must depend on the object alone: it is asked again to unfile it."""

Hook = Callable[[Key, T | None, T | None], None]
"""Called right after each change with the key, the object before (None: new) and after (None: gone)."""


class Store(Generic[T]):
    """A cache that is never ahead of nor torn from its indexes."""

    def __init__(
        self, indexes: Mapping[str, Index[T]] | None = None, *, failed: Callable[[Exception], None] | None = None
    ) -> None:
        """With `failed`, a hook that raises is reported there, and neither other hooks nor the writer notice."""
        self._objects: dict[Key, T] = {}
        self._indexes = dict(indexes or {})
        self._filed: dict[str, dict[Hashable, dict[Key, T]]] = {name: {} for name in self._indexes}
        self._hooks: list[Hook[T]] = []
        self._failed = failed
        self.version = 0
        """Of the API server's changes all up to this one are known; an object that a write returned has its own."""

    def __repr__(self) -> str:
        return f"Store({len(self)} objects, indexes: {', '.join(self._indexes) or 'none'})"

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def values(self) -> Collection[T]:
        """Look at all objects: a live view, not to be held across an await."""
        return self._objects.values()

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        return tuple(self._filed[index].get(value, {}).values())

    def count(self, index: str, value: Hashable) -> int:
        return len(self._filed[index].get(value, ()))

    def index_values(self, index: str) -> Collection[Hashable]:
        """Look at all values under which an index files anything: a live view."""
        return self._filed[index].keys()

    def on_change(self, hook: Hook[T]) -> None:
        """Call `hook` for each later change, and now for each object that is there already."""
        self._hooks.append(hook)
        for key, found in list(self._objects.items()):
            hooks.call([hook], self._failed, key, None, found)

    def put(self, new: T) -> None:
        """Add or replace an object."""
        metadata = new.metadata
        key = Key(metadata.namespace, metadata.name)
        old = self._objects.get(key)
        self._objects[key] = new
        if self._indexes:
            self._refile(key, old, new)
        hooks.call(self._hooks, self._failed, key, old, new)

    def remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        self._refile(key, old, None)
        hooks.call(self._hooks, self._failed, key, old, None)

    def replace(self, listed: Mapping[Key, T], *, keep: Collection[Key] = ()) -> None:
        """Become exactly these objects, telling the hooks what vanished, changed and appeared meanwhile.

        Keys to `keep` stay as they are: they exist, but could not be read.
        """
        for key in [key for key in self._objects if key not in listed and key not in keep]:
            self.remove(key)
        for key, new in listed.items():
            old = self._objects.get(key)
            if old is None or old.metadata.resource_version != new.metadata.resource_version:
                self.put(new)

    def _refile(self, key: Key, old: T | None, new: T | None) -> None:
        for name, values_of in self._indexes.items():
            filed = self._filed[name]
            if old is not None:
                for value in values_of(old):
                    if (bucket := filed.get(value)) and bucket.pop(key, None) is not None and not bucket:
                        del filed[value]
            if new is not None:
                for value in values_of(new):
                    filed.setdefault(value, {})[key] = new
