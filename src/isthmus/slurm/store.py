"""The current state of Slurm, read without awaiting, with hooks for changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar, overload

from isthmus import hooks

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

Hook: TypeAlias = Callable[[K, V | None, V | None], None]
"""Called with a key, its old and its new value; None if there is none."""


class Store(Mapping[K, V], Generic[K, V]):
    """A mapping that only its poller writes."""

    def __init__(self, *, failed: Callable[[Exception], None] | None = None) -> None:
        """With `failed`, a hook that raises is reported there, and neither other hooks nor the poller notice."""
        self._items: dict[K, V] = {}
        self._hooks: list[Hook[K, V]] = []
        self._failed = failed

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # What a Mapping would do with __getitem__, at a fifth of the cost: pollers look up 10,000 keys at a time.

    def __contains__(self, key: object) -> bool:
        return key in self._items

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...

    def get(self, key: K, default: object = None, /) -> object:
        """Return what is known under a key, or the default."""
        return self._items.get(key, default)

    def on_change(self, hook: Hook[K, V]) -> None:
        """Call this for every later change. It must be quick, and must not raise: put a key into a queue."""
        self._hooks.append(hook)

    def put(self, key: K, value: V) -> None:
        """Record a value, and call hooks if it changed."""
        old = self._items.get(key)
        if old != value:
            self._items[key] = value
            hooks.call(self._hooks, self._failed, key, old, value)

    def drop(self, key: K) -> None:
        """Record that something is gone."""
        old = self._items.pop(key, None)
        if old is not None:
            hooks.call(self._hooks, self._failed, key, old, None)
