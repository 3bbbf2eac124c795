"""What sources show of a node, translated into observations: what is wrong with it at this moment.

    Slurm's reason      a program's, or a human's                    prolog, epilog, healthcheck, maintenance, human
    conditions of the   those of problem detectors                   condition
    Kubernetes node     maintenance notices                          maintenance
                        Ready is not True, for longer than a grace   notReady
    its taints,         devices that are out of order                device
    an annotation
    its devices (DRA)   those that a driver has tainted              device

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
from isthmus.model.dra import Device
from isthmus.model.health import NodeHealth
from isthmus.model.meta import Condition, condition
from isthmus.model.node import Node, Taint
from isthmus.model.slurm import Node as SlurmNode

HARDWARE_CONDITION: Final = "HardwareIssuesSuspected"
HARDWARE_REASON: Final = "GPUHealthCheckFailedSoperator"
"""The reason of that condition when it is we who set it, for a node that we hold already."""

NOT_READY: Final = "NotReady"

PROBLEM_CONDITIONS: Final = frozenset(
    {"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentContainerdRestart"}
)
"""Permanent conditions of node-problem-detector's own rules."""


_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_UUID: Final = "uuid"
"""The attribute by which drivers of GPUs say how nvidia-smi and its like call a device."""


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
    tests: Collection[str] = (),
    devices: Iterable[Device] = (),
) -> tuple[Observation, ...]:
    """Everything that Slurm and Kubernetes show of a node.

    `checks` are ActiveChecks that have spoken of it, `tests` all those that Slurm can run on it, `devices` those of
    its machine that drivers publish.
    """
    found: list[Observation] = []
    if slurm is not None:
        recorded = health.status.reason if health else ""
        found += of_slurm(slurm, recorded=recorded, settings=settings, checks=checks, tests=tests)
    if machine is not None:
        found += of_machine(machine, settings=settings, now=now)
        found += of_drivers(devices, made=machine.metadata.creation_timestamp or now)
    return tuple(found)


def of_slurm(
    node: SlurmNode,
    *,
    recorded: str,
    settings: Settings,
    checks: Collection[str] = (),
    tests: Collection[str] = (),
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
    in_slurm = told.source == "check" and told.check in tests
    yield Observation(
        source=told.source,
        check=told.check,
        evidence=node.reason,
        at=at,
        wants="drain" if told.source == "check" else "",
        reason=node.reason,
        test=in_slurm or _can_be_tested(told, settings),
        in_slurm=in_slurm,
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
        wants="drain",
        reason=f"[hardware_problem] device: {check}",
    )


def of_drivers(devices: Iterable[Device], *, made: datetime) -> Iterator[Observation]:
    """Read the taints of devices: one observation for each key.

    One that evicts pods says that the device is out of order. One that only keeps new pods away may be anything,
    such as devices that are set aside, and asks for nothing.
    """
    on: dict[str, list[tuple[Taint, Device]]] = {}
    for device in devices:
        for taint in device.taints:
            if taint.effect in _REPELLING:
                on.setdefault(taint.key, []).append((taint, device))
    for key, found in on.items():
        names_ = ", ".join(sorted({device.name for _, device in found}))
        said = ", ".join(sorted({f"{it.value}:{it.effect}".strip(":") for it, _ in found}))
        yield Observation(
            source="device",
            check=key,
            evidence=f"{names_}: {said}",
            devices=tuple(sorted({_known_as(device) for _, device in found})),
            at=max(taint.time_added or made for taint, _ in found),
            wants="drain" if any(taint.effect == "NoExecute" for taint, _ in found) else "",
            reason=f"[hardware_problem] device: {key}",
        )


def _known_as(device: Device) -> str:
    """What programs of its vendor know a device by; without that, its name."""
    told = device.attributes.get(_UUID)
    return (told.string if told else None) or device.name
