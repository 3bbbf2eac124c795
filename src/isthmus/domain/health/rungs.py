"""The rungs of the repair ladder: how each is asked for, and how its effect is seen.

    rung          begun by                                     done when, besides slurmd answering again
    restartPod    evicting the pod                             it is another pod
    resetDevice   resetting the devices that were found        at once
    reboot        SlurmNodeReboot=True on the machine          its rebooter says NodeRebooted
    replace       SlurmNodeDrain=True, then deleting the Node  it is another machine

What was asked for and is not seen in the world is asked for again: whoever carries it out may have been refused, or
have died.
"""

from typing import Final

from msgspec.structs import replace

from isthmus import names
from isthmus.domain.health import reasons
from isthmus.domain.health.actions import Climb, Record, SetCondition
from isthmus.domain.health.case import Case
from isthmus.domain.health.reboots import DRAINED, NEED_REBOOT, REBOOTED
from isthmus.domain.health.view import NodeView
from isthmus.model.health import RepairStep, Rung
from isthmus.model.meta import condition
from isthmus.model.node import Node

MACHINE_RUNGS: Final[frozenset[Rung]] = frozenset({"reboot", "replace"})
"""Those that touch all Slurm nodes of a machine."""

NEED_DRAIN: Final = "NodeNeedDrain"
DONE: Final = "done"
"""How the outcome of a rung begins that was completed."""


def fits(case: Case, rung: Rung) -> bool:
    """Whether there is something on the node that the rung could repair."""
    if rung == "restartPod":
        return case.node.pod is not None
    if rung == "resetDevice":
        return bool(_devices(case))
    return case.node.machine is not None


def carry_out(case: Case, step: RepairStep) -> None:
    """Ask for what the rung needs, unless the world shows that it was asked for."""
    node, pod, machine = case.node, case.node.pod, case.node.machine
    name = machine_of(node)
    match step.rung:
        case "restartPod":
            if pod and pod.metadata.uid == step.target and not pod.leaving:
                case.act(Climb(node.name, "restartPod", pod=pod.metadata.key, pod_uid=step.target, machine=name))
        case "resetDevice":
            pod_key = pod.metadata.key if pod else None
            case.act(Climb(node.name, "resetDevice", pod=pod_key, machine=name, devices=_devices(case)))
            ended = replace(step, ended=case.turn.now, outcome=DONE)
            after = replace(case.status, steps=(*case.status.steps[:-1], ended))
            case.turn.acts.afterwards.append(Record(node.name, after))
        case "reboot":
            if machine and not is_true(machine, names.NODE_REBOOT_CONDITION):
                text = f"{node.name}: {case.status.reason}"
                case.act(SetCondition(name, names.NODE_REBOOT_CONDITION, "True", NEED_REBOOT, text))
        case "replace":
            _replace(case, step)


def _replace(case: Case, step: RepairStep) -> None:
    """Let the rebooter see the pods off, then delete the Node: otherwise disruption budgets would not count."""
    machine = case.node.machine
    if machine is None or machine.metadata.uid != step.target:
        return
    name, drain = machine.metadata.name, condition(machine.status.conditions, names.NODE_DRAIN_CONDITION)
    if drain is None or drain.status != "True":
        text = f"{case.name}: {case.status.reason}"
        case.act(SetCondition(name, names.NODE_DRAIN_CONDITION, "True", NEED_DRAIN, text))
    elif drain.reason == DRAINED or not is_true(machine, "Ready"):
        # A rebooter whose kubelet is away sees nobody off, and nobody there keeps to a budget.
        case.act(Climb(case.name, "replace", machine=name))


def is_done(case: Case, step: RepairStep) -> bool:
    """Whether the rung has had its effect, and the node is drained and answers again."""
    node = case.node
    if not case.answers or reasons.standing(node.slurm, case.status.reason) != "ours":
        return False
    if step.rung == "restartPod":
        return node.pod is not None and node.pod.metadata.uid != step.target
    if step.rung == "replace":
        return node.machine is not None and node.machine.metadata.uid != step.target
    if step.rung == "resetDevice" or node.machine is None:
        return False
    if node.machine.metadata.uid != step.target:
        return True
    told = condition(node.machine.status.conditions, names.NODE_REBOOT_CONDITION)
    return told is not None and told.status == "True" and told.reason == REBOOTED


def is_true(machine: Node, type_: str) -> bool:
    found = condition(machine.status.conditions, type_)
    return found is not None and found.status == "True"


def machine_of(node: NodeView) -> str:
    """The name of its machine; empty if it is not known."""
    return node.machine.metadata.name if node.machine else ""


def _devices(case: Case) -> tuple[str, ...]:
    return tuple(sorted({device for it in case.active for device in it.devices}))
