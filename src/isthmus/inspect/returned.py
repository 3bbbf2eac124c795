"""Allocations that went back to Slurm because Kubernetes could not use the node, read from their Events.

There should be none. The API server keeps Events for an hour, so this is about the last hour.
"""

from datetime import datetime
from typing import Final

import msgspec

from isthmus import names
from isthmus.kube.client import Client
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object


class Returned(msgspec.Struct, frozen=True):
    """A pod whose node went back, so many seconds ago, and why; the node is named there."""

    pod: str
    ago: float
    why: str


class _About(Data, frozen=True):
    name: str = ""
    namespace: str = ""


class _Series(Data, frozen=True):
    last_observed_time: datetime | None = None


class _Event(Object, frozen=True):
    regarding: _About = _About()
    note: str = ""
    event_time: datetime | None = None
    series: _Series = _Series()


_EVENTS: Final = Kind(_Event, "events.k8s.io/v1", "events", "Event")


async def returned(client: Client, *, namespace: str = "", now: float) -> tuple[Returned, ...]:
    found = await client.list(_EVENTS, namespace=namespace, fields=f"reason={names.RETURNED_REASON}")
    told = [
        Returned(f"{it.regarding.namespace}/{it.regarding.name}", now - at.timestamp(), it.note)
        for it in found.items
        if (at := it.series.last_observed_time or it.event_time)
    ]
    return tuple(sorted(told, key=lambda it: it.ago))
