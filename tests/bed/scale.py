"""The size of any workload that has one: the subresource that `kubectl scale` and autoscalers write."""

from typing import Any

import msgspec

from isthmus.kube.client import Client, path
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Key, Object


class ScaleSpec(Data, frozen=True):
    replicas: int = 0


class ScaleStatus(Data, frozen=True):
    """How many there are, and the label selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True):
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


async def read_scale(client: Client, kind: Kind[Any], key: Key) -> Scale:
    return msgspec.json.decode(await client.raw(path(kind, key, "scale")), type=Scale)


async def set_scale(client: Client, kind: Kind[Any], key: Key, replicas: int) -> None:
    scales = Kind(Scale, kind.api_version, kind.plural, "Scale")
    await client.merge_patch(scales, key, {"spec": {"replicas": replicas}}, subresource="scale")
