"""What comes next for a node with findings, in words for people.

The message of a NodeHealth says why it is in its phase; this says what happens after it, and what would return the
node. Both follow from the record and the policy alone.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.model.health import (
    Finding,
    HealthPolicySpec,
    NodeHealth,
    NodeHealthStatus,
    Phase,
)

_NEXT: Final[dict[Phase, str]] = {
    "Suspect": "nothing until it is found again",
    "Waiting": "it is drained when the limits allow it",
    "Draining": "repair and test, when its jobs have ended",
    "Repairing": "its test",
    "Testing": "in use again if its test passes",
    "OutOfService": "you decide: isthmus health release NODE",
    "Recovered": "nothing: it is in use",
}


def active(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are still seen."""
    return tuple(it for it in findings if it.cleared is None)


def next_step(status: NodeHealthStatus, policy: HealthPolicySpec) -> str:
    """What happens to a node next, in a few words; the node's name goes in for NODE."""
    idle = status.phase in {None, "Suspect", "Waiting"}
    if policy.paused and idle:
        return "nothing while paused: isthmus health resume"
    if policy.mode == "shadow" and idle:
        return "nothing: the policy is in shadow mode"
    at_work = next((it for it in reversed(status.steps) if it.ended is None), None)
    if status.phase == "Repairing" and at_work:
        return f"its test, when {at_work.rung} is done"
    return _NEXT[status.phase or "Suspect"]


def way_back(health: NodeHealth, policy: HealthPolicySpec) -> tuple[str, ...]:
    """What must be so before the node is used again; empty if it is in use."""
    status = health.status
    if status.phase in {None, "Suspect", "Recovered"}:
        return ()
    if status.phase == "Waiting":
        return ("the finding goes away by itself, or the limits let it be repaired",)
    found = active(status.findings)
    needed = [_needed(it, policy) for it in found if it.source != "human"]
    needed += [f"{it.check or 'the administrator'} resumes it in Slurm" for it in found if it.source == "human"]
    if status.phase == "OutOfService":
        needed.append(f"and an administrator returns it: isthmus health release {health.spec.node}")
    return tuple(dict.fromkeys(needed)) or ("its test passes",)


def _needed(finding: Finding, policy: HealthPolicySpec) -> str:
    match finding.proof:
        case "gone":
            return f"{finding.check} has been gone for {policy.healthy_delay}"
        case "repair":
            return f"a repair step is completed, for {finding.check}"
        case "machine":
            return f"it runs on another machine, for {finding.check}"
        case _:
            return f"{finding.check} passes on this node"
