"""Conditions of machines: what is the matter with the Slurm nodes on them, under Soperator's names.

    SoperatorChecksNodeDegraded      we hold a Slurm node there; NodeNeedReboot while it is rebooted for it
    SoperatorChecksNodeMaintenance   maintenance was announced, and all Slurm nodes there are drained and idle
    HardwareIssuesSuspected          repairs did not help, or the machine is to be replaced
    SlurmNodeReboot, SlurmNodeDrain  requests to the rebooter: `ladder` makes them, and here they are taken back

Only what differs is written, and only for machines with a node that has a record.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from isthmus import names
from isthmus.domain.health.actions import SetCondition
from isthmus.domain.health.case import Case, is_idle
from isthmus.domain.health.limits import MACHINE_CLAIM
from isthmus.domain.health.observations import HARDWARE_CONDITION, HARDWARE_REASON
from isthmus.domain.health.reasons import USER_PROBLEM
from isthmus.domain.health.reboots import DRAINED, DRAINING, NEED_REBOOT, REBOOTED, UNDRAINED
from isthmus.domain.health.rungs import is_true
from isthmus.model.health import Finding, Rung
from isthmus.model.meta import condition
from isthmus.model.node import Node

DEGRADED: Final = "SoperatorChecksNodeDegraded"
MAINTENANCE: Final = "SoperatorChecksNodeMaintenance"

CANCELLED: Final = "NodeRebootCancelled"
"""Ours: a reboot that was asked for did not begin in time, and must not begin later."""

_CHECKS: Final = frozenset({"check", "prolog", "epilog", "healthcheck", "device"})


def shown(cases: Iterable[Case]) -> Iterator[SetCondition]:
    """What machines should show and do not."""
    on: dict[str, list[Case]] = {}
    for case in cases:
        if case.node.machine is not None:
            on.setdefault(case.node.machine.metadata.name, []).append(case)
    for here in on.values():
        machine = here[0].node.machine
        if machine is not None:
            yield from _of(machine, here)


def _of(machine: Node, cases: list[Case]) -> Iterator[SetCondition]:
    held = [it for it in cases if it.held and it.status.phase != "Recovered"]
    rebooted = _at_work(held, "reboot")
    reason = NEED_REBOOT if rebooted else DRAINED if all(it.idle for it in held) else DRAINING
    yield from _set(machine, DEGRADED, held, reason)
    noticed = [it for it in cases if any(map(_is_notice, it.active))]
    others = {name: it.turn.view.nodes.get(name) for it in noticed for name in it.node.neighbours}
    ready = all(it.idle for it in noticed) and all(it is not None and is_idle(it.slurm) for it in others.values())
    if ready or not noticed:
        yield from _set(machine, MAINTENANCE, noticed, DRAINING)
    bad = [it for it in held if _at_work([it], "replace") or (it.status.phase == "OutOfService" and _is_hard(it))]
    told = condition(machine.status.conditions, HARDWARE_CONDITION)
    if told is None or told.status != "True" or told.reason == HARDWARE_REASON:
        yield from _set(machine, HARDWARE_CONDITION, bad, HARDWARE_REASON)
    yield from _withdrawn(machine, cases)


def _set(machine: Node, type_: str, cases: list[Case], reason: str) -> Iterator[SetCondition]:
    """Show a condition with the reason, or that it is over; one that was never there is not written."""
    told = condition(machine.status.conditions, type_)
    name = machine.metadata.name
    if cases and (told is None or (told.status, told.reason) != ("True", reason)):
        yield SetCondition(name, type_, "True", reason, "; ".join(map(_message, cases)))
    elif not cases and told is not None and told.status == "True":
        yield SetCondition(name, type_, "False", UNDRAINED, "")


def _withdrawn(machine: Node, cases: list[Case]) -> Iterator[SetCondition]:
    """Take back requests to the rebooter that are fulfilled, or that nobody waits for any more."""
    name = machine.metadata.name
    told = condition(machine.status.conditions, names.NODE_REBOOT_CONDITION)
    if told is not None and told.status == "True" and not _at_work(cases, "reboot"):
        if told.reason == REBOOTED:
            yield SetCondition(name, told.type, "False", REBOOTED, "")
        elif told.reason == NEED_REBOOT and _was_ours(cases, "reboot"):
            yield SetCondition(name, told.type, "False", CANCELLED, "it was not rebooted in time")
    if is_true(machine, names.NODE_DRAIN_CONDITION) and _was_ours(cases, "replace"):
        yield SetCondition(name, names.NODE_DRAIN_CONDITION, "False", UNDRAINED, "")


def _message(case: Case) -> str:
    told = case.node.slurm.comment if case.node.slurm else ""
    return f"{case.name}: {told or case.status.reason or case.status.message}"


def _at_work(cases: Iterable[Case], rung: Rung) -> bool:
    steps = (it.status.steps[-1] for it in cases if it.status.steps)
    return any(it.rung == rung and it.ended is None for it in steps)


def _was_ours(cases: Iterable[Case], rung: Rung) -> bool:
    steps = [it.status.steps[-1] for it in cases if it.status.steps]
    return any(it.rung == rung for it in steps) and all(it.ended is not None for it in steps)


def _is_notice(finding: Finding) -> bool:
    return finding.source == "maintenance" and finding.check != MACHINE_CLAIM


def _is_hard(case: Case) -> bool:
    return any(it.source in _CHECKS and USER_PROBLEM not in it.evidence for it in case.active)
