"""Which nodes of an elastic NodeSet are on: what Slurm is asked for, and which ordinals have a pod.

    Slurm says of a node     POWERED_DOWN ──► POWERING_UP ──► (up) ──► POWERING_DOWN ──► POWERED_DOWN
    so it is                 off              starting        on        stopping           off
    and has a pod            no               yes             yes       no                 no

Slurm starts a node when it gives it to a job, and stops it when it has been idle. That is all there is while nobody
sets limits: its states are the intent, and nothing here needs to be remembered. What a policy adds are requests to
Slurm, each of them visible in the state of the node that it is for, so a crash repeats none and forgets none:

    below min or warm        power up; keep awake what Slurm would stop
    above max, or idle for   power down idle ones; fence nodes that are off, so that Slurm does not start them
    longer than allowed
    no machine in time       set down, so that Slurm requeues the job; hold the NodeSet, longer each time, with
                             all its nodes fenced, so that the job goes to another; then bring them back
    its machine goes         power down when its jobs are gone: it starts on another machine when a job needs it
    stopped, and pod gone    settle: Slurm need not wait for its time-out

Without contact with Slurm, nothing changes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from isthmus import names
from isthmus.domain.elastic.policy import Effective
from isthmus.model.powerstate import CapacityHold, NodePower
from isthmus.model.slurm import Node

Phase = Literal["off", "starting", "on", "stopping", "held", "failed", "unknown"]
PodState = Literal["none", "pending", "running", "ready", "leaving"]
Verb = Literal["PowerUp", "PowerDown", "KeepAwake", "Settle", "SetDown", "Fence", "Unfence"]

OURS: Final = names.DRAIN_REASON_PREFIX
FENCED: Final = f"{OURS}not started: "
HELD: Final = f"{OURS}no capacity: "
RESUME_TIMEOUT: Final = "ResumeTimeout reached"

CAPACITY_S: Final = 600.0
"""How long a node may wait for a machine, or start without success, before its jobs are sent elsewhere: autoscalers
take minutes for machines with GPUs. One that has a machine and no trouble, such as one that pulls a large image, is
Slurm's to give up after its ResumeTimeout."""

_FIRST_HOLD_S: Final = 60.0
_MAX_HOLD_S: Final = 3600.0
_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_SHUT: Final = frozenset({"DRAIN", "DOWN", "FAIL"})
_MAX_REASON_CHARS: Final = 200
_STATES: Final[dict[Phase, str]] = {
    "starting": "PoweringUp",
    "on": "PoweredUp",
    "stopping": "PoweringDown",
    "held": "Held",
    "failed": "Held",
}


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the range: what Slurm says of it, and its pod."""

    ordinal: int
    name: str
    """In Slurm."""
    record: Node | None = None
    pod: PodState = "none"
    placed: bool = False
    """Whether its pod has a machine."""
    trouble: str = ""
    """What keeps its pod from running."""
    doomed: bool = False
    """Whether its machine is about to go."""

    @property
    def phase(self) -> Phase:
        return phase_of(self.record)

    def has(self, *states: str) -> bool:
        return self.record is not None and not set(self.record.state).isdisjoint(states)

    @property
    def reason(self) -> str:
        return self.record.reason if self.record else ""

    @property
    def busy(self) -> bool:
        """Whether it has jobs, or is to have some."""
        return self.record is not None and (self.record.alloc_cpus > 0 or not _BUSY.isdisjoint(self.record.state))

    @property
    def waking(self) -> bool:
        """Whether Slurm was asked for it and has not begun."""
        return self.phase == "off" and self.has("POWER_UP")

    @property
    def fenced(self) -> bool:
        """Whether we keep Slurm from starting it."""
        return self.has("DRAIN") and self.reason.startswith(FENCED)

    @property
    def dispensable(self) -> bool:
        """Whether it is on for no job: neither has one, nor is planned for one, nor out of use for a reason."""
        return self.phase == "on" and not self.busy and not self.has("PLANNED", "POWER_DOWN", *_SHUT)


class PowerView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an elastic NodeSet at one moment."""

    slots: tuple[Slot, ...]
    """All that `replicas` says, by ordinal."""
    active: frozenset[int]
    """`spec.activeNodes` as it is."""
    written: frozenset[int]
    """As we wrote it last."""
    limits: Effective
    now: datetime
    in_touch: bool = True
    """Whether Slurm has answered since we last wrote to it."""
    states: tuple[NodePower, ...] = ()
    hold: CapacityHold | None = None
    kept_by_slurm: int = 0
    """How many nodes Slurm itself keeps on (SuspendExcNodes)."""
    idle_in_slurm: float = 300.0
    """After how many idle seconds it stops others (SuspendTime): the longest that the policy sets at any hour."""


class Request(msgspec.Struct, frozen=True):
    """Ask Slurm for something, for nodes by their names."""

    verb: Verb
    names: tuple[str, ...]
    why: str

    def parts(self, size: int) -> "Iterator[Request]":
        """Split it for Slurm: no more nodes at once than this."""
        for start in range(0, len(self.names), size):
            yield Request(self.verb, self.names[start : start + size], self.why)


class PowerDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask Slurm for, the most important first; and which ordinals are active."""

    active: frozenset[int]
    written: frozenset[int]
    """Those of them that follow from Slurm: others were requested by users, and Slurm has not started them yet."""
    startable: frozenset[int]
    """Those of them for which a pod is made if there is none."""
    requests: tuple[Request, ...] = ()
    states: tuple[NodePower, ...] = ()
    hold: CapacityHold | None = None
    wrong: tuple[str, ...] = ()
    """What somebody has to see to."""
    refused: str = ""
    """Why nodes that people asked for are not started."""
    unlisted: tuple[str, ...] = ()
    """Nodes that Slurm does not have, though slurm.conf names them: it has to read that once more."""
    look_again: float | None = None


def phase_of(record: Node | None) -> Phase:
    """How far a node is. A node that Slurm does not know, or does not count, is unknown."""
    if record is None:
        return "unknown"
    states = frozenset(record.state)
    if "POWERING_DOWN" in states:
        return "stopping"
    if "DOWN" in states and record.reason.startswith(HELD):
        return "held"
    if "POWERED_DOWN" in states:
        return "failed" if "DOWN" in states else "off"
    if "POWERING_UP" in states:
        return "starting"
    return "unknown" if "FUTURE" in states or "CLOUD" not in states else "on"


def is_off(record: Node) -> bool:
    """Whether Slurm has stopped a node, or is about to: no job can begin in the pod that it has."""
    return phase_of(record) in {"off", "stopping"} and _BUSY.isdisjoint(record.state)


def decide(view: PowerView) -> PowerDecision:
    if not view.in_touch:
        known = {it.ordinal for it in view.slots if it.phase in {"off", "stopping", "held", "failed", "unknown"}}
        return PowerDecision(
            active=view.active,
            written=view.written,
            startable=view.active - known,
            states=view.states,
            hold=view.hold,
        )
    late = [*_late(view), *_given_up(view)]
    hold = _hold(view, late)
    holding = _lasts(hold, view.now)
    wished, refused = _wished(view, holding=holding)
    missed = _ordinals(late)
    followed = frozenset(
        it.ordinal
        for it in view.slots
        if (it.phase in {"starting", "on"} and it.ordinal not in missed)
        or (it.phase == "unknown" and it.ordinal in view.active)
    )
    requests = (
        *_requested_by_people(view, wished),
        *_together("PowerDown", "its machine is being removed", (it for it in view.slots if _is_doomed(it))),
        *_returned(view, holding=holding),
        # Nodes are fenced before jobs are taken from others: else these would start here once more.
        *_limits(view, hold if holding else None),
        *_capacity(late, hold, holding=holding),
        *_together("Settle", "its pod is gone", (it for it in view.slots if _is_settled(it))),
    )
    before = {(it.ordinal, it.state): it.since for it in view.states}
    states = tuple(_power(view, it, before) for it in view.slots if it.phase in _STATES)
    startable = {it.ordinal for it in view.slots if it.phase in {"starting", "on"}}
    active = followed | {it.ordinal for it in wished}
    return PowerDecision(
        active=active,
        written=followed,
        startable=active & startable,
        requests=tuple(it for it in requests if it.names),
        states=states,
        hold=hold,
        wrong=_wrong(view, hold if holding else None),
        refused=refused,
        unlisted=tuple(it.name for it in view.slots if it.record is None and it.pod == "none"),
        look_again=_look_again(view, hold if holding else None),
    )


def in_turn(requests: Iterable[Request], last: Request | None, *, size: int) -> list[Request]:
    """Put requests, in parts of so many nodes, into the order of their turns: one between two looks at Slurm.

    What was sent last comes last: if it had no effect, others have their turn.
    """
    parts = [part for it in requests for part in it.parts(size)]
    return sorted(parts, key=lambda it: it == last)


# What people ask for


def _wished(view: PowerView, *, holding: bool) -> tuple[list[Slot], str]:
    """Nodes that people added to the active ones, and that Slurm has not begun to start."""
    added = [it for it in view.slots if it.ordinal in view.active - view.written and it.phase == "off"]
    if not added:
        return [], ""
    on = sum(it.phase in {"on", "starting"} or it.waking for it in view.slots)
    room = 0 if holding else len(added) if view.limits.dry_run else view.limits.room(on).nodes
    waking = [it for it in added if it.waking]
    others = [it for it in added if not it.waking]
    why = view.hold.cause if holding and view.hold else view.limits.room(on).reason
    left = others[room:]
    return [*waking, *others[:room]], f"{_names(left)} is not started: {why}" if left else ""


def _requested_by_people(view: PowerView, wished: Collection[Slot]) -> Iterator[Request]:
    yield from _together("Unfence", "requested in activeNodes", (it for it in wished if it.fenced))
    yield from _together("PowerUp", "requested in activeNodes", (it for it in wished if not it.waking))
    removed = view.written - view.active
    gone = (it for it in view.slots if it.ordinal in removed and it.phase == "on" and not it.has("POWER_DOWN"))
    yield from _together("PowerDown", "removed from activeNodes", gone)


# Capacity


def _late(view: PowerView) -> Iterator[Slot]:
    """Nodes that have no machine in time, or one on which their pod does not get on."""
    since = {it.ordinal: it.since for it in view.states if it.state == "PoweringUp"}
    for slot in view.slots:
        begun = since.get(slot.ordinal)
        waits = begun is not None and (view.now - begun).total_seconds() >= CAPACITY_S
        if slot.phase == "starting" and waits and (slot.pod == "none" or not slot.placed or slot.trouble):
            yield slot


def _given_up(view: PowerView) -> list[Slot]:
    """Nodes that Slurm itself has set down, because they did not come in its time."""
    return [it for it in view.slots if it.phase == "failed" and it.reason.startswith(RESUME_TIMEOUT)]


def _hold(view: PowerView, late: Collection[Slot]) -> CapacityHold | None:
    """Hold the NodeSet if nodes did not come: twice as long each time in a row."""
    before = view.hold
    if before and _lasts(before, view.now):
        return before
    if late:
        failures = (before.failures if before else 0) + 1
        causes = [it.trouble for it in late if it.trouble]
        cause = causes[0] if causes else "nodes did not start in time"
        return CapacityHold(failures, view.now + _pause(failures), cause)
    # One that came shows that there is capacity again.
    came = any(it.phase == "on" and it.pod == "ready" for it in view.slots)
    return None if came else before


def _pause(failures: int) -> timedelta:
    return timedelta(seconds=min(_MAX_HOLD_S, _FIRST_HOLD_S * 2 ** min(failures - 1, 10)))


def _lasts(hold: CapacityHold | None, now: datetime) -> bool:
    """Whether a hold is not over. One that would last longer than it may was written by a clock set back since."""
    return hold is not None and hold.until is not None and now < hold.until <= now + _pause(hold.failures)


def _capacity(late: Collection[Slot], hold: CapacityHold | None, *, holding: bool) -> Iterator[Request]:
    if holding and hold:
        reason = f"{HELD}{hold.cause}"[:_MAX_REASON_CHARS]
        yield from _together("SetDown", reason, late)


def _returned(view: PowerView, *, holding: bool) -> Iterator[Request]:
    """Nodes that are down for us or for Slurm's time-out become off again, when the hold is over.

    So do those that are off and down for no reason that anybody gives: somebody took it away.
    """
    if holding:
        return
    held = (it for it in view.slots if _is_held(it) and not it.has("POWER_DOWN"))
    yield from _together("PowerDown", "tried again", held)


def _is_held(slot: Slot) -> bool:
    return slot.phase == "held" or (slot.phase == "failed" and not slot.reason and not slot.has("DRAIN"))


# Limits


def _limits(view: PowerView, hold: CapacityHold | None) -> Iterator[Request]:
    limits, slots = view.limits, view.slots
    on = [it for it in slots if it.phase in {"on", "starting"} or it.waking]
    busy = sum(it.busy for it in on)
    floor = limits.floor(busy)
    maximum = limits.maximum
    if limits.dry_run:
        floor, maximum = floor._replace(nodes=0), maximum._replace(nodes=len(slots))
    off = [it for it in slots if it.phase == "off" and not it.waking]
    fenced = _ordinals(_to_fence(off, room=maximum.nodes - len(on), holding=hold is not None))
    why = f"{FENCED}{hold.cause if hold else maximum.reason}"[:_MAX_REASON_CHARS]
    shut = (it for it in off if it.ordinal in fenced and (not it.has(*_SHUT) or _says_otherwise(it, why)))
    yield from _together("Fence", why, shut)
    opened = (it for it in slots if it.ordinal not in fenced and _is_open_again(it))
    yield from _together("Unfence", "may be started", opened)
    short = max(0, min(floor.nodes, maximum.nodes) - len(on))
    if hold is None:
        candidates = [it for it in off if it.ordinal not in fenced and not it.has(*_SHUT)]
        yield from _together("PowerUp", floor.reason, candidates[:short])
    idle = [it for it in slots if it.dispensable]
    kept, others = idle[: max(0, floor.nodes - busy)], idle[max(0, floor.nodes - busy) :]
    surplus = max(0, len([it for it in on if not it.has("POWER_DOWN")]) - maximum.nodes)
    released = others[::-1][:surplus]
    gone = _ordinals(released)
    yield from _together("PowerDown", maximum.reason, released)
    if not limits.dry_run and limits.idle.seconds < view.idle_in_slurm:
        rested = [it for it in others if it.ordinal not in gone]
        yield from _together(
            "PowerDown", limits.idle.reason, (it for it in rested if _idle_for(view, it) >= limits.idle.seconds)
        )
    awake = kept if floor.nodes > view.kept_by_slurm else []
    tired = (it for it in awake if it.ordinal not in gone and _idle_for(view, it) >= view.idle_in_slurm / 2)
    yield from _together("KeepAwake", floor.reason, tired)


def _to_fence(off: list[Slot], *, room: int, holding: bool) -> list[Slot]:
    """Which nodes that are off must stay so: those that are fenced already, then the highest."""
    if holding:
        return off
    ordered = sorted(off, key=lambda it: (not it.fenced, -it.ordinal))
    return ordered[: max(0, len(off) - max(0, room))]


def _says_otherwise(slot: Slot, why: str) -> bool:
    """Whether a fence names a limit that is not the one that holds. What follows a colon are its details."""
    return slot.fenced and _limit_of(slot.reason) != _limit_of(why)


def _limit_of(reason: str) -> str:
    return reason.removeprefix(FENCED).partition(":")[0]


def _is_open_again(slot: Slot) -> bool:
    """Whether a drain of ours has no more reason: its fence, or a drain for a pod that is gone."""
    if slot.fenced:
        return True
    return slot.phase == "off" and slot.pod == "none" and slot.has("DRAIN") and slot.reason.startswith(OURS.strip())


def _is_doomed(slot: Slot) -> bool:
    """Whether a node is drained because its machine goes, and runs nothing: only a job starts it on another one."""
    drained = slot.has("DRAIN") and slot.reason.startswith(OURS.strip())
    return slot.doomed and slot.phase == "on" and drained and not slot.busy and not slot.has("POWER_DOWN")


def _is_settled(slot: Slot) -> bool:
    return slot.phase == "stopping" and slot.pod == "none" and not slot.busy and not slot.has(*_SHUT)


def _idle_for(view: PowerView, slot: Slot) -> float:
    last = slot.record.last_busy.value if slot.record else None
    return view.now.timestamp() - last if last else 0.0


# Report


def _power(view: PowerView, slot: Slot, before: Mapping[tuple[int, str], datetime | None]) -> NodePower:
    state = _STATES[slot.phase]
    now = view.now.replace(microsecond=0, tzinfo=UTC)
    # No later than now: a clock that was set back must not make a node wait for longer.
    return NodePower(slot.ordinal, state, min(before.get((slot.ordinal, state)) or now, now))


def _wrong(view: PowerView, hold: CapacityHold | None) -> tuple[str, ...]:
    found = []
    if hold and hold.until:
        when = hold.until.astimezone(UTC).strftime("%H:%M:%S UTC")
        found.append(f"nodes could not be started, and are tried again at {when}: {hold.cause}")
    unused = [it for it in view.slots if it.has("FUTURE")]
    if unused:
        found.append(f"Slurm does not use {_names(unused)}: {unused[0].reason or 'no reason given'}")
    return tuple(found)


def _look_again(view: PowerView, hold: CapacityHold | None) -> float | None:
    pauses = []
    if hold and hold.until:
        pauses.append((hold.until - view.now).total_seconds())
    if view.limits.next_change:
        pauses.append((view.limits.next_change - view.now).total_seconds())
    since = {it.ordinal: it.since for it in view.states if it.state == "PoweringUp"}
    for slot in view.slots:
        if slot.phase == "starting":
            begun = min(since.get(slot.ordinal) or view.now, view.now)
            pauses.append(CAPACITY_S - (view.now - begun).total_seconds())
        elif slot.dispensable:
            pauses.append(min(view.idle_in_slurm / 2, view.limits.idle.seconds) - _idle_for(view, slot))
    positive = [max(1.0, it) for it in pauses]
    return min(positive, default=None)


def _together(verb: Verb, why: str, slots: Iterable[Slot]) -> Iterator[Request]:
    found = tuple(it.name for it in slots)
    if found:
        yield Request(verb, found, why)


def _ordinals(slots: Iterable[Slot]) -> frozenset[int]:
    """Slots by number: to compare them whole takes a second where there are thousands."""
    return frozenset(it.ordinal for it in slots)


def _names(slots: Collection[Slot]) -> str:
    found = [it.name for it in slots]
    return found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more"
