"""Caches beside those that health checks share with the operator."""

from typing import Any, TypeVar

from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Index, Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta
from isthmus.operator.world import CacheManager, ClusterCaches

T = TypeVar("T", bound=HasMeta)


class MoreCaches:
    """Caches of the namespaces of `operator`; `owner` distinguishes them from others of the same kinds."""

    def __init__(self, operator: ClusterCaches, *, owner: str) -> None:
        self.operator = operator
        self._owner = owner
        self._informers: dict[str, Informer[Any]] = {}

    @property
    def kube(self) -> Client:
        return self.operator.kube

    @property
    def in_touch(self) -> bool:
        """Whether Kubernetes answers: only then does "not there" mean that it is gone."""
        return self.operator.in_touch and all(it.contact.in_touch for it in self._informers.values())

    def register(self, manager: CacheManager) -> None:
        """Let a manager keep these caches up to date; the operator's are registered by themselves."""
        within = f" in {self.operator.namespace}" if self.operator.namespace else ""
        for name, informer in self._informers.items():
            manager.cache(f"{name} of {self._owner}{within}", informer)

    def _follow(
        self,
        kind: Kind[T],
        *,
        labels: str = "",
        indexes: dict[str, Index[Any]] | None = None,
        optional: bool = False,
    ) -> Store[T]:
        namespace = self.operator.namespace if kind.namespaced else ""
        informer = Informer(self.kube, kind, indexes=indexes, namespace=namespace, labels=labels, optional=optional)
        self._informers[kind.plural] = informer
        return informer.store
