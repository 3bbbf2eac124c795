"""What is done for the health of a cluster's nodes: one ordered list of actions from one look at them.

    Suspect ─► (Waiting) ─► Draining ─► Repairing ─► Testing ─► Recovered
                               ▲  └─── nothing to repair ──▲ │
                               └───────── test failed ───────┴─► OutOfService

    findings   what is wrong              holds     whether we may shut the node, and whether we still do
    policies   what is done about it      ladder    repairs
    limits     how much at a time         proofs    tests, and the way back
                                          machines  what Kubernetes shows of it

Costs are those of the nodes with findings; the others are counted and passed over.
"""

from isthmus.domain.health import findings, holds, ladder, limits, machines, policies, proofs, reasons
from isthmus.domain.health.actions import Action, Comment, Record, Requeue, Unreserve
from isthmus.domain.health.case import Case, Pass, Wanted, names_of
from isthmus.domain.health.view import ClusterView


def decide(view: ClusterView) -> list[Action]:
    """Decide for all nodes of a cluster. Records come first, then what they announce.

    It presumes that `view` shows what our own records said last. Who carries the list out stops at the first action
    that fails, as far as that node is concerned: what follows may presume it.
    """
    turn = Pass(view, policies.compiled(view.policy))
    cases = _cases(turn)
    found = {it.name: it.status.findings for it in cases}
    turn.storms = limits.storms(turn.policy, found, total=len(view.nodes), now=view.now)
    for case in sorted(cases, key=_age):
        _advance(case)
        if view.first and view.policy.mode != "shadow":
            case.tell_again()
    if view.slurm_in_touch and view.policy.mode != "shadow":
        turn.acts.others.extend(machines.shown(cases))
    return turn.acts.ordered(Record(it.name, it.status) for it in cases if it.status != it.before)


def storm_texts(view: ClusterView) -> tuple[str, ...]:
    """The checks that are not acted on at the moment, for the status of the policy."""
    turn = Pass(view, policies.compiled(view.policy))
    found = {it.name: it.status.findings for it in _cases(turn)}
    suspect = limits.storms(turn.policy, found, total=len(view.nodes), now=view.now)
    return tuple(
        f"{check}: failed on many nodes at once; ignored until {until:%Y-%m-%dT%H:%MZ}"
        for check, until in sorted(suspect.items())
    )


def _cases(turn: Pass) -> list[Case]:
    claims = ladder.claims(turn)
    return [
        Case(node, turn, claims.get(name))
        for name, node in turn.view.nodes.items()
        if node.health is not None or node.observations or node.reserved or name in claims
    ]


def _age(case: Case) -> tuple[bool, float, str]:
    """Who is looked at first: nodes that we hold, then those that wait longest."""
    came = min((it.first_seen.timestamp() for it in case.active if it.first_seen), default=0.0)
    return not case.held, came, case.name


def _advance(case: Case) -> None:
    turn = case.turn
    if turn.view.slurm_in_touch and turn.policy.spec.mode != "shadow":
        _comment(case)
    if not case.held:
        holds.advance_free(case)
    elif turn.view.slurm_in_touch and turn.policy.spec.mode != "shadow":
        _advance_held(case)


def _advance_held(case: Case) -> None:
    phase, reserved = case.status.phase, case.node.reserved
    if phase == "Recovered":
        holds.lift(case)
    elif reserved and reasons.standing(case.node.slurm, case.status.reason) == "foreign":
        case.act(Unreserve(case.name))
        holds.step_back(case)
    elif reserved and phase == "Testing":
        proofs.go_on(case)
    elif reserved:
        case.drain()
        case.act(Unreserve(case.name))
    elif holds.keep(case):
        proofs.new_machine(case)
        if phase == "Repairing":
            if ladder.repairing(case):
                proofs.begin(case)
        elif phase == "Testing":
            proofs.go_on(case)
        elif phase == "OutOfService":
            ladder.reopen(case)
        else:
            _drained(case)


def _drained(case: Case) -> None:
    """Decide what comes after the drain: the node goes back, waits for its jobs, is repaired or tested."""
    wanted = case.wanted
    if not wanted:
        proofs.settle(case)
    elif not case.idle:
        _wait_for_jobs(case, wanted)
    elif wanted[0][1].action == "repair":
        if not ladder.climb(case):
            proofs.begin(case)
    elif any(it.proof in findings.TESTED for it, _ in wanted):
        proofs.begin(case)
    else:
        case.say(f"drained until {names_of(wanted)} is over")


def _wait_for_jobs(case: Case, wanted: list[Wanted]) -> None:
    node, turn = case.node.slurm, case.turn
    deadlines = [rule.job_deadline for _, rule in wanted if rule.job_deadline is not None]
    runs = node is not None and not {"ALLOCATED", "MIXED"}.isdisjoint(node.state)
    if runs and deadlines and not turn.passive and turn.since(case.status.drained) >= min(deadlines):
        case.say("its jobs are requeued: jobDeadline has passed")
        case.act(Requeue(case.name, case.status.message))
    else:
        case.say("drained; waits for its jobs to end")


def _comment(case: Case) -> None:
    """Keep our comment in Slurm as long as a finding asks for it; somebody else's stays."""
    node, ours = case.node.slurm, case.status.comment
    if node is None:
        return
    rule_for = case.turn.policy.rule_for
    found = next((it for it in case.active if rule_for(it).action == "comment"), None)
    text = case.reason_for(found) if found else ""
    if case.turn.policy.spec.paused and text != ours:
        return
    if node.comment not in {"", ours}:
        case.change(comment="")
    elif text != node.comment:
        case.change(comment=text or ours)
        case.act(Comment(case.name, text))
    else:
        case.change(comment=text)
