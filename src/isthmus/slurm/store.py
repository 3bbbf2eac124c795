"""What we know of Slurm at the moment, for everybody to read without awaiting, and hooks that tell what changed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

Hook: TypeAlias = Callable[[K, V | None, V | None], None]
"""Is told a key, what was known and what is known now; None stands for "not there"."""


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
        """Take note of a value, and tell if it is another than before."""
        old = self._items.get(key)
        if old != value:
            self._items[key] = value
            self._tell(key, old, value)

    def drop(self, key: K) -> None:
        """Take note that something is gone."""
        old = self._items.pop(key, None)
        if old is not None:
            self._tell(key, old, None)

    def _tell(self, key: K, old: V | None, new: V | None) -> None:
        for hook in self._hooks:
            try:
                hook(key, old, new)
            except Exception as error:
                if self._failed is None:
                    raise
                self._failed(error)
