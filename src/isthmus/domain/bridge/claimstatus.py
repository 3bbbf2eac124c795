"""What is written into a claim when it gets devices, and what its drivers say of them before the pod may start."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from isthmus.domain.bridge.allocation import Picked
from isthmus.domain.bridge.devices import NodeDevices
from isthmus.domain.languages import quantity
from isthmus.model.base import EMPTY
from isthmus.model.dra import (
    Allocation,
    Consumer,
    DeviceClass,
    ResourceClaim,
    Result,
    Results,
)
from isthmus.model.meta import condition
from isthmus.model.pod import NodeSelector, NodeSelectorTerm, Pod, Requirement

BINDING_TIMEOUT: Final = 600.0
"""Seconds that drivers have to prepare devices for a pod that waits for them, as for kube-scheduler."""


def allocation(
    picked: Sequence[Picked],
    devices: NodeDevices,
    *,
    node: str,
    config: Sequence[Mapping[str, Any]] = (),
    classes: Callable[[str], DeviceClass | None],
    now: datetime,
    new_id: Callable[[], str],
) -> Allocation:
    """Make the allocation of a claim: its devices, their node, and configuration for drivers.

    `config` is that of the claim; `new_id` names shares of devices that several claims may have.
    """
    results = tuple(_result(it, devices, new_id) for it in picked)
    of_class: dict[str, list[str]] = {}
    for it in picked:
        names = of_class.setdefault(it.choice.device_class, [])
        if it.result not in names:
            names.append(it.result)
    told: list[dict[str, Any]] = []
    for class_, requests in of_class.items():
        found = classes(class_)
        told += [
            {**it, "source": "FromClass", "requests": list(requests)} for it in (found.spec.config if found else ())
        ]
    told += [{**it, "source": "FromClaim"} for it in config]
    here = Requirement("metadata.name", "In", (node,))
    return Allocation(Results(results, tuple(told)), NodeSelector((NodeSelectorTerm(match_fields=(here,)),)), now)


def _result(picked: Picked, devices: NodeDevices, new_id: Callable[[], str]) -> Result:
    found, choice = devices.devices[picked.position], picked.choice
    part = found.shared and not choice.admin
    consumed = devices.consumed(picked.position, choice) if part else None
    return Result(
        picked.result,
        *found.id,
        admin_access=choice.admin,
        tolerations=choice.tolerations,
        binding_conditions=found.device.binding_conditions,
        binding_failure_conditions=found.device.binding_failure_conditions,
        share_id=new_id() if part else None,
        consumed_capacity={name: quantity.write(it) for name, it in consumed.items()} if consumed else EMPTY,
    )


def status(claim: ResourceClaim, pod: Pod, allocated: Allocation | None) -> dict[str, Any]:
    """Write the devices of a claim and the pod that may use it; without `allocated` it keeps what it has."""
    me = Consumer("pods", pod.metadata.name, pod.metadata.uid)
    reserved = [it for it in claim.status.reserved_for if it.uid != me.uid] + [me]
    written: dict[str, Any] = {"reservedFor": msgspec.to_builtins(reserved)}
    if allocated is not None:
        written["allocation"] = msgspec.to_builtins(allocated)
    return written


def released(claim: ResourceClaim, pod: Pod) -> dict[str, Any]:
    """Write that a pod no longer uses a claim, which loses its devices if nobody else does."""
    others = [it for it in claim.status.reserved_for if it.uid != pod.metadata.uid]
    written: dict[str, Any] = {"reservedFor": msgspec.to_builtins(others) or None}
    return written if others else {**written, "allocation": None, "devices": None}


def is_on(claim: ResourceClaim, node: str) -> bool:
    """Whether the devices of a claim were allocated for this node."""
    selector = claim.status.allocation and claim.status.allocation.node_selector
    terms = selector.node_selector_terms if selector else ()
    return any(it.values == (node,) for term in terms for it in term.match_fields)


def binding(claims: Iterable[ResourceClaim], *, now: datetime) -> Literal["ready", "waiting", "failed"]:
    """Whether drivers have made ready what has to be before a pod is bound."""
    waiting = False
    for claim in claims:
        allocated = claim.status.allocation
        if allocated is None:
            continue
        said = {(it.driver, it.pool, it.device): it.conditions for it in claim.status.devices}
        for it in allocated.devices.results:
            conditions = said.get((it.driver, it.pool, it.device), ())
            if any(_holds(conditions, name) for name in it.binding_failure_conditions):
                return "failed"
            ready = all(_holds(conditions, name) for name in it.binding_conditions)
            since = allocated.allocation_timestamp
            if not ready and since and (now - since).total_seconds() > BINDING_TIMEOUT:
                return "failed"
            waiting = waiting or not ready
    return "waiting" if waiting else "ready"


def _holds(conditions: Sequence[Any], name: str) -> bool:
    found = condition(conditions, name)
    return found is not None and found.status == "True"
