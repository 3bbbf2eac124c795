"""Caches of some kinds, in one namespace or in all: one informer for each kind."""

from typing import Any, Protocol, TypeVar

from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Index, Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta

T = TypeVar("T", bound=HasMeta)


class CacheManager(Protocol):
    def cache(self, name: str, cache: Any) -> None: ...


class Caches:
    """What subclasses follow; `owner` distinguishes them from other caches of the same kinds."""

    def __init__(self, kube: Client, *, namespace: str = "", owner: str = "") -> None:
        self.kube = kube
        self.namespace = namespace
        self._owner = owner
        self._informers: dict[str, Informer[Any]] = {}

    def _follow(
        self,
        kind: Kind[T],
        *,
        labels: str = "",
        indexes: dict[str, Index[Any]] | None = None,
        optional: bool = False,
        title: str = "",
    ) -> Store[T]:
        namespace = self.namespace if kind.namespaced else ""
        informer = Informer(self.kube, kind, indexes=indexes, optional=optional, namespace=namespace, labels=labels)
        self._informers[title or self._title(kind)] = informer
        return informer.store

    def _title(self, kind: Kind[Any]) -> str:
        of = self._owner or kind.group
        return f"{kind.plural} of {of}" if of else kind.plural

    def serves(self, kind: Kind[Any]) -> bool:
        """Whether the API server knows a kind that somebody else installs, such as PodMonitors."""
        return self._informers[self._title(kind)].is_served

    @property
    def in_touch(self) -> bool:
        """Whether Kubernetes answers: only then does "not there" mean that it is gone."""
        return all(it.contact.in_touch for it in self._informers.values())

    def register(self, manager: CacheManager) -> None:
        """Let a manager keep the caches up to date, and count them as part of its readiness."""
        for name, informer in self._informers.items():
            manager.cache(self._within(name), informer)

    def _within(self, name: str) -> str:
        return f"{name} in {self.namespace}" if self.namespace else name
