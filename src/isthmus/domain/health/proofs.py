"""What returns a node: a passed test, or that nothing has been found for a while.

    finding that a test can check    its check passes on this node: as a job in a private reservation, or in its
                                     worker pod while the node stays drained
    finding that none can            it has been gone for healthyDelay
    finding of Slurm itself          a rung of the ladder was completed
    hardware without a test          the node runs on another machine

A test that fails leads to the next rung. A test that could not be carried out is neither: it is repeated, and in
the end a human decides, for a broken checker is no reason to reboot machines.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Final

from isthmus.domain.health import findings, ladder, reasons, rungs
from isthmus.domain.health.actions import Reserve, RunTest, Unreserve
from isthmus.domain.health.case import Case, Wanted, is_over, names_of
from isthmus.domain.health.holds import give_back
from isthmus.domain.health.policies import Rule
from isthmus.model.health import Finding

AGAIN_AFTER_ERROR: Final = 60.0
AGAIN_AFTER_FAILURE: Final = 300.0
"""Seconds until a test is repeated the first time; after a failure only where there is nothing to repair."""
_MAX_AGAIN_S: Final = 3600.0

_MAX_WORDS_CHARS: Final = 40


def begin(case: Case) -> None:
    """Start testing, after a rung or without one."""
    steps = case.status.steps
    if case.status.phase == "Repairing" and steps and steps[-1].outcome.startswith(rungs.DONE):
        case.dismiss(*(it for it in case.active if it.proof == "repair"))
    case.change(test="")
    case.enter(
        "Testing", "repaired; it is tested next" if case.status.phase == "Repairing" else "it is tested next"
    )
    go_on(case)


def go_on(case: Case) -> None:
    """Test one finding after the other; then wait, or return the node."""
    wanted = case.wanted
    to_test = [it for it in wanted if it[0].proof in findings.TESTED]
    if case.claimed and not case.node.reserved:
        case.say("waits for the repair of its machine for another node")
    elif to_test:
        _test(case, *to_test[0])
    elif wanted:
        _wait(case, wanted)
    else:
        settle(case)


def settle(case: Case) -> None:
    """Return a node of which nothing is found any more, when that has been so for long enough."""
    over = [it.cleared for it in case.status.findings if it.cleared and not it.dismissed]
    if case.claimed:
        _shut_again(case)
        case.say("waits for the repair of its machine for another node")
    elif over and not is_over(case.turn, max(over), case.turn.policy.healthy_delay):
        _shut_again(case)
        case.say(f"no finding remains; returned to service after {case.turn.policy.spec.healthy_delay}")
    elif not case.answers:
        _shut_again(case)
        case.say("waits until slurmd answers")
    else:
        case.enter("Recovered", "returned to service")
        give_back(case)


def new_machine(case: Case) -> None:
    """End findings that another machine disproves."""
    machine = case.node.machine
    made = machine.metadata.creation_timestamp if machine else None
    over = [it for it in case.active if it.proof == "machine" and made and it.last_seen and made > it.last_seen]
    if over:
        case.dismiss(*over)


def job_name(node: str, check: str, now: datetime) -> str:
    """Name a test so that it is started once: by node, check and the second of its start."""
    mark = hashlib.sha256(f"{node}/{check}".encode()).hexdigest()[:6]
    words = re.sub(r"[^a-z0-9]+", "-", f"{node}-{check}".lower())[:_MAX_WORDS_CHARS].strip("-")
    return f"health-{words}-{mark}-{int(now.timestamp())}"


def _started(job: str) -> datetime:
    return datetime.fromtimestamp(int(job.rpartition("-")[2]), UTC)


def _test(case: Case, finding: Finding, rule: Rule) -> None:
    node, job, turn = case.node, case.status.test, case.turn
    mine = job.rpartition("-")[0] == job_name(node.name, finding.check, turn.now).rpartition("-")[0]
    if not mine:
        _start(case, finding)
        return
    result = node.test.result if node.test and node.test.job == job else None
    detail = node.test.detail if node.test else ""
    age = turn.since(_started(job))
    if result == "passed":
        case.dismiss(finding)
        go_on(case)
    elif result == "failed":
        _failed(case, rule, f"the test {finding.check} failed: {detail}", age)
    elif result == "error":
        _not_carried_out(case, finding, detail, age)
    elif age >= turn.policy.test_timeout:
        _failed(case, rule, f"the test {finding.check} did not end in time", age)
    elif result == "running":
        case.say(f"{finding.check} runs on it")
    else:
        _run(case, finding, job)


def _start(case: Case, finding: Finding) -> None:
    if not case.answers:
        if is_over(case.turn, case.status.since, case.turn.policy.test_timeout):
            ladder.failed(case, "slurmd did not come back")
        else:
            case.say("waits until slurmd answers, to be tested")
        return
    job = job_name(case.name, finding.check, case.turn.now)
    case.change(test=job)
    _run(case, finding, job)


def _run(case: Case, finding: Finding, job: str) -> None:
    """Ask for the test once more; its name makes that harmless."""
    node = case.node
    shut = reasons.standing(node.slurm, case.status.reason) == "ours"
    if finding.proof == "slurmTest" and case.turn.view.can_reserve:
        if shut:
            case.act(Reserve(node.name))
    else:
        _shut_again(case)
    case.act(RunTest(node.name, finding.check, finding.source, job))
    case.say(f"{finding.check} runs on it")


def _failed(case: Case, rule: Rule, why: str, age: float) -> None:
    if rule.action == "repair":
        _shut_again(case)
        ladder.failed(case, why)
    elif age < _pause(case, AGAIN_AFTER_FAILURE):
        _shut_again(case)
        case.say(f"{why}; it is repeated")
    else:
        _repeat(case)


def _not_carried_out(case: Case, finding: Finding, detail: str, age: float) -> None:
    if is_over(case.turn, case.status.since, case.turn.policy.test_timeout):
        _shut_again(case)
        case.enter(
            "OutOfService", f"the test {finding.check} could not be run: {detail}; manual action is required"
        )
    elif age < _pause(case, AGAIN_AFTER_ERROR):
        case.say(f"the test {finding.check} could not be run and is repeated: {detail}")
    else:
        _repeat(case)


def _pause(case: Case, shortest: float) -> float:
    """How long after its start a test is repeated: each time twice as long, for each costs a dozen writes."""
    since = case.status.since
    before = (_started(case.status.test) - since).total_seconds() if since else 0.0
    return min(max(shortest, before), _MAX_AGAIN_S)


def _repeat(case: Case) -> None:
    case.change(test="")
    go_on(case)


def _wait(case: Case, wanted: list[Wanted]) -> None:
    """Wait for what no test can check; after a repair not for ever."""
    _shut_again(case)
    repair = any(rule.action == "repair" for _, rule in wanted)
    if repair and is_over(case.turn, case.status.since, case.turn.policy.test_timeout):
        ladder.failed(case, f"{names_of(wanted)} is still there")
    else:
        case.say(f"drained until {names_of(wanted)} is over")


def _shut_again(case: Case) -> None:
    """End the private reservation, in which the node is open: drained first, so that no job slips in."""
    if case.node.reserved:
        case.drain()
        case.act(Unreserve(case.name))
