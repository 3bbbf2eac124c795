"""What to do about one node, from what Kubernetes and Slurm say of it.

    Kubernetes                                          Slurm
    label external-node                           ──►   an external node, as large as what is left for Slurm there
    label or node gone, nothing left, resized     ──►   drained, and deleted as soon as it is idle
    resized a little                              ──►   recreated as soon as it is idle
    cordoned by people, or not ready for a while  ──►   drained, with a reason of ours
    about to be removed, by whomever              ──►   drained, with a reason of ours
    cordoned by us, with a mark of ours           ◄──   drained, down or failing, with a reason of somebody else's
    a device has a taint                          ──►   made anew with it apart, or drained

Two owners never fight over a node, because each side says who shut it. A drain whose reason is not ours is never
lifted or renamed, nor is a cordon without our mark. Somebody who uncordons a node that we have cordoned is obeyed
until Slurm has taken the node back. What we did is never taken for what somebody wants: our cordon causes no drain
and our drain no cordon.

`decide` is a function of the state alone: once its actions are done it has nothing more to say.
"""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from isthmus import names
from isthmus.domain.bridge import gresindex, noderecord
from isthmus.domain.bridge.devicefacts import repelling
from isthmus.domain.bridge.devices import NO_DEVICES, NodeDevices
from isthmus.domain.bridge.gresindex import Table
from isthmus.domain.bridge.noderecord import NO_RESERVE, OURS, NothingLeftError, Record, Reserve, Wanted
from isthmus.domain.kube.removal import notice_of
from isthmus.domain.languages.prose import some
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.meta import condition
from isthmus.model.node import Node, Taint
from isthmus.model.slurm import Node as SlurmNode

_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_SHUT: Final = frozenset({"DOWN", "FAIL", "ERROR"})
_RELEASED: Final = "uncordoned by hand, while "
_BY_PROGRAMS: Final = ("slurm-operator:", "Not responding")
"""In reasons of programs. The operator drains because of what Kubernetes says, so that a cordon would feed itself;
and a slurmd in a pod could not come back to a cordoned node."""

_OF_CHECKS: Final = re.compile(
    r"\[(node_problem|user_problem|hardware_problem|compute_maintenance)\]"
    r"|\[(slurm_job|k8s_job|prolog|epilog|hc_program)\]$|Kill task failed|^(Prolog|Epilog) error$"
)
"""Reasons of node health and of checks. Who repairs a slurmd in a pod makes that pod anew, and on a cordoned
machine it would find no place."""

COMPLAINT_PAUSE: Final = 60.0
"""Seconds after which a reported problem is checked again."""


class Rules(msgspec.Struct, frozen=True):
    """What is the same for all nodes."""

    cluster: str
    scheduler_name: str = names.SCHEDULER_NAME
    taint: str | None = None
    gres: Mapping[str, str] = EMPTY
    feature_labels: tuple[str, ...] = ()
    """Labels of Kubernetes nodes whose values become features of external nodes."""
    grace: float = 10.0
    """For how many seconds a node may be not ready before it is drained."""


class SlurmCapabilities(msgspec.Struct, frozen=True):
    """What Slurm can do and has, as far as a node needs it."""

    can_register: bool = True
    partitions: Collection[str] = ()


class Register(msgspec.Struct, frozen=True):
    """Make the node in Slurm."""

    wanted: Wanted


class Update(msgspec.Struct, frozen=True):
    """Change a node of ours in place; fields that are None stay as they are."""

    name: str
    record: Record
    features: tuple[str, ...] | None = None
    topology: str | None = None
    address: str | None = None
    hostname: str | None = None
    clear_reason: bool = False


class Drain(msgspec.Struct, frozen=True):
    """Let no further job onto the node."""

    name: str
    reason: str


class Undrain(msgspec.Struct, frozen=True):
    """Undo a drain of ours. A node that is down stays down."""

    name: str


class Delete(msgspec.Struct, frozen=True):
    """Remove an idle node of ours from Slurm."""

    name: str


class Cordon(msgspec.Struct, frozen=True):
    """Shut the node in Kubernetes, with our mark."""

    mark: str


class Uncordon(msgspec.Struct, frozen=True):
    """Open the node that we shut, and remove the mark."""


class Mark(msgspec.Struct, frozen=True):
    """Change or remove (None) our mark alone."""

    mark: str | None


class Retaint(msgspec.Struct, frozen=True):
    """Set the taints of the node."""

    taints: tuple[Taint, ...]


class Report(msgspec.Struct, frozen=True):
    """Say in a condition of the Kubernetes node whether Slurm counts its devices as their drivers do."""

    compatible: bool
    message: str


Action: TypeAlias = Register | Update | Drain | Undrain | Delete | Cordon | Uncordon | Mark | Retaint | Report


class Complaint(msgspec.Struct, frozen=True):
    """A problem that only people can fix: the reason of an Event, and a sentence."""

    reason: str
    note: str


class Decision(msgspec.Struct, frozen=True):
    """What to do now, what to report, and in how many seconds to look again if nothing changes (None: never)."""

    actions: tuple[Action, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    look_again: float | None = None
    differs: bool = False
    """Whether Slurm has a node of ours with another size or other GRES than Kubernetes gives it."""


NOTHING: Final = Decision()


def decide(
    kube: Node | None,
    slurm: SlurmNode | None,
    *,
    name: str,
    rules: Rules,
    now: datetime,
    capabilities: SlurmCapabilities,
    reserved: Reserve = NO_RESERVE,
    devices: NodeDevices = NO_DEVICES,
) -> Decision:
    """Decide about the node that Slurm calls, or would call, `name`. Only to be asked while both sides answer.

    `devices` are those that drivers publish for it (DRA).
    """
    if kube is None:
        return _leave(slurm, rules) if slurm else NOTHING
    if names.EXTERNAL_NODE_LABEL not in kube.metadata.labels:
        placed = _leave(slurm, rules) if slurm and noderecord.cluster_of(slurm) == rules.cluster else None
        plan = placed or _follow(kube, slurm, rules, now, devices)
    else:
        plan = _external(
            kube,
            slurm,
            name=name,
            rules=rules,
            now=now,
            capabilities=capabilities,
            reserved=reserved,
            devices=devices,
        )
    taints = _taints(kube, rules, managed=slurm is not None and not _foreign(slurm, rules))
    reports = _reports(kube, slurm, devices) if slurm else ()
    return msgspec.structs.replace(plan, actions=(*plan.actions, *taints, *reports))


def index_of(devices: NodeDevices, slurm: SlurmNode, *, node: str) -> Table | str:
    """Find the device of each index that Slurm has on a Kubernetes node, or say why they do not agree."""
    record = noderecord.read(slurm)
    return gresindex.table(devices, slurm.gres, record.devices if record else (), node=node)


def _reports(kube: Node, slurm: SlurmNode, devices: NodeDevices) -> tuple[Report, ...]:
    told = condition(kube.status.conditions, names.NODE_GRES_CONDITION)
    if not (devices.devices or devices.skipped) and told is None:
        return ()
    found = index_of(devices, slurm, node=kube.metadata.name)
    if not devices.complete:
        report = Report(compatible=False, message="a driver has not published all slices of its devices yet")
    elif isinstance(found, str):
        needed = gresindex.needed(devices)
        report = Report(compatible=False, message=f"{found}; Slurm's node {slurm.name} needs Gres={needed}")
    else:
        told_of = f"Slurm's node {slurm.name} has the devices that drivers publish"
        report = Report(compatible=True, message=f"{told_of}{_left_out(devices)}")
    known = told is not None and (told.status, told.message) == (str(report.compatible), report.message)
    return () if known else (report,)


def _left_out(devices: NodeDevices) -> str:
    """Name devices that Slurm does not count, with the reason."""
    found: dict[str, list[str]] = {}
    for name, why in devices.skipped.items():
        found.setdefault(why, []).append(name)
    told = (f"{some(left_out, 3)} ({why})" for why, left_out in found.items())
    return f", except {'; '.join(told)}" if found else ""


def slurm_facts(node: SlurmNode) -> tuple[object, ...]:
    """Everything that decisions read of a Slurm node: neither load nor free memory, which change all the time."""
    size = node.cpus, node.real_memory
    return (
        node.state,
        node.reason,
        node.extra,
        node.features,
        node.address,
        node.hostname,
        node.topology,
        size,
        node.gres,
    )


def kube_facts(node: Node) -> tuple[object, ...]:
    """Everything that decisions read of a Kubernetes node. The time of a heartbeat is not even decoded."""
    return node.metadata.labels, node.metadata.annotations, node.spec, node.status


def _external(
    kube: Node,
    slurm: SlurmNode | None,
    *,
    name: str,
    rules: Rules,
    now: datetime,
    capabilities: SlurmCapabilities,
    reserved: Reserve,
    devices: NodeDevices,
) -> Decision:
    if slurm and (_foreign(slurm, rules) or not _made_by_us_or_like_it(slurm)):
        if _foreign(slurm, rules):
            return _complain("NameTaken", f"Slurm's node {name} belongs to another Kubernetes cluster")
        return _follow(kube, slurm, rules, now, devices)  # A node of slurm.conf: not ours to make or delete.
    try:
        wanted = noderecord.describe(
            kube,
            name,
            cluster=rules.cluster,
            gres=rules.gres,
            feature_labels=rules.feature_labels,
            reserved=reserved,
            devices=devices,
        )
    except Terminal as error:
        return _cannot_be(kube, slurm, error, rules, now)
    unknown = [it for it in noderecord.partitions(kube) if it not in capabilities.partitions]
    if unknown:
        note = f"Slurm has no partition {', '.join(unknown)}: correct {names.NODE_PARTITIONS_ANNOTATION}"
        plan = _complain("UnknownPartition", note)
        return _also(plan, _follow(kube, slurm, rules, now)) if slurm else plan
    if slurm is None:
        return _register(kube, wanted, rules, now, capabilities=capabilities)
    return _keep(kube, slurm, wanted, rules, now, complete=devices.complete)


def _cannot_be(kube: Node, slurm: SlurmNode | None, error: Terminal, rules: Rules, now: datetime) -> Decision:
    """Why a node cannot be in Slurm. One with nothing left is removed there; other faults can wait."""
    remedy = f" ({error.remedy})" if error.remedy else ""
    plan = _complain("CannotRegister", f"cannot be registered in Slurm: {error.what}{remedy}")
    if slurm is None:
        return plan
    follow = _follow(kube, slurm, rules, now)
    if isinstance(error, NothingLeftError) and not _otherwise_shut(kube, slurm, rules, now):
        reason = f"{OURS} Corresponding Kubernetes node ({kube.metadata.name}) has nothing left for Slurm"
        follow = _also(Decision(actions=_remove(slurm, reason)), _marks_only(follow))
    return _also(plan, follow)


def _register(
    kube: Node, wanted: Wanted, rules: Rules, now: datetime, *, capabilities: SlurmCapabilities
) -> Decision:
    follow = _follow(kube, None, rules, now)
    if not capabilities.can_register:
        return _also(_complain("CannotRegister", "external nodes need Slurm 25.11 or newer"), follow)
    if not _ready(kube):
        return follow  # What a kubelet says before it is ready, about its devices for one, is not its last word.
    reason = _shut_reason(kube, rules, now)
    drains = (Drain(wanted.name, reason),) if reason else ()
    return _also(Decision(actions=(Register(wanted), *drains)), follow)


def _keep(kube: Node, slurm: SlurmNode, wanted: Wanted, rules: Rules, now: datetime, *, complete: bool) -> Decision:
    """Keep a node of ours as it should be, or recreate it if that is what it takes.

    While its devices are not `complete`, a driver is publishing them: it keeps those that it has.
    """
    record = noderecord.read(slurm)
    if record is None:
        if noderecord.cluster_of(slurm) != rules.cluster and slurm.address not in _addresses(kube, slurm):
            note = f"Slurm has a node {slurm.name} with the address {slurm.address}, which is not this one"
            return _complain("NameTaken", note)
        record = noderecord.actual(slurm, rules.cluster)
    update = _update(slurm, wanted, record)
    follow = _follow(kube, slurm, rules, now)
    # Running pods do not move for a small change: the scheduler keeps pods away that are too large.
    waits = not complete or (_is_busy(slurm) and record.close_to(wanted.record))
    resized = (record.size, record.devices) != (wanted.record.size, wanted.record.devices)
    if resized and not waits and not _otherwise_shut(kube, slurm, rules, now):
        reason = f"{OURS} Corresponding Kubernetes node ({kube.metadata.name}) has changed its size"
        plan = Decision(actions=_remove(slurm, reason))
        if not _is_busy(slurm):
            return _also(plan, _marks_only(follow))
        follow = _also(plan, _marks_only(follow))
    # Slurm leaves out GRES that its GresTypes does not name, so what it made of the node counts, not what we asked.
    differs = noderecord.actual(slurm, rules.cluster).size != wanted.record.size
    return _also(follow, Decision(actions=update, differs=differs))


def _otherwise_shut(kube: Node, slurm: SlurmNode, rules: Rules, now: datetime) -> bool:
    """Whether a node is shut for another reason than its size: recreated, it would come back open."""
    return bool(_shut_reason(kube, rules, now) or _their_word(slurm)) or not _ready(kube)


def _update(slurm: SlurmNode, wanted: Wanted, record: Record) -> tuple[Update, ...]:
    """Change what Slurm can change. Features that others have added stay."""
    others = tuple(it for it in slurm.features if it not in record.features)
    features = tuple(dict.fromkeys((*others, *wanted.record.features)))
    topology = wanted.record.topology
    update = Update(
        name=slurm.name,
        record=msgspec.structs.replace(record, features=wanted.record.features, topology=topology),
        features=features if set(features) != set(slurm.features) else None,
        topology=topology if topology != record.topology else None,
        address=wanted.address if wanted.address != slurm.address else None,
        hostname=wanted.hostname if wanted.hostname != slurm.hostname else None,
        clear_reason=noderecord.is_new(slurm) and not is_out(slurm),
    )
    unchanged = Update(name=slurm.name, record=update.record)
    return () if update == unchanged and update.record == noderecord.read(slurm) else (update,)


def _leave(slurm: SlurmNode, rules: Rules) -> Decision:
    """Remove a node of ours that Kubernetes no longer gives to Slurm."""
    if noderecord.cluster_of(slurm) != rules.cluster or not _made_by_us_or_like_it(slurm):
        return NOTHING
    return Decision(actions=_remove(slurm, f"{OURS} removing external node {slurm.name}"))


def _remove(slurm: SlurmNode, reason: str) -> tuple[Action, ...]:
    """Drain, and delete as soon as nothing runs there. Slurm itself refuses to delete a node that is in use."""
    draining = "DRAIN" in slurm.state and (slurm.reason == reason or not _is_ours(slurm.reason))
    drain = () if draining else (Drain(slurm.name, reason),)
    return (*drain, *(() if _is_busy(slurm) else (Delete(slurm.name),)))


def _follow(
    kube: Node, slurm: SlurmNode | None, rules: Rules, now: datetime, devices: NodeDevices = NO_DEVICES
) -> Decision:
    """Carry decisions of each side over to the other.

    Of a node that we cannot make anew without them, `devices` with a taint keep all jobs away.
    """
    word = None if slurm is None or _foreign(slurm, rules) else _their_word(slurm)
    marks = _marks(kube, word)
    if slurm is None or _foreign(slurm, rules):
        return Decision(actions=marks)
    reason = _shut_reason(kube, rules, now) or _tainted(devices)
    return Decision(actions=(*marks, *_drains(slurm, reason)), look_again=_grace_left(kube, rules, now))


def _drains(slurm: SlurmNode, reason: str) -> tuple[Action, ...]:
    drained_by_us = "DRAIN" in slurm.state and _is_ours(slurm.reason)
    if reason:
        # Another reason would take the place of the one for which it is down, which Slurm needs to take it back.
        if (drained_by_us and slurm.reason != reason) or not is_out(slurm):
            return (Drain(slurm.name, reason),)
    elif drained_by_us and "UNDRAIN" not in slurm.state:
        return (Undrain(slurm.name),)
    return ()


def _marks(kube: Node, word: str | None) -> tuple[Action, ...]:
    mark, shut = _mark(kube), kube.spec.unschedulable
    if word is None:
        if mark and shut and not mark.startswith(_RELEASED):
            return (Uncordon(),)
        return (Mark(None),) if mark else ()
    if not mark:
        return () if shut else (Cordon(word),)
    if not shut and not mark.startswith(_RELEASED):
        return (Mark(f"{_RELEASED}{word}"),)
    return ()


def _shut_reason(kube: Node, rules: Rules, now: datetime) -> str:
    """Why Kubernetes wants the node drained; empty if it does not."""
    if notice := notice_of(kube):
        return f"{OURS} Corresponding Kubernetes node ({kube.metadata.name}) {notice.what}"
    if _shut_by_people(kube):
        return _cordoned(kube)
    if not _ready(kube) and _grace_left(kube, rules, now) is None:
        return f"{OURS} Corresponding Kubernetes node ({kube.metadata.name}) is not ready"
    return ""


def _tainted(devices: NodeDevices) -> str:
    for it in devices.devices:
        for taint in repelling(it.device):
            return f"{OURS} device {it.id.name} of {it.id.driver} has the taint {taint.key}:{taint.effect}"
    return ""


def _cordoned(kube: Node) -> str:
    return f"{OURS} Corresponding Kubernetes node ({kube.metadata.name}) is unschedulable"


def _shut_by_people(kube: Node) -> bool:
    mark = _mark(kube)
    return kube.spec.unschedulable and (not mark or mark.startswith(_RELEASED))


def _ready(kube: Node) -> bool:
    found = condition(kube.status.conditions, "Ready")
    return found is None or found.status == "True"


def _grace_left(kube: Node, rules: Rules, now: datetime) -> float | None:
    """For how long a node that is not ready may stay so; None if that is over, or it is ready."""
    found = condition(kube.status.conditions, "Ready")
    if found is None or found.status == "True" or found.last_transition_time is None:
        return None
    left = rules.grace - (now - found.last_transition_time).total_seconds()
    return min(left, rules.grace) if left > 0 else None


def _their_word(slurm: SlurmNode) -> str | None:
    """What others decided about the node in Slurm; None if it is open, or we shut it."""
    if not is_out(slurm) or _is_ours(slurm.reason) or any(it in slurm.reason for it in _BY_PROGRAMS):
        return None
    if "EXTERNAL" not in slurm.state and _OF_CHECKS.search(slurm.reason):
        return None
    state = "drained" if "DRAIN" in slurm.state else "down" if "DOWN" in slurm.state else "failing"
    who = f" by {slurm.reason_set_by_user}" if slurm.reason_set_by_user else ""
    return f"{state} in Slurm{who}: {slurm.reason or 'no reason given'}"


def is_out(slurm: SlurmNode) -> bool:
    """Whether Slurm starts nothing on a node: it is drained, down or failing."""
    drained = "DRAIN" in slurm.state and "UNDRAIN" not in slurm.state
    return drained or not _SHUT.isdisjoint(slurm.state)


def _is_ours(reason: str) -> bool:
    return reason.startswith(OURS)


def _is_busy(slurm: SlurmNode) -> bool:
    return slurm.alloc_cpus > 0 or not _BUSY.isdisjoint(slurm.state)


def _foreign(slurm: SlurmNode, rules: Rules) -> bool:
    return noderecord.cluster_of(slurm) not in {"", rules.cluster}


def _made_by_us_or_like_it(slurm: SlurmNode) -> bool:
    """Whether it was made while slurmctld ran and has no slurmd."""
    return {"EXTERNAL", "DYNAMIC_NORM"} <= set(slurm.state)


def _addresses(kube: Node, slurm: SlurmNode) -> set[str]:
    """By which addresses a node without a record is recognised: a node made without one has its name there."""
    return {slurm.name, *(it.address for it in kube.status.addresses)}


def _mark(kube: Node) -> str:
    return kube.metadata.annotations.get(names.NODE_CORDON_ANNOTATION, "")


def _taints(kube: Node, rules: Rules, *, managed: bool) -> tuple[Action, ...]:
    present = tuple(it for it in kube.spec.taints if it.key == names.MANAGED_TAINT)
    ours = tuple(it for it in present if it.value == rules.scheduler_name)
    wanted = Taint(names.MANAGED_TAINT, rules.taint, rules.scheduler_name) if rules.taint and managed else None
    if [(it.effect, it.value) for it in ours] == ([(wanted.effect, wanted.value)] if wanted else []):
        return ()
    rest = tuple(it for it in kube.spec.taints if it not in ours)
    return (Retaint((*rest, wanted) if wanted else rest),)


def _complain(reason: str, note: str) -> Decision:
    return Decision(complaints=(Complaint(reason, note),), look_again=COMPLAINT_PAUSE)


def _marks_only(plan: Decision) -> Decision:
    kept = tuple(it for it in plan.actions if isinstance(it, Cordon | Uncordon | Mark))
    return msgspec.structs.replace(plan, actions=kept)


def _also(first: Decision, second: Decision) -> Decision:
    looks = [it.look_again for it in (first, second) if it.look_again is not None]
    return Decision(
        (*first.actions, *second.actions),
        (*first.complaints, *second.complaints),
        min(looks, default=None),
        differs=first.differs or second.differs,
    )
