"""Events, as far as we read what others say in them."""

from datetime import datetime

from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta


class About(Data, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""


class Event(Data, frozen=True):
    """What somebody says of an object."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: About = About()
    reason: str = ""
    message: str = ""
    type: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """When it happened last."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp


EVENTS = Kind(Event, "v1", "events", "Event")
"""In the older API, whose lists can be narrowed down to one object."""
