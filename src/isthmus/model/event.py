"""Events, as far as we read those of others."""

from datetime import datetime

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object


class About(Data, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""


class Event(Object, frozen=True):
    """A report about an object."""

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
