"""The repair ladder: which rung comes next on a drained node, whether it may, and how it has gone.

No rung is begun while Slurm has a job on the node; those that take the machine down need the same of all Slurm
nodes there. A rung that does not fit the node, such as restartPod without a pod, is left out.
"""

from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.domain.health import limits, reasons
from isthmus.domain.health.case import Case, Pass, is_idle, is_over
from isthmus.domain.health.policies import LadderRung
from isthmus.domain.health.rungs import DONE, MACHINE_RUNGS, carry_out, fits, is_done, is_true, machine_of
from isthmus.domain.health.view import NodeView, Observation
from isthmus.model.health import RepairStep, Rung

_REFUSED_S: Final = 3600.0
_WEEK_S: Final = 7 * 86400.0
_MAX_STEPS: Final = 16
_TIMEOUT_S: Final = 900.0
"""For a rung whose ladder has been changed meanwhile."""


def climb(case: Case) -> bool:
    """Begin the next rung, or say why not; False if none is left and it was never tested."""
    turn = case.turn
    if all(it.check in turn.storms for it, _ in case.wanted):
        case.say("its check is not trusted at the moment: many nodes failed it at once")
    elif turn.policy.spec.paused:
        case.say("drained; the policy is paused")
    elif _worn_out(case):
        case.enter("OutOfService", f"{_recent(case)} repairs within a week did not last; manual action is required")
    elif (found := _next(case)) is None:
        return False
    else:
        index, rung = found
        if rung.rung in MACHINE_RUNGS and _rebooted_with_neighbour(case, rung.rung):
            _begin(case, index, rung, outcome=f"{DONE} for another node of the machine")
        elif why := _refusal(turn, case.node, rung.rung):
            case.say(why)
        else:
            _begin(case, index, rung)
    return True


def repairing(case: Case) -> bool:
    """Follow the rung at work; True when it is done and the node can be tested."""
    steps = case.status.steps
    if not steps or steps[-1].ended is not None:
        return True
    step = steps[-1]
    if is_done(case, step):
        case.end_step(DONE)
        return True
    if is_over(case.turn, step.started, _timeout(case, step)):
        case.end_step("timed out")
        failed(case, f"{step.rung} timed out")
    elif not case.turn.passive and (case.node.slurm is None or _refusal_now(case, step) == ""):
        carry_out(case, step)
    return False


def failed(case: Case, why: str) -> None:
    """Go on with the next rung, or give the node to a human."""
    case.change(test="")
    if _next(case) is None or _worn_out(case):
        case.enter("OutOfService", f"{why}; manual action is required")
    else:
        case.enter("Draining", f"{why}; the next repair follows")


def reopen(case: Case) -> None:
    """Go on with a node that was given to a human when something new calls for a rung that was not tried."""
    since, found = case.status.since, _next(case)
    if found and since and not _worn_out(case):
        new = [it for it, _ in case.wanted if it.first_seen and it.first_seen > since]
        if new:
            case.enter("Draining", f"{new[0].check} was also found; {found[1].rung} follows")


def claims(turn: Pass) -> dict[str, Observation]:
    """Nodes that must be drained because a machine is to go down for another node's sake."""
    found: dict[str, Observation] = {}
    for node in turn.view.nodes.values():
        if not node.neighbours or node.health is None or not (rung := _claiming(turn, node)):
            continue
        status = node.health.status
        for other in node.neighbours:
            found[other] = Observation(
                source="maintenance",
                check=limits.MACHINE_CLAIM,
                evidence=f"{rung} of the machine for {node.name}",
                at=_asked_at(turn, other, status.drained or status.since or turn.now),
                reason=reasons.REBOOT if rung == "reboot" else reasons.REPLACEMENT,
            )
    return found


def _asked_at(turn: Pass, other: str, began: datetime) -> datetime:
    """When a neighbour is asked for: once, and again an hour after somebody refused it by resuming it."""
    node = turn.view.nodes.get(other)
    for it in node.health.status.findings if node and node.health else ():
        if it.check == limits.MACHINE_CLAIM and it.dismissed and is_over(turn, it.cleared, _REFUSED_S):
            return max(began, turn.now)
    return began


def _claiming(turn: Pass, node: NodeView) -> str:
    """The rung for which a node needs its neighbours drained, by what is recorded; empty if there is none."""
    if node.health is None:
        return ""
    status = node.health.status
    step = status.steps[-1] if status.steps else None
    if status.phase == "Repairing":
        return step.rung if step and step.ended is None and step.rung in MACHINE_RUNGS else ""
    if status.phase != "Draining" or turn.passive or not is_idle(node.slurm):
        return ""
    if reasons.standing(node.slurm, status.reason) != "ours":
        return ""
    found = _next(Case(node, turn))
    if found is None or found[1].rung not in MACHINE_RUNGS or _closed(turn, node, found[1].rung):
        return ""
    return found[1].rung


def _next(case: Case) -> tuple[int, LadderRung] | None:
    """The next rung that fits the node, and its place in the ladder."""
    rungs = _rungs(case)
    places = range(case.status.tried, len(rungs))
    return next(((place, rungs[place]) for place in places if fits(case, rungs[place].rung)), None)


def _rungs(case: Case) -> tuple[LadderRung, ...]:
    """The ladder of the first finding; what others need besides is appended, so that no place changes."""
    rungs: list[LadderRung] = []
    for _, rule in case.wanted:
        if rule.action == "repair":
            there = {it.rung for it in rungs}
            rungs += [it for it in rule.ladder if it.rung not in there]
    return tuple(rungs)


def _recent(case: Case) -> int:
    return sum(not is_over(case.turn, it.started, _WEEK_S) for it in case.status.steps)


def _worn_out(case: Case) -> bool:
    return _recent(case) >= case.turn.policy.spec.limits.max_steps_per_week


def _refusal(turn: Pass, node: NodeView, rung: Rung) -> str:
    """Why a rung cannot begin now; empty if it can."""
    if not is_idle(node.slurm):
        return "waits for its jobs to end"
    if rung not in MACHINE_RUNGS:
        return ""
    return _closed(turn, node, rung) or _occupied(turn, node)


def _closed(turn: Pass, node: NodeView, rung: Rung) -> str:
    """Why no machine may go down now."""
    limit, machine = turn.policy.spec.limits, machine_of(node)
    if why := limits.closed_because(limit.windows, turn.now):
        return f"{rung} waits: {why}"
    if rung == "reboot" and node.machine and is_true(node.machine, names.NODE_REBOOT_CONDITION):
        return f"{rung} waits: another reboot of {machine} is in progress"
    if rung == "reboot" and len(turn.rebooting - {machine}) >= limit.max_reboots:
        return f"{rung} waits: at most {limit.max_reboots} machines may be rebooted at a time (maxReboots)"
    return ""


def _occupied(turn: Pass, node: NodeView) -> str:
    """Why the machine cannot go down because of its other Slurm nodes."""
    if machine_of(node) in turn.claimed_machines:
        return "waits for the repair of another node on the same machine"
    for name in node.neighbours:
        other = turn.view.nodes.get(name)
        if other is None or not is_idle(other.slurm):
            return f"waits until {name} on the same machine is drained and has no jobs"
        if _at_work(other):
            return f"waits for the repair of {name} on the same machine"
    return ""


def _at_work(node: NodeView) -> bool:
    steps = node.health.status.steps if node.health else ()
    return bool(steps) and steps[-1].ended is None


def _refusal_now(case: Case, step: RepairStep) -> str:
    """Why a rung that was begun is not carried on: a job has come, or a neighbour was opened."""
    if not is_idle(case.node.slurm):
        return "a job is there"
    if step.rung in MACHINE_RUNGS:
        others = (case.turn.view.nodes.get(it) for it in case.node.neighbours)
        if not all(it is not None and is_idle(it.slurm) for it in others):
            return "another node on the same machine is in use"
    return ""


def _rebooted_with_neighbour(case: Case, rung: Rung) -> bool:
    """Whether the machine was repaired the same way since this node was drained, for another node."""
    since = case.status.drained
    for name in case.node.neighbours:
        other = case.turn.view.nodes.get(name)
        for step in other.health.status.steps if other and other.health else ():
            if step.rung == rung and step.outcome == DONE and since and step.started > since:
                return True
    return False


def _begin(case: Case, place: int, rung: LadderRung, *, outcome: str = "") -> None:
    turn, node = case.turn, case.node
    pod, machine = node.pod, node.machine
    target = pod.metadata.uid if rung.rung == "restartPod" and pod else machine.metadata.uid if machine else ""
    step = RepairStep(rung=rung.rung, started=turn.now, target=target)
    kept = [it for it in case.status.steps if not is_over(turn, it.started, _WEEK_S)]
    case.change(steps=(*kept, step)[-_MAX_STEPS:], tried=place + 1)
    case.enter("Repairing", f"{rung.rung} on {machine_of(node) or node.name}")
    if outcome:
        case.end_step(outcome)
        return
    if rung.rung in MACHINE_RUNGS:
        turn.claimed_machines.add(machine_of(node))
    if rung.rung == "reboot":
        turn.rebooting.add(machine_of(node))
    carry_out(case, step)


def _timeout(case: Case, step: RepairStep) -> float:
    rungs, place = _rungs(case), case.status.tried - 1
    if place < len(rungs) and rungs[place].rung == step.rung:
        return rungs[place].timeout
    return next((it.timeout for it in case.turn.policy.ladder if it.rung == step.rung), _TIMEOUT_S)
