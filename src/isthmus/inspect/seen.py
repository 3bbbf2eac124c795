"""Kubernetes objects as the commands read them: with the fields that explain why something does not run."""

from typing import Final

from isthmus import names
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object
from isthmus.model.pod import ContainerStatus, PodStatus


class SeenContainer(Data, frozen=True):
    name: str = ""
    image: str = ""


class SeenSpec(Data, frozen=True):
    node_name: str = ""
    hostname: str = ""
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] = ()


class SeenContainerStatus(ContainerStatus, frozen=True):
    restart_count: int = 0


class SeenStatus(PodStatus, frozen=True):
    container_statuses: tuple[SeenContainerStatus, ...] = ()
    init_container_statuses: tuple[SeenContainerStatus, ...] = ()


class SeenPod(Object, frozen=True):
    """A pod with the fields that explain why it does not run."""

    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    @property
    def component(self) -> str:
        return self.metadata.labels.get(names.COMPONENT_LABEL, "")


def main_container(pod: SeenPod) -> str:
    """Which container commands run in unless they name one, as kubectl chooses it."""
    named = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    return named or next((it.name for it in pod.spec.containers), "")


PODS: Final = Kind(SeenPod, "v1", "pods", "Pod")
