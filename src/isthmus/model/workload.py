"""Workloads, as far as their size needs."""

from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta


class ScaleSpec(Data, frozen=True):
    """How many are wanted."""

    replicas: int = 0


class ScaleStatus(Data, frozen=True):
    """How many there are, and the label selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(Data, frozen=True):
    """The size of any workload that has one."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


SCALES = Kind(Scale, "autoscaling/v1", "scales", "Scale")
