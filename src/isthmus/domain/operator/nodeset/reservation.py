"""The maintenance reservation of a ScheduledUpdate: Slurm keeps nodes free of jobs while their pods are replaced.

    none in Slurm, start to come       made, over all registered nodes
    none in Slurm, start is past       not made: the condition ReservationCreated says so
    there, not yet begun               brought into step: nodes, start, length
    there, under way                   its nodes alone
    another strategy, or deletion      deleted

A start that recurs is Slurm's to move on: a DAILY reservation has tomorrow's start as soon as today's is over.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from isthmus.domain.kube import conditions
from isthmus.domain.languages import gotime
from isthmus.domain.languages.hostlist import fold, natural_key, same_hosts
from isthmus.domain.operator.nodeset.actions import DeleteReservation, SaveReservation
from isthmus.domain.operator.nodeset.view import View
from isthmus.errors import Terminal
from isthmus.model.meta import Condition, condition
from isthmus.model.slinky import ScheduledUpdate
from isthmus.model.slurm import Number, Reservation, ReservationRequest

CONDITION: Final = "ReservationCreated"
_USER: Final = "slurm"
_FLAGS: Final = frozenset({"MAINT", "IGNORE_JOBS"})
_READ_BACK: Final = frozenset({"SPEC_NODES", "ALL_NODES"})
"""Flags that Slurm adds by itself."""

_FORCE: Final = "FORCE_START"
_STEPS: Final = {
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKDAY": timedelta(days=1),
    "WEEKEND": timedelta(days=1),
    "WEEKLY": timedelta(days=7),
}
_SATURDAY: Final = 5
_REQUEUE_S: Final = 1.0
_NOW_AND_THEN: Final = 60.0


class Maintenance(msgspec.Struct, frozen=True):
    """What to do about the reservation, and its condition (None if no reservation is requested)."""

    actions: tuple[SaveReservation | DeleteReservation, ...] = ()
    condition: Condition | None = None
    look_again: float | None = None
    """Slurm has no events for reservations, so they are read now and then."""


def reservation_name(nodeset: str) -> str:
    return f"SlurmOperatorMaint-{nodeset}"


def our_reservation(view: View) -> Reservation | None:
    """Find the reservation of the NodeSet; None also if nobody has looked."""
    name = reservation_name(view.name)
    return next((it for it in view.reservations or () if it.name == name), None)


def maintenance(view: View) -> Maintenance:
    """Decide about the reservation; only where `View.reservations` was read is there anything to do."""
    update = view.nodeset.spec.update_strategy.scheduled_update
    wanted = view.nodeset.spec.update_strategy.type == "ScheduledUpdate" and view.desired > 0 and not view.deleting
    found = our_reservation(view)
    if not wanted or update is None or update.start_time is None:
        return Maintenance((DeleteReservation(found.name),) if found and view.slurm_in_touch else ())
    if not view.slurm_in_touch or view.reservations is None:
        # For a moment after each change of ours, too: the last report holds until something else is known.
        before = condition(view.nodeset.status.conditions, CONDITION)
        never = conditions.unknown(CONDITION, "OutOfTouch", "Slurm has not answered yet")
        return Maintenance(condition=before or never)
    plan = _plan(view, update, found)
    return msgspec.structs.replace(plan, look_again=_REQUEUE_S if plan.actions else _NOW_AND_THEN)


def _plan(view: View, update: ScheduledUpdate, found: Reservation | None) -> Maintenance:
    try:
        minutes = math.ceil(gotime.parse_duration(update.duration) / 60)
    except Terminal as error:
        return Maintenance(condition=conditions.no(CONDITION, "InvalidDuration", f"scheduledUpdate: {error.what}"))
    nodes = sorted((pod.slurm_name for pod in view.pods if pod.slurm and not pod.leaving), key=natural_key)
    if found is not None:
        return _keep(view, found, update, nodes=nodes, minutes=minutes)
    return _make(view, update, nodes=nodes, minutes=minutes)


def _make(view: View, update: ScheduledUpdate, *, nodes: list[str], minutes: int) -> Maintenance:
    flags = _flags(update)
    start = next_start(update.start_time or view.now, flags, view.now)
    if start <= view.now and _FORCE not in flags:
        told = f"startTime {start.isoformat()} is in the past: set a later one, or delete pods to replace them"
        return Maintenance(condition=conditions.no(CONDITION, "StartTimePast", told))
    if not nodes:
        return Maintenance(condition=conditions.no(CONDITION, "NoNodes", "no node is registered in Slurm yet"))
    request = ReservationRequest(
        name=reservation_name(view.name),
        node_list=tuple(nodes),
        users=(_USER,),
        flags=tuple(sorted(flags)),
        start_time=Number.of(int(start.timestamp())),
        duration=Number.of(minutes),
    )
    told = f"asking Slurm for {minutes} minutes from {start.isoformat()} on {fold(nodes)}"
    return Maintenance((SaveReservation(request),), conditions.no(CONDITION, "NotExists", told))


def _keep(
    view: View, found: Reservation, update: ScheduledUpdate, *, nodes: list[str], minutes: int
) -> Maintenance:
    begin, end = int(found.start_time.value or 0), int(found.end_time.value or 0)
    moment = datetime.fromtimestamp(begin, UTC).isoformat()
    under_way = begin <= view.now.timestamp()
    held = conditions.yes(CONDITION, "Created", f"{(end - begin) // 60} minutes from {moment} on {found.node_list}")
    flags = _flags(update)
    if not under_way and frozenset(found.flags) - _READ_BACK - {_FORCE} != flags - {_FORCE}:
        # Slurm has no way to take a flag away from a reservation; the next look makes it anew.
        return Maintenance((DeleteReservation(found.name),), held)
    change = ReservationRequest(name=found.name)
    if nodes and not same_hosts(fold(nodes), found.node_list):
        change = msgspec.structs.replace(change, node_list=tuple(nodes))
    if not under_way:
        start = int(next_start(update.start_time or view.now, flags, view.now).timestamp())
        # Where it recurs, Slurm moves the start on by its own calendar.
        if start != begin and start > view.now.timestamp() and flags.isdisjoint(_STEPS):
            change = msgspec.structs.replace(change, start_time=Number.of(start), duration=Number.of(minutes))
        elif end - begin != 60 * minutes:
            change = msgspec.structs.replace(change, duration=Number.of(minutes))
    if change == ReservationRequest(name=found.name):
        return Maintenance(condition=held)
    return Maintenance((SaveReservation(change),), held)


def next_start(start: datetime, flags: frozenset[str], now: datetime) -> datetime:
    """Move a start that recurs on to the first one to come; another stays as it is."""
    recurring = next((flag for flag in _STEPS if flag in flags), None)
    if recurring is None:
        return start
    step = _STEPS[recurring]
    if start <= now:
        start += step * ((now - start) // step + 1)
    while (recurring == "WEEKDAY" and start.weekday() >= _SATURDAY) or (
        recurring == "WEEKEND" and start.weekday() < _SATURDAY
    ):
        start += step
    return start


def _flags(update: ScheduledUpdate) -> frozenset[str]:
    return _FLAGS | {flag.upper() for flag in update.flags}
