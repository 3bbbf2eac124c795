"""When nodes of a NodeSet are started and released: `spec.autoscale` of both NodeSet kinds.

`domain.elastic.policy` says what of it holds at a moment. Slurm decides which nodes jobs get; this sets the limits.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from isthmus.model.base import Data

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

_Nodes = Annotated[int, Meta(ge=0, le=65533)]
_Clock = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
_TimeZone = Annotated[str, Meta(max_length=64)]
_Duration = Annotated[str, Meta(max_length=64, pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))*$")]


class Budget(Data, frozen=True):
    """How much may be used. Nodes with jobs go on when it is used up; no others are started until the next day."""

    node_hours_per_day: Annotated[float, Meta(gt=0, le=1e9)]
    """Hours that nodes are on, whether they run jobs or not, summed over all nodes of the NodeSet."""
    time_zone: _TimeZone = "UTC"
    """Whose midnight begins the day, such as Europe/Berlin."""


class ScheduleEntry(Data, frozen=True):
    """Other limits at some hours. Of several entries that hold at a moment, the first counts."""

    from_: _Clock = field(name="from")
    """Such as 08:00."""
    to: _Clock
    """Such as 18:00; not after `from`: on the next day."""
    days: Annotated[tuple[Day, ...], Meta(max_length=7)] = ()
    """On which days it begins; all if empty."""
    time_zone: _TimeZone = "UTC"
    """Whose clock it is, such as Europe/Berlin."""
    min: _Nodes | None = None
    """Instead of autoscale.min; likewise the fields below."""
    max: _Nodes | None = None
    warm: _Nodes | None = None
    idle_time: _Duration = ""


class Autoscale(Data, frozen=True):
    """Nodes are started when Slurm gives them to jobs, and released when they have been idle (Isthmus only)."""

    min: _Nodes = 0
    """Nodes that are on at all times, with or without jobs."""
    max: _Nodes | None = None
    """Nodes that are on at most; absent: all, as many as replicas says."""
    warm: _Nodes = 0
    """Idle nodes that are kept on for the next job, beside those with jobs."""
    idle_time: _Duration = ""
    """How long a node is idle before it is released, such as 10m; empty: the cluster's suspendTime, or else 5m."""
    budget: Budget | None = None
    schedule: Annotated[tuple[ScheduleEntry, ...], Meta(max_length=64)] = ()
    fallback_order: Annotated[int, Meta(ge=0, le=65000)] = 0
    """Jobs that fit several NodeSets use the one with the lowest number first, and the next ones when that has no
    room or gets no capacity."""
    dry_run: bool = False
    """Only show what would be done, in status and Events."""
