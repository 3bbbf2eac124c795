"""What the findings so far explain: what follows from something that was found is not found again."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, PartFact, PodFact
from isthmus.domain.diagnosis.finding import Area, Finding

_COMPONENTS: Final = {
    "Controller": ("controller",),
    "RestApi": ("restapi",),
    "Accounting": ("accounting", "database"),
    "LoginSet": ("login",),
    "NodeSet": ("worker",),
    "SlurmCluster": ("sconfigcontroller", "exporter", "jail"),
}
"""How many of many pods or nodes are named."""


class Known:
    """The grave findings about one cluster so far."""

    def __init__(self, cluster: ClusterFacts, found: Iterable[Finding] = ()) -> None:
        self._cluster = cluster
        grave = [it for it in found if it.grave]
        self._subjects = {subject for it in grave for subject in it.subjects}
        self._areas = {it.area for it in grave}

    @property
    def anything(self) -> bool:
        """Whether anything grave was found."""
        return bool(self._areas)

    def has(self, *areas: Area) -> bool:
        """Whether something was found in one of these areas."""
        return not self._areas.isdisjoint(areas)

    def explains_pod(self, pod: PodFact) -> bool:
        """Whether it is known why a pod does not do its work."""
        return about_pod(pod) in self._subjects

    def explains(self, part: PartFact) -> bool:
        """Whether it is known why a part, or a pod of it, does not do its work."""
        return about(part) in self._subjects or any(map(self.explains_pod, pods_of(part, self._cluster)))

    def explains_kind(self, kind: str) -> bool:
        return any(self.explains(it) for it in self._cluster.parts if it.kind == kind)

    @property
    def slurmctld(self) -> bool:
        """Whether it is known why slurmctld does not answer. At first it waits for slurmdbd."""
        if self.explains_kind("Controller") or any(map(self.explains_pod, _controllers(self._cluster))):
            return True
        return self.has("accounting") and not any(it.ready for it in _controllers(self._cluster))


def lacks_slurmctld(cluster: ClusterFacts) -> bool:
    """Whether no slurmctld of ours is ready: then slurmrestd ends, again and again."""
    pods = _controllers(cluster)
    return bool(pods) and not any(it.ready for it in pods)


def _controllers(cluster: ClusterFacts) -> list[PodFact]:
    return [it for it in cluster.pods if it.component == "controller" and not stands_in(it)]


Check = Callable[[ClusterFacts, Facts, Known], Iterator[Finding]]


def about(part: PartFact) -> str:
    """Name a part as subjects of findings do; a NodeSet of either API is the same."""
    return f"{_kind(part)} {part.name}"


def about_pod(pod: PodFact) -> str:
    """Name a pod as subjects of findings do."""
    return f"pod {pod.name}"


def pods_of(part: PartFact, cluster: ClusterFacts) -> tuple[PodFact, ...]:
    components = _COMPONENTS.get(_kind(part), ())
    return tuple(it for it in cluster.pods if it.component in components and it.part in {"", part.name})


def stands_in(pod: PodFact) -> bool:
    """Whether a pod only keeps a place warm for slurmctld; nothing depends on it."""
    return "-placeholder-" in pod.name


def _kind(part: PartFact) -> str:
    return part.kind.partition(".")[0]
