"""What a rebooter does next about its own machine.

    SlurmNodeDrain=True     NodeDraining ─► cordon ─► taint, or evict ─► (pods have gone) ─► NodeDrained
    SlurmNodeReboot=True    (no jobs) ─► lock ─► drain as above ─► NodeRebooting ─► reboot
                            ─► (another boot) ─► undo cordon and taint ─► NodeUndrained ─► unlock ─► NodeRebooted
    neither                 undo what an abandoned request left behind

`next_step` is a function of what is there now: whoever is killed between two steps goes on with the same one. What
it must not forget is a `Mark` in an annotation of the Node, written with the change that it tells of.

Whether the machine was rebooted for a request is told by the identity of its boot, which the mark holds before.
Times alone would not do: with a clock that is behind, a machine would be rebooted again and again.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from isthmus import names
from isthmus.domain.kube import feasibility
from isthmus.domain.languages.prose import some
from isthmus.model.base import Data
from isthmus.model.meta import Condition, ConditionStatus, Key, condition
from isthmus.model.node import Node, Taint
from isthmus.model.nodeconfigurator import EvictionMethod
from isthmus.model.pod import Pod

TAINT: Final = Taint(key=names.EVICTION_TAINT, value="true", effect="NoExecute")

PODS_AGAIN: Final = 5.0
"""Seconds after which an eviction that a disruption budget forbade is tried again."""
LOCK_AGAIN: Final = 10.0
"""Seconds between two attempts to get the lock."""
SLOW: Final = 60.0
"""Seconds after which everything is looked at again, whether or not anything happened."""
REBOOT_PATIENCE: Final = 600.0
"""Seconds that a machine has to go down before the command is repeated."""

NEED_REBOOT: Final = "NodeNeedReboot"
REBOOTING: Final = "NodeRebooting"
REBOOTED: Final = "NodeRebooted"
DRAINING: Final = "NodeDraining"
DRAINED: Final = "NodeDrained"
UNDRAINED: Final = "NodeUndrained"
"""Reasons of the two conditions, by their names in Soperator; NodeNeedDrain is written by who asks."""


class Boot(msgspec.Struct, frozen=True):
    """A boot of a machine: its identity and its time."""

    id: str
    at: datetime


class Mark(Data, frozen=True):
    """What the rebooter changed on its Node, and for which reboot; as an annotation."""

    cordoned: bool = False
    """Whether it was us who cordoned the node."""
    tainted: bool = False
    drains: bool = False
    """Whether SlurmNodeDrain is ours: nobody asked for it but the reboot."""
    request: str = ""
    """The reboot that was asked for: when that was."""
    boot: str = ""
    """The boot that it is to end."""
    told: datetime | None = None
    """When the reboot command was given."""


class Lock(msgspec.Struct, frozen=True):
    """The cluster-wide lock, as it is for this machine."""

    held: bool = False
    free: bool = False
    holders: tuple[str, ...] = ()
    """Who has it, if it is neither free nor ours."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the rebooter knows."""

    node: Node
    pods: tuple[Pod, ...]
    """Those on this node."""
    boot: Boot
    now: datetime
    lock: Lock = Lock()
    method: EvictionMethod = "evict"
    ignore_protection: bool = False
    """Whether to go on though Slurm's jobs may be running there."""


class SetNode(msgspec.Struct, frozen=True):
    """Change the Node: its cordon, its taints, and our mark (None removes it), all at once."""

    unschedulable: bool
    taints: tuple[Taint, ...]
    mark: Mark | None


class SetCondition(msgspec.Struct, frozen=True):
    type: str
    status: ConditionStatus
    reason: str
    message: str


class Evict(msgspec.Struct, frozen=True):
    """Ask pods to leave, by the Eviction API."""

    pods: tuple[tuple[Key, str], ...]
    """Each with its uid."""


class TakeLock(msgspec.Struct, frozen=True):
    pass


class ReleaseLock(msgspec.Struct, frozen=True):
    pass


class Reboot(msgspec.Struct, frozen=True):
    """Record the reboot in the mark, and give the command."""

    mark: Mark


class Rest(msgspec.Struct, frozen=True):
    """Do nothing until something changes, or so many seconds have passed."""

    after: float
    why: str = ""


Step: TypeAlias = SetNode | SetCondition | Evict | TakeLock | ReleaseLock | Reboot | Rest


def mark_of(node: Node) -> Mark | None:
    """Read our mark. One that cannot be read is taken to say that cordon and taint are ours."""
    text = node.metadata.annotations.get(names.REBOOTER_ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return Mark(cordoned=True, tainted=True)


def needs_lock(node: Node) -> bool:
    """Whether it matters who has the lock."""
    mark = mark_of(node)
    return _wants_reboot(node) is not None or (mark is not None and bool(mark.request))


def next_step(seen: Seen) -> Step:
    """Decide what comes next; `Rest` if there is nothing to do now."""
    mark = mark_of(seen.node) or Mark()
    asked = _wants_reboot(seen.node)
    drain = condition(seen.node.status.conditions, names.NODE_DRAIN_CONDITION)
    if asked is not None:
        steps = _after_boot(seen, mark) if _rebooted(asked, mark, seen.boot) else _towards_boot(seen, mark, asked)
    elif drain is not None and drain.status == "True" and not mark.drains:
        steps = _keep_drained(seen, mark)
    else:
        steps = _put_back(seen, mark)
    # Each of these goes through all that has to be, and stops at what is not yet so.
    return next(steps, Rest(SLOW))


def _wants_reboot(node: Node) -> Condition | None:
    found = condition(node.status.conditions, names.NODE_REBOOT_CONDITION)
    return found if found and found.status == "True" and found.reason != REBOOTED else None


def _request(asked: Condition) -> str:
    return asked.last_transition_time.isoformat() if asked.last_transition_time else "undated"


def _rebooted(asked: Condition, mark: Mark, boot: Boot) -> bool:
    if mark.request == _request(asked):
        return mark.boot != boot.id
    return asked.last_transition_time is not None and boot.at > asked.last_transition_time


def _towards_boot(seen: Seen, mark: Mark, asked: Condition) -> Iterator[Step]:
    reboot = names.NODE_REBOOT_CONDITION
    if busy := _busy(seen):
        # A cordon makes the operator drain their Slurm nodes; their protection goes with the last job.
        yield from _cordon(seen, mark)
        yield from _tell(seen, reboot, NEED_REBOOT, busy)
        if seen.lock.held:
            yield ReleaseLock()  # jobs may take days, and others need not wait for them
        yield Rest(SLOW, busy)
    if not seen.lock.held:
        if seen.lock.free:
            yield TakeLock()
        waits = f"waits until other machines have been rebooted: {some(seen.lock.holders)}"
        yield from _tell(seen, reboot, NEED_REBOOT, waits)
        yield Rest(LOCK_AGAIN, waits)
    if mark.request != _request(asked):
        drain = condition(seen.node.status.conditions, names.NODE_DRAIN_CONDITION)
        ours = mark.drains or drain is None or drain.status != "True"
        begun = replace(mark, request=_request(asked), boot=seen.boot.id, drains=ours, told=None)
        yield _with_mark(seen.node, begun)
    yield from _empty(seen, mark)
    yield from _tell(seen, reboot, REBOOTING, "the machine is being rebooted")
    since = (seen.now - mark.told).total_seconds() if mark.told else REBOOT_PATIENCE
    if since >= REBOOT_PATIENCE:
        yield Reboot(replace(mark, told=seen.now))
    yield Rest(REBOOT_PATIENCE - since, "waits until the machine goes down")


def _after_boot(seen: Seen, mark: Mark) -> Iterator[Step]:
    yield from _undo(seen, mark)
    yield from _tell(seen, names.NODE_REBOOT_CONDITION, REBOOTED, "the machine has been rebooted")


def _keep_drained(seen: Seen, mark: Mark) -> Iterator[Step]:
    if mark.request:  # of a reboot that is over, or nobody wants any more
        if seen.lock.held:
            yield ReleaseLock()
        yield _with_mark(seen.node, replace(mark, request="", boot="", told=None))
    if busy := _busy(seen):
        yield from _tell(seen, names.NODE_DRAIN_CONDITION, DRAINING, busy)
        yield from _cordon(seen, mark)
        yield Rest(SLOW, busy)
    yield from _empty(seen, mark)


def _put_back(seen: Seen, mark: Mark) -> Iterator[Step]:
    yield from _undo(seen, mark)
    if names.REBOOTER_ANNOTATION in seen.node.metadata.annotations:
        yield _with_mark(seen.node, None)


def _empty(seen: Seen, mark: Mark) -> Iterator[Step]:
    """Cordon the node, and see its pods off."""
    node, drain, by_taint = seen.node, names.NODE_DRAIN_CONDITION, seen.method == "evict"
    left = tuple(it for it in seen.pods if has_to_go(it))
    if left or not node.spec.unschedulable or (by_taint and not _is_tainted(node)):
        yield from _tell(seen, drain, DRAINING, "pods are leaving the node")
    yield from _cordon(seen, mark)
    if by_taint and not _is_tainted(node):
        yield SetNode(unschedulable=True, taints=(*node.spec.taints, TAINT), mark=replace(mark, tainted=True))
    if left:
        staying = tuple((it.metadata.key, it.metadata.uid) for it in left if not it.leaving)
        if not by_taint and staying:
            yield Evict(staying)
        yield Rest(SLOW, f"waits until pods have left: {some(str(it.metadata.key) for it in left)}")
    yield from _tell(seen, drain, DRAINED, "all pods that had to leave have left")


def _undo(seen: Seen, mark: Mark) -> Iterator[Step]:
    """Take back cordon and taint as far as they are ours, then the drain and the lock."""
    node = seen.node
    if mark.cordoned or mark.tainted:
        yield SetNode(
            unschedulable=node.spec.unschedulable and not mark.cordoned,
            taints=tuple(it for it in node.spec.taints if not (mark.tainted and _is_ours(it))),
            mark=replace(mark, cordoned=False, tainted=False),
        )
    drain = condition(node.status.conditions, names.NODE_DRAIN_CONDITION)
    if drain is not None and drain.status == "True":
        yield SetCondition(names.NODE_DRAIN_CONDITION, "False", UNDRAINED, "pods may run on the node again")
    if seen.lock.held:
        yield ReleaseLock()


def _cordon(seen: Seen, mark: Mark) -> Iterator[SetNode]:
    if not seen.node.spec.unschedulable:
        yield SetNode(unschedulable=True, taints=seen.node.spec.taints, mark=replace(mark, cordoned=True))


def _with_mark(node: Node, mark: Mark | None) -> SetNode:
    return SetNode(unschedulable=node.spec.unschedulable, taints=node.spec.taints, mark=mark)


def _tell(seen: Seen, type_: str, reason: str, message: str) -> Iterator[SetCondition]:
    there = condition(seen.node.status.conditions, type_)
    if there is None or (there.status, there.reason, there.message) != ("True", reason, message):
        yield SetCondition(type_, "True", reason, message)


def _busy(seen: Seen) -> str:
    """Why the node cannot be emptied yet: pods from which a job could be lost; empty if there are none."""
    if seen.ignore_protection:
        return ""
    pods = [
        it.metadata.name
        for it in seen.pods
        if it.metadata.labels.get(names.POD_PROTECT_LABEL) == "true" and not it.finished
    ]
    return f"waits until Slurm's jobs have ended on {some(sorted(pods))}" if pods else ""


def has_to_go(pod: Pod) -> bool:
    """Whether a pod may not be there when the machine goes down; those that tolerate the taint may."""
    owner = pod.metadata.controller
    belongs_here = owner is not None and owner.kind in {"DaemonSet", "Node"}
    return not (pod.finished or belongs_here or feasibility.tolerates(pod, TAINT))


def _is_tainted(node: Node) -> bool:
    return any(map(_is_ours, node.spec.taints))


def _is_ours(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (TAINT.key, TAINT.effect)
