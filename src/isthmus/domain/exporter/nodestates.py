"""What the state and the reason of a Slurm node mean: one word of sixteen, and the class of the reason.

Slurm gives a base state and flags. Which of them counts is decided as sinfo does it, with one difference: what
power saving does to a node comes before anything else, since that is not a fault.
"""

import functools
from typing import Final

from isthmus import names
from isthmus.domain.bridge.noderecord import OURS
from isthmus.model.slurm import Node, States

STATES: Final = (
    "idle",
    "mixed",
    "allocated",
    "completing",
    "planned",
    "reserved",
    "maintenance",
    "powered_down",
    "powering_up",
    "powering_down",
    "draining",
    "drained",
    "failing",
    "not_responding",
    "down",
    "unknown",
)
"""In the order of the numbers that stand for them."""

NUMBERS: Final = {state: number for number, state in enumerate(STATES)}

OUT: Final = frozenset({"draining", "drained", "failing", "not_responding", "down"})
"""The states of nodes that take no new jobs because of a person, a check or a fault."""

_POWER: Final = (
    (frozenset({"POWERING_UP", "POWER_UP"}), "powering_up"),
    (frozenset({"POWERING_DOWN", "POWER_DOWN", "POWER_DRAIN"}), "powering_down"),
    (frozenset({"POWERED_DOWN"}), "powered_down"),
)
_POWER_FLAGS: Final = frozenset[str]().union(*(flags for flags, _ in _POWER))


def _all_of(*groups: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split("|")) for group in groups)


# A state is that of the first line of which every group has a member among a node's states.
_RULES: Final = (
    *(((flags,), word) for flags, word in _POWER),
    (_all_of("DRAIN", "ALLOCATED|MIXED|COMPLETING"), "draining"),
    (_all_of("DRAIN"), "drained"),
    (_all_of("FAIL|INVALID|INVALID_REG|ERROR"), "failing"),
    (_all_of("DOWN"), "down"),
    (_all_of("NOT_RESPONDING"), "not_responding"),
    (_all_of("UNKNOWN|FUTURE"), "unknown"),
    (_all_of("IDLE", "MAINTENANCE"), "maintenance"),
    (_all_of("ALLOCATED"), "allocated"),
    (_all_of("COMPLETING"), "completing"),
    (_all_of("MIXED"), "mixed"),
    (_all_of("IDLE", "PLANNED"), "planned"),
    (_all_of("IDLE", "RESERVED"), "reserved"),
    (_all_of("IDLE"), "idle"),
)
_BROKEN: Final = frozenset({"DOWN", "NOT_RESPONDING", "UNKNOWN", "ERROR", "FAIL", "INVALID", "INVALID_REG"})

# The first three are always there in Soperator's labels; the others came later and are left empty.
_ALWAYS: Final = ("DRAIN", "MAINTENANCE", "RESERVED")
_FLAGS: Final = (
    ("COMPLETING",),
    ("FAIL",),
    ("PLANNED",),
    ("NOT_RESPONDING",),
    ("INVALID", "INVALID_REG"),
    ("CLOUD",),
    ("POWER_DOWN",),
    ("POWER_DRAIN",),
    ("POWERED_DOWN",),
    ("POWERING_DOWN",),
    ("POWERING_UP",),
    ("POWER_UP",),
)

# Lower-case beginnings or parts of reasons, and their class. The first match counts.
_CLASSES: Final = (
    ("[node_problem]", "hardware"),
    ("[hardware_problem]", "hardware"),
    ("[user_problem]", "user"),
    ("not responding", "not_responding"),
    ("unexpectedly rebooted", "not_responding"),
    ("maint", "maintenance"),
    ("health", "health"),
    ("nhc:", "health"),
    ("kill task failed", "health"),
    ("prolog error", "health"),
    ("epilog error", "health"),
    ("low realmemory", "health"),
    ("low socket", "health"),
    ("count reported lower", "health"),
)


def base(states: States) -> str:
    return states[0] if states else "UNKNOWN"


def is_power_managed(states: States) -> bool:
    """Whether power saving has the node, or is about to have it."""
    return not _POWER_FLAGS.isdisjoint(states)


@functools.lru_cache(maxsize=256)
def state(states: States) -> str:
    """The one word for a node's state."""
    for groups, word in _RULES:
        if not any(group.isdisjoint(states) for group in groups):
            return word
    return "unknown"


def reason_class(reason: str) -> str:
    """What kind of reason a node is out for."""
    text = reason.strip()
    if not text or text.lower() == "none":
        return "none"
    if text.startswith(names.DRAIN_REASON_PREFIX.strip()):
        return "operator"
    if text.startswith(OURS):
        return "bridge"
    lower = text.lower()
    return next((word for part, word in _CLASSES if part in lower), "human")


def is_unavailable(states: States) -> bool:
    """Whether a node is of no use, as Soperator counts it: broken or drained, but not by power saving."""
    if is_power_managed(states):
        return False
    return not _BROKEN.isdisjoint(states) or (base(states) == "IDLE" and "DRAIN" in states)


def is_draining(states: States) -> bool:
    """Whether a node still has jobs and takes no others."""
    return "DRAIN" in states and base(states) in {"ALLOCATED", "MIXED"}


def is_failed(states: States) -> bool:
    """Whether a node is down or drained, and not by power saving."""
    return not is_power_managed(states) and not {"DOWN", "DRAIN"}.isdisjoint(states)


def state_labels(node: Node) -> tuple[str, str, str, str, str]:
    """Write what Soperator's counters have as labels: name, base state, and three flags."""
    drain, maintenance, reserved = ("true" if flag in node.state else "false" for flag in _ALWAYS)
    return node.name, base(node.state), drain, maintenance, reserved


def flag_labels(states: States) -> tuple[str, ...]:
    """Write the flags that Soperator's `slurm_node_info` has beside those, and whether the node is unavailable."""
    flags = ["" if set(flag).isdisjoint(states) else "true" for flag in _FLAGS]
    return (*flags, "true" if is_unavailable(states) else "")
