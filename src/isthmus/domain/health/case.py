"""One node in one decision: what is known of it, its record as it becomes, and what is to be done.

Steps of the decision change `Case.status` and add to `Acts`; in the end, a record that differs is written first.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from isthmus.domain.health import findings, reasons
from isthmus.domain.health.actions import Action, Drain, Notify, Record, Release
from isthmus.domain.health.limits import Budget
from isthmus.domain.health.policies import Policy, Rule
from isthmus.domain.health.view import ClusterView, NodeView, Observation
from isthmus.domain.operator.nodeset.drains import is_free
from isthmus.model.health import Finding, NodeHealthStatus, Phase
from isthmus.model.slurm import Node as SlurmNode

_QUIET: Final = frozenset({"Recovered", "Testing", "Repairing"})
"""Phases that are no reason to worry."""

TOLD_AGAIN_S: Final = 120.0
"""Within so many seconds another process takes over."""

Wanted = tuple[Finding, Rule]


class Acts:
    """What is to be done, in an order in which a crash between any two is harmless."""

    def __init__(self) -> None:
        self.notices: list[Action] = []
        self._drains: dict[str, list[str]] = {}
        self._releases: dict[str, list[str]] = {}
        self.others: list[Action] = []
        self.again: list[Action] = []
        """What may have been notified already."""
        self.afterwards: list[Action] = []
        """Records of what has been done when all before it has."""

    def drain(self, node: str, reason: str) -> None:
        self._drains.setdefault(reason, []).append(node)

    def release(self, node: str, operators_reason: str) -> None:
        self._releases.setdefault(operators_reason, []).append(node)

    def ordered(self, records: Iterable[Record]) -> list[Action]:
        """Records and notifications first; then drains before anything that resumes a node."""
        return [
            *records,
            *self.notices,
            *(Drain(tuple(nodes), reason) for reason, nodes in self._drains.items()),
            *self.others,
            *(Release(tuple(nodes), reason) for reason, nodes in self._releases.items()),
            *self.afterwards,
            *self.again,
        ]


class Pass:
    """What all nodes of one decision share."""

    def __init__(self, view: ClusterView, policy: Policy) -> None:
        self.view = view
        self.policy = policy
        self.now = view.now
        self.budget = Budget(policy, view.nodes.values())
        self.acts = Acts()
        self.storms: Mapping[str, datetime] = {}
        self.rebooting = set(view.rebooting)
        self.claimed_machines: set[str] = set()
        """Machines on which a rung is at work that touches all nodes there."""

    @property
    def passive(self) -> bool:
        """Whether nothing may be begun."""
        return self.policy.spec.paused or self.policy.spec.mode == "shadow"

    def since(self, moment: datetime | None) -> float:
        """Seconds that have passed; none if it is not known since when."""
        return (self.now - moment).total_seconds() if moment else 0.0


class Case:
    """A node with findings."""

    def __init__(self, node: NodeView, turn: Pass, claim: Observation | None = None) -> None:
        self.node = node
        self.turn = turn
        self.before = node.health.status if node.health else NodeHealthStatus()
        self.status = self.before
        self.claimed = claim is not None
        """Whether its machine is to go down for another node, perhaps now: it must not be opened."""
        self.seen = (*node.observations, claim) if claim else node.observations
        self._merge()

    def _merge(self) -> None:
        before, turn = self.before, self.turn
        held = bool(before.reason) and before.phase != "Recovered"
        found = findings.merge(
            before.findings, self._counting(), now=turn.now, held=held, listening=turn.view.slurm_in_touch
        )
        if held and self.node.passed:
            found = findings.passed(found, self._passes(), now=turn.now)
        if found is not before.findings:
            self.change(findings=found)
        if found:
            machine = self.node.machine.metadata.name if self.node.machine else ""
            nodeset, block = self.node.nodeset or before.nodeset, self.node.block or before.block
            self.change(machine=machine or before.machine, nodeset=nodeset, block=block)

    def _counting(self) -> Iterable[Observation]:
        """Observations without those that a rule ignores."""
        if not self.turn.policy.rules:
            return self.seen
        rule_for = self.turn.policy.rule_for
        return [it for it in self.seen if rule_for(findings.as_finding(it)).action != "ignore"]

    def _passes(self) -> dict[str, datetime]:
        """Checks that have passed: by name, or all of this node if its drain is one that a check returns."""
        passed = dict(self.node.passed)
        for whose, at in self.node.passed.items():
            if self.status.reason.startswith(whose):
                passed.update(dict.fromkeys((it.check for it in self.status.findings), at))
        return passed

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def held(self) -> bool:
        """Whether a reason of ours is on the node, or is to be lifted from it."""
        return bool(self.status.reason)

    @property
    def active(self) -> tuple[Finding, ...]:
        return findings.active(self.status.findings)

    @property
    def wanted(self) -> list[Wanted]:
        """Findings for which the node is to be shut, with their rules; those to be repaired first."""
        rule_for = self.turn.policy.rule_for
        found = [(it, rule_for(it)) for it in self.active]
        found = [(it, rule) for it, rule in found if rule.shuts and it.count >= rule.confirmations]
        return sorted(found, key=lambda it: it[1].action != "repair")

    @property
    def idle(self) -> bool:
        """Whether Slurm runs no job there and starts none."""
        return is_idle(self.node.slurm)

    @property
    def answers(self) -> bool:
        """Whether slurmd is there to run a test or a job."""
        node, pod = self.node.slurm, self.node.pod
        if node is None or not {"DOWN", "NOT_RESPONDING", "FAIL"}.isdisjoint(node.state):
            return False
        return pod is None or (self.node.pod_ready and not pod.leaving)

    def change(self, **fields: Any) -> None:
        self.status = replace(self.status, **fields)

    def say(self, message: str) -> None:
        """Report why nothing happens."""
        message = findings.sanitised(message)
        if message != self.status.message:
            self.change(message=message)

    def enter(self, phase: Phase, message: str, *, quietly: bool = False) -> None:
        """Enter a phase, and notify once."""
        message = findings.sanitised(message)
        if phase != self.status.phase:
            self.change(phase=phase, since=self.turn.now)
            if not quietly:
                notice = Notify(self.name, phase, message, warning=phase not in _QUIET)
                self.turn.acts.notices.append(notice)
        self.say(message)

    def tell_again(self) -> None:
        """Notify of a new phase again: the process that recorded it may have ended before it did."""
        status = self.status
        recorded = bool(status.phase) and status.phase == self.before.phase and status.since is not None
        if recorded and not is_over(self.turn, status.since, TOLD_AGAIN_S):
            notice = Notify(self.name, str(status.phase), status.message, warning=status.phase not in _QUIET)
            self.turn.acts.again.append(notice)

    def act(self, action: Action) -> None:
        self.turn.acts.others.append(action)

    def drain(self) -> None:
        """Ask Slurm to drain it with the recorded reason; when that was seen to be so is no longer known."""
        self.change(drained=None)
        self.turn.acts.drain(self.name, self.status.reason)

    def let_go(self) -> None:
        """Note that we hold the node no more, in whatever way that came about."""
        self.change(reason="", drained=None, tried=0, test="")
        self.end_step("given up")

    def end_step(self, outcome: str) -> None:
        """Note how the rung that is at work has ended, if there is one."""
        steps = self.status.steps
        if steps and steps[-1].ended is None:
            ended = replace(steps[-1], ended=self.turn.now, outcome=findings.sanitised(outcome))
            self.change(steps=(*steps[:-1], ended))

    def dismiss(self, *which: Finding) -> None:
        ended = {(it.source, it.check) for it in which}
        self.change(
            findings=tuple(
                findings.dismissed(it, self.turn.now) if (it.source, it.check) in ended else it
                for it in self.status.findings
            )
        )

    def reason_for(self, finding: Finding) -> str:
        """The words for Slurm: the source's own, else ours."""
        told = (it.reason for it in self.seen if it.source == finding.source and it.check == finding.check)
        return findings.sanitised(next(filter(None, told), ""), reasons.MAX_CHARS) or reasons.drain_text(finding)


def is_idle(node: SlurmNode | None) -> bool:
    """Whether no job is on a node and none can come. What Slurm does not list proves nothing."""
    if node is None or not is_free(node):
        return False
    return node.alloc_cpus == 0 or {"DOWN", "NOT_RESPONDING"} <= set(node.state)


def names_of(wanted: Iterable[Wanted]) -> str:
    return ", ".join(it.check for it, _ in wanted)


def is_over(turn: Pass, moment: datetime | None, seconds: float) -> bool:
    """Whether so many seconds have passed since a moment."""
    return moment is not None and turn.now - moment >= timedelta(seconds=seconds)
