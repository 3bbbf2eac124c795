"""What sources show of a node, translated into observations: what is wrong with it at this moment.

    Slurm's reason      a program's, or a human's                    prolog, epilog, healthcheck, maintenance, human
    conditions of the   those of problem detectors                   condition
    Kubernetes node     maintenance notices                          maintenance
                        Ready is not True, for longer than a grace   notReady
    its taints,         devices that are out of order                device
    an annotation

What ActiveChecks find comes from their results, see `activechecks.results`; a drain of theirs that no record and no
result explains is taken up from Slurm's reason.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from isthmus import names
from isthmus.domain.health import reasons
from isthmus.domain.health.view import Observation
from isthmus.domain.operator.nodeset.drains import is_shut
from isthmus.model.health import NodeHealth
from isthmus.model.meta import Condition, condition
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode

HARDWARE_CONDITION: Final = "HardwareIssuesSuspected"
HARDWARE_REASON: Final = "GPUHealthCheckFailedSoperator"
"""The reason of that condition when it is we who set it, for a node that we hold already."""

NOT_READY: Final = "NotReady"

PROBLEM_CONDITIONS: Final = frozenset(
    {"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentContainerdRestart"}
)
"""Permanent conditions of node-problem-detector's own rules."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Which signs of a Kubernetes node count."""

    maintenance_condition: str = "NebiusMaintenanceScheduled"
    conditions: frozenset[str] = PROBLEM_CONDITIONS
    not_ready_grace: float = 60.0
    """Seconds that a kubelet may be away."""
    device_taints: frozenset[str] = frozenset({names.UNHEALTHY_DEVICES})
    """Keys of taints of a node whose value names a device that is out of order."""
    passive_checks: frozenset[str] | None = None
    """Checks of the check runner that can be run again in a worker pod; None if all can."""
    ignored_machines: Mapping[str, str] = {}
    """Labels of machines whose maintenance notices do not count."""


def of_node(
    slurm: SlurmNode | None,
    machine: Node | None,
    *,
    health: NodeHealth | None,
    settings: Settings,
    now: datetime,
    checks: Collection[str] = (),
) -> tuple[Observation, ...]:
    """Everything that Slurm and Kubernetes show of a node. `checks` are ActiveChecks that have spoken of it."""
    recorded = health.status.reason if health else ""
    found = [] if slurm is None else list(of_slurm(slurm, recorded=recorded, settings=settings, checks=checks))
    if machine is not None:
        found += of_machine(machine, settings=settings, now=now)
    return tuple(found)


def of_slurm(
    node: SlurmNode, *, recorded: str, settings: Settings, checks: Collection[str] = ()
) -> Iterator[Observation]:
    """Read a node's reason. What we recorded as ours is no news."""
    if not is_shut(node) or not node.reason or node.reason == recorded:
        return
    at = datetime.fromtimestamp(node.reason_changed_at.value or 0, UTC)
    told = reasons.read(node.reason)
    if told is None:
        if reasons.owner(node.reason) == "human":
            user = node.reason_set_by_user or "unknown"
            yield Observation(source="human", check=user, evidence=node.reason, at=at)
        return
    if told.source == "check" and told.check in checks:
        return
    yield Observation(
        source=told.source,
        check=told.check,
        evidence=node.reason,
        at=at,
        wants="drain" if told.source == "check" else "",
        reason=node.reason,
        test=_can_be_tested(told, settings),
        by_drain=True,
        proof="machine" if told.unrepaired else "gone" if told.source == "maintenance" else "repair",
    )


def _can_be_tested(told: reasons.Read, settings: Settings) -> bool:
    if not told.by_runner:
        return False
    return settings.passive_checks is None or told.check in settings.passive_checks


def of_machine(machine: Node, *, settings: Settings, now: datetime) -> Iterator[Observation]:
    for it in machine.status.conditions:
        if it.status == "True" and it.type == settings.maintenance_condition:
            labels = machine.metadata.labels
            if not any(labels.get(key) == value for key, value in settings.ignored_machines.items()):
                yield _of_condition(it, "maintenance", reasons.REPLACEMENT, now)
        elif it.status == "True" and it.type == HARDWARE_CONDITION and it.reason != HARDWARE_REASON:
            yield _of_condition(it, "condition", reasons.REPLACEMENT, now)
        elif it.status == "True" and it.type in settings.conditions:
            yield _of_condition(it, "condition", f"[node_problem] {it.type}: {it.reason or 'reported'}", now)
    if (ready := condition(machine.status.conditions, "Ready")) and ready.status != "True":
        since = ready.last_transition_time or now
        if now - since >= timedelta(seconds=settings.not_ready_grace):
            yield Observation(
                source="notReady",
                check=NOT_READY,
                evidence=f"{ready.reason}: {ready.message}".strip(": "),
                at=since,
                reason=f"[node_problem] {NOT_READY}: the kubelet does not answer",
            )
    yield from _of_devices(machine, settings, now)


def _of_condition(
    it: Condition, source: Literal["condition", "maintenance"], reason: str, now: datetime
) -> Observation:
    return Observation(
        source=source,
        check=it.type,
        evidence=f"{it.reason}: {it.message}".strip(": "),
        at=it.last_transition_time or now,
        reason=reason,
    )


def _of_devices(machine: Node, settings: Settings, now: datetime) -> Iterator[Observation]:
    """Devices that taints or our annotation name. Kubernetes dates neither reliably: the machine's age must do."""
    made = machine.metadata.creation_timestamp or now
    for taint in machine.spec.taints:
        if taint.key in settings.device_taints:
            yield _of_device(taint.key, taint.value.split("_"), taint.time_added or made)
    if told := machine.metadata.annotations.get(names.UNHEALTHY_DEVICES):
        yield _of_device(names.UNHEALTHY_DEVICES, told.split(","), made)


def _of_device(check: str, devices: Iterable[str], at: datetime) -> Observation:
    listed = tuple(sorted({name for it in devices if (name := it.strip())}))
    return Observation(
        source="device",
        check=check,
        evidence=f"out of order: {', '.join(listed) or 'a device'}",
        devices=listed,
        at=at,
        reason=f"[hardware_problem] device: {check}",
    )
