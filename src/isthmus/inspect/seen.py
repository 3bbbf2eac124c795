"""Objects of Kubernetes as the commands see them: with what tells why something does not run."""

from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import ContainerState, PodCondition


class SeenContainer(Data, frozen=True):
    name: str = ""
    image: str = ""


class SeenSpec(Data, frozen=True):
    node_name: str = ""
    hostname: str = ""
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] = ()


class SeenContainerStatus(Data, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class SeenStatus(Data, frozen=True):
    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[SeenContainerStatus, ...] = ()
    init_container_statuses: tuple[SeenContainerStatus, ...] = ()


class SeenPod(Data, frozen=True):
    """A pod with what tells why it does not run."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    @property
    def component(self) -> str:
        return self.metadata.labels.get(names.COMPONENT_LABEL, "")


PODS: Final = Kind(SeenPod, "v1", "pods", "Pod")
