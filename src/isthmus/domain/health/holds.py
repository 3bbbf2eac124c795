"""Whether we hold a node, and whether we may.

finding ─► storm? pause? somebody else's drain? limits? ─► Draining: recorded, then drained with our reason
             └─ yes: Waiting                                  │
                                                              ├─ a check has drained it already: its reason is ours
held, and in Slurm it is                                      │
   drained with our reason              as it should be  ◄────┘
   open, and was not seen drained yet   drained again: the request was lost
   open, with a slurmd that is newer    drained again: it has registered anew
   open, with another slurmctld         drained again: it has forgotten the drain
   open                                 somebody resumed it: our findings are overruled
   drained with another reason          that stays, and we step back
"""

from datetime import UTC, datetime
from typing import Final

from isthmus.domain.health import reasons
from isthmus.domain.health.actions import Forget, Release, Unreserve
from isthmus.domain.health.case import Case, Wanted, is_over, names_of

_DAY_S: Final = 86400.0
_WEEK_S: Final = 7 * _DAY_S


def advance_free(case: Case) -> None:
    """Decide about a node that we do not hold: whether anything is done at all."""
    turn, node = case.turn, case.node
    if node.reserved and turn.view.slurm_in_touch:
        case.act(Unreserve(node.name))
    active = case.active
    if not active:
        if case.status.phase in {"Suspect", "Waiting"}:
            case.enter("Recovered", "no finding is left", quietly=True)
        _forget(case)
    elif wanted := case.wanted:
        _shut(case, wanted)
    else:
        case.enter("Suspect", _why_nothing(case))


def _forget(case: Case) -> None:
    """Delete a record when nobody asks for it any more; one that keeps a dismissed finding down is needed."""
    turn, node = case.turn, case.node
    if node.health is None or not turn.view.slurm_in_touch or case.status != case.before:
        return
    gone = node.slurm is None and node.pod is None
    if is_over(turn, case.status.since, _DAY_S if gone else _WEEK_S) and not case.seen:
        case.act(Forget(node.name))


def _why_nothing(case: Case) -> str:
    for it in case.active:
        rule = case.turn.policy.rule_for(it)
        if rule.shuts:
            return f"{it.check}: found {it.count} times, acted on from {rule.confirmations}"
    first = case.active[0]
    return f"{first.source} {first.check}: {first.evidence or 'found'}"


def _shut(case: Case, wanted: list[Wanted]) -> None:
    turn, node = case.turn, case.node
    first = wanted[0][0]
    reason = case.reason_for(first)
    if turn.policy.spec.mode == "shadow":
        case.enter("Suspect", f"shadow mode; would {wanted[0][1].action} with reason: {reason}")
    elif not turn.view.slurm_in_touch:
        if case.status.phase not in {"Suspect", "Waiting"}:
            case.enter("Suspect", f"{first.check}: {first.evidence or 'found'}")
    elif why := _refusal(case, wanted):
        case.enter("Waiting", why)
    else:
        turn.budget.take(node)
        case.change(tried=0, test="")
        if reasons.standing(node.slurm, "") == "program" and node.slurm is not None:
            case.change(reason=node.slurm.reason, drained=turn.now)
        else:
            case.change(reason=reason)
            case.drain()
        case.enter("Draining", f"drained: {case.status.reason}")


def _refusal(case: Case, wanted: list[Wanted]) -> str:
    """Why a node that should be drained is not; empty if it can be. Texts stay the same while nothing changes."""
    turn, node = case.turn, case.node
    if node.slurm is None:
        return "Slurm does not know the node"
    if all(it.check in turn.storms for it, _ in wanted):
        return (
            f"many nodes failed {names_of(wanted)} at once; it is not acted on until it has been quiet for a while"
        )
    if turn.policy.spec.paused:
        return "the policy is paused: isthmus health resume"
    if reasons.standing(node.slurm, "") == "foreign" or _is_anothers(case):
        return _foreign(case)
    return turn.budget.refusal(node)


def _is_anothers(case: Case) -> bool:
    """Whether a program has drained the node for something that the policy only records."""
    node = case.node.slurm
    if node is None or reasons.standing(node, "") != "program":
        return False
    told = reasons.read(node.reason)
    return told is None or all((it.source, it.check) != (told.source, told.check) for it, _ in case.wanted)


def _foreign(case: Case) -> str:
    node = case.node.slurm
    if node is None:
        return ""
    return f"drained by {node.reason_set_by_user or 'another owner'}, whose reason stays: {node.reason}"


def keep(case: Case) -> bool:
    """See to it that a node is held as recorded; whether it is, so that one can go on."""
    node, status = case.node.slurm, case.status
    if node is None:
        return _missing(case)
    stands = reasons.standing(node, status.reason)
    if stands == "ours":
        if status.drained is None or _started(case) > status.drained.timestamp():
            # The clock of a node may be ahead: its time is taken as it is, so that it is written once.
            case.change(drained=max(case.turn.now, datetime.fromtimestamp(_started(case), UTC)))
        return True
    if stands == "program" and not _is_anothers(case):
        case.change(reason=node.reason, drained=case.turn.now)
        return True
    if stands in {"foreign", "program"}:
        step_back(case)
        return False
    if stands == "open" and not _explained(case):
        overrule(case)
        return False
    case.drain()
    return False


def step_back(case: Case) -> None:
    """Leave a node to somebody who has drained it with a reason of theirs; our findings stay."""
    case.let_go()
    case.enter("Waiting", _foreign(case))


def _missing(case: Case) -> bool:
    """A node that Slurm does not list may be on its way back; without a pod, it is gone with its drain."""
    if case.status.phase != "Repairing" and case.node.pod is None:
        case.let_go()
        case.enter("Waiting", "Slurm does not know the node, and it has no pod", quietly=True)
    return case.status.phase == "Repairing"


def _explained(case: Case) -> bool:
    """Whether an open node is explained without somebody who resumed it."""
    status, node = case.status, case.node.slurm
    if status.drained is None or node is None or case.turn.view.slurm_forgot:
        return True
    started = _started(case)
    if started > status.drained.timestamp() or (not started and status.phase == "Repairing"):
        return True
    return status.phase == "Testing" and bool(status.test) and _in_slurm(case)


def _started(case: Case) -> float:
    """When its slurmd started, in seconds since 1970; 0 if that is not known."""
    return (case.node.slurm.slurmd_start_time.value or 0.0) if case.node.slurm else 0.0


def _in_slurm(case: Case) -> bool:
    """Whether its test runs in a reservation, in which the node is open; it may have been deleted."""
    return any(it.proof == "slurmTest" for it, _ in case.wanted) and case.turn.view.can_reserve


def overrule(case: Case) -> None:
    """Somebody has resumed a node that we held: what we had recorded is over, until it is found anew."""
    recorded = {(it.source, it.check, it.last_seen) for it in case.before.findings}
    case.dismiss(*(it for it, _ in case.wanted if (it.source, it.check, it.last_seen) in recorded))
    case.let_go()
    case.enter("Recovered", "resumed in Slurm by somebody else; findings before that are not acted on")


def lift(case: Case) -> None:
    """Finish what returns a node: its record says so already."""
    node, name = case.node, case.name
    stands = reasons.standing(node.slurm, case.status.reason)
    if case.wanted and (stands == "ours" or node.reserved):
        case.enter("Draining", "failed again before it was returned to service")
    elif node.reserved:
        give_back(case)
    elif stands == "ours" and not _drained_anew(case):
        case.turn.acts.release(name, node.operator_holds)
    else:
        case.let_go()


def _drained_anew(case: Case) -> bool:
    """Whether a check has drained the node again since it was returned, with the very same words."""
    node, since = case.node.slurm, case.status.since
    changed = (node.reason_changed_at.value or 0.0) if node else 0.0
    return since is not None and changed > since.timestamp()


def give_back(case: Case) -> None:
    """Open a node for all; one that the operator holds stays drained with its reason."""
    if not case.node.reserved:
        case.turn.acts.release(case.name, case.node.operator_holds)
        return
    if case.node.operator_holds or reasons.standing(case.node.slurm, case.status.reason) == "ours":
        case.act(Release((case.name,), case.node.operator_holds))
    case.act(Unreserve(case.name))
