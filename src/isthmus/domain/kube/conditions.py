"""Conditions of a status: what holds now, since when, and for which generation.

    yes("Ready", "AllReady", "3 of 3 nodes are ready")

A condition keeps the time of its last transition as long as its status stays the same, so an unchanged status is
the same text, and nothing is written.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from isthmus.model.meta import Condition, ConditionStatus, condition

READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"
SLURM_REACHABLE = "SlurmReachable"

_MAX_CHARS: Final = 32768
"""Characters that the API server takes for a message."""


def yes(type_: str, reason: str, message: str = "") -> Condition:
    return _told(type_, "True", reason, message)


def no(type_: str, reason: str, message: str = "") -> Condition:
    """It does not hold."""
    return _told(type_, "False", reason, message)


def unknown(type_: str, reason: str, message: str = "") -> Condition:
    """It is not known whether it holds."""
    return _told(type_, "Unknown", reason, message)


def _told(type_: str, status: ConditionStatus, reason: str, message: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message[:_MAX_CHARS])


def merged(
    before: Iterable[Condition], now_held: Iterable[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Merge current conditions over previous ones; a type that is no longer reported is dropped.

    Sorted by type, so that the same conditions are the same text.
    """
    known = tuple(before)
    moment = now.replace(microsecond=0)

    def dated(it: Condition) -> Condition:
        old = condition(known, it.type)
        since = old.last_transition_time if old and old.status == it.status else None
        return msgspec.structs.replace(it, last_transition_time=since or moment, observed_generation=generation)

    return tuple(sorted((dated(it) for it in now_held), key=lambda it: it.type))


def holds(conditions: Iterable[Condition], type_: str) -> bool:
    found = condition(conditions, type_)
    return found is not None and found.status == "True"


def summary(*, wrong: str = "", missing: str = "", settled: str) -> tuple[Condition, Condition, Condition]:
    """Make the three conditions that every kind has, from what is wrong, what is still missing, or how well it is.

    Something wrong needs a user; what is merely missing comes by itself.
    """
    if wrong:
        return (
            no(READY, "Degraded", wrong),
            yes(PROGRESSING, "Waiting", missing) if missing else no(PROGRESSING, "Stopped", wrong),
            yes(DEGRADED, "NeedsAttention", wrong),
        )
    if missing:
        return (
            no(READY, "Progressing", missing),
            yes(PROGRESSING, "Waiting", missing),
            no(DEGRADED, "AsExpected"),
        )
    return (
        yes(READY, "AsExpected", settled),
        no(PROGRESSING, "Settled", settled),
        no(DEGRADED, "AsExpected"),
    )
