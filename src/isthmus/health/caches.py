"""Caches beside those that health checks share with the operator."""

from isthmus.operator.caches import Caches
from isthmus.operator.world import ClusterCaches


class MoreCaches(Caches):
    """Caches of the namespaces of `operator`, whose own are registered by themselves."""

    def __init__(self, operator: ClusterCaches, *, owner: str) -> None:
        super().__init__(operator.kube, namespace=operator.namespace, owner=owner)
        self.operator = operator

    @property
    def in_touch(self) -> bool:
        return self.operator.in_touch and super().in_touch
