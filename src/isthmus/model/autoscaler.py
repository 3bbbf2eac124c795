"""Who scales a NodeSet beside us: HorizontalPodAutoscalers, and what the API server notes of who wrote `replicas`.

KEDA makes a HorizontalPodAutoscaler for each ScaledObject and owns it, so this covers both.
"""

from datetime import datetime

from msgspec import field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object, ObjectMeta


class _SpecFields(Data, frozen=True):
    replicas: dict[str, str] | None = field(name="f:replicas", default=None)


class _Fields(Data, frozen=True):
    spec: _SpecFields = field(name="f:spec", default=_SpecFields())


class FieldOwner(Data, frozen=True):
    """Who wrote some fields last; of the fields, only `spec.replicas` is read."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None
    fields_v1: _Fields = _Fields()


class ManagedMeta(ObjectMeta, frozen=True):
    """Metadata with who wrote which fields."""

    managed_fields: tuple[FieldOwner, ...] = ()


class ScaleTarget(Data, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(Data, frozen=True):
    scale_target_ref: ScaleTarget = ScaleTarget()


class HorizontalPodAutoscaler(Object, frozen=True):
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()


AUTOSCALERS: Kind[HorizontalPodAutoscaler] = Kind(
    HorizontalPodAutoscaler, "autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
