"""The plan of a run: which Slurm jobs it consists of, and what became of each.

It is written into the Job before anything is submitted, and after each step, so that another process can go on.

    parts:  n1 ─ job 17 ─ passed        a check of every worker: one part for each
            n2 ─ job 18 ─ failed
            n[1-4] ─ job 19 ─ failed    a job on several nodes; its halves are appended as further parts
            n[1-2] ─ …

Parts are only ever appended, so the place of a part is its name, and its submission is keyed by it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from isthmus.domain.health.activechecks import bisection
from isthmus.domain.health.activechecks.bisection import Blame, Group
from isthmus.domain.health.activechecks.outcomes import Outcome
from isthmus.domain.languages import hostlist
from isthmus.model.activecheck import RunStatus

MAX_EVIDENCE: Final = 200
_MAX_PARTS: Final = 256
"""Parts that a search for the guilty nodes may have: enough for one bad node, or pair, of thousands."""


class Part(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One Slurm job of a run."""

    nodes: str = ""
    """A host list; empty while Slurm has yet to choose them."""
    job: int = 0
    """Its id; 0 while it is not known to be submitted."""
    outcome: Literal["", "passed", "failed", "error", "cancelled"] = ""
    evidence: str = ""
    at: int = 0
    """When it ended, in seconds since 1970."""

    @property
    def group(self) -> Group:
        return bisection.group(hostlist.expand(self.nodes))

    @property
    def is_open(self) -> bool:
        return not self.outcome


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a run does, and how far it is."""

    parts: tuple[Part, ...] = ()
    each: bool = False
    """Whether each part is for one node of its own; else the first is on several, and the others search them."""
    least: int = 1
    """How many nodes a job needs at least."""
    user: str = ""
    partition: str = ""
    begun: int = 0
    """When it was made, in seconds since 1970."""

    @property
    def unsubmitted(self) -> Iterator[tuple[int, Part]]:
        return ((at, part) for at, part in enumerate(self.parts) if part.is_open and not part.job)

    @property
    def running(self) -> list[int]:
        """Jobs whose end is not known."""
        return [part.job for part in self.parts if part.job and part.is_open]

    @property
    def jobs(self) -> list[int]:
        return [part.job for part in self.parts if part.job]

    @property
    def is_over(self) -> bool:
        return all(not part.is_open for part in self.parts)


class End(msgspec.Struct, frozen=True):
    """How a job ended."""

    outcome: Outcome
    evidence: str = ""
    at: int = 0
    nodes: str = ""
    """Where it ran; empty if that is not known. After a node failure, the node that failed alone."""


class NodeVerdict(msgspec.Struct, frozen=True):
    """What a run says of one node."""

    node: str
    result: Literal["Failed", "Error", "Passed"]
    job: str
    """The Slurm job; for pods, the Job."""
    evidence: str
    at: int


def encode(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()


def decode(text: str) -> Plan:
    return msgspec.json.decode(text, type=Plan)


def owned(plan: Plan, user: str) -> Plan:
    """Note who runs the jobs."""
    return msgspec.structs.replace(plan, user=user)


def submitted(plan: Plan, jobs: Mapping[int, int]) -> Plan:
    """Note the jobs of parts, by the places of the parts."""
    parts = [_with(part, job=jobs.get(at, part.job)) for at, part in enumerate(plan.parts)]
    return msgspec.structs.replace(plan, parts=tuple(parts))


def refused(plan: Plan, why: Mapping[int, str], *, now: int) -> Plan:
    """Note that parts cannot be submitted."""
    parts = [
        _with(part, outcome="error", evidence=why[at][:MAX_EVIDENCE], at=now) if at in why else part
        for at, part in enumerate(plan.parts)
    ]
    return msgspec.structs.replace(plan, parts=tuple(parts))


def ended(plan: Plan, ends: Mapping[int, End]) -> Plan:
    """Note how jobs ended, by their ids."""
    parts = []
    for part in plan.parts:
        end = ends.get(part.job) if part.job and part.is_open else None
        if end is None:
            parts.append(part)
            continue
        told = end.evidence[:MAX_EVIDENCE]
        parts.append(Part(end.nodes or part.nodes, part.job, end.outcome, told, end.at))
    return msgspec.structs.replace(plan, parts=tuple(parts))


def abandoned(plan: Plan, *, why: str, now: int) -> Plan:
    """End what is not over: it is not known how it would have gone."""
    open_parts = {at: why for at, part in enumerate(plan.parts) if part.is_open}
    return refused(plan, open_parts, now=now)


def searched(plan: Plan) -> Plan:
    """Append the parts that a search for the guilty nodes needs next."""
    known = {part.group for part in plan.parts}
    wanted = [it for it in blamed(plan).pending if it not in known][: max(0, _MAX_PARTS - len(plan.parts))]
    parts = (*plan.parts, *(Part(hostlist.fold(it)) for it in dict.fromkeys(wanted)))
    return msgspec.structs.replace(plan, parts=parts)


def blamed(plan: Plan) -> Blame:
    """Who is to blame, if a job on several nodes failed."""
    if plan.each or not plan.parts or not plan.parts[0].nodes:
        return Blame()
    results: dict[Group, Outcome] = {}
    for part in plan.parts:
        if part.outcome:
            results[part.group] = part.outcome
    return bisection.blame(plan.parts[0].group, results, least=plan.least)


def verdicts(plan: Plan) -> tuple[NodeVerdict, ...]:
    """What a run says of each node that it tested; what was cancelled says nothing."""
    if plan.each:
        return tuple(_verdict(part.nodes, part) for part in plan.parts if part.nodes and _speaks(part))
    if not plan.parts or not plan.parts[0].nodes or not _speaks(plan.parts[0]):
        return ()
    first, last = plan.parts[0], {part.group: part for part in plan.parts}
    if first.outcome != "failed" or len(first.group) == 1:
        return tuple(_verdict(name, first) for name in first.group)
    found = blamed(plan)
    said: dict[str, NodeVerdict] = {}
    for culprits in found.culprits:
        part = last[culprits]
        for name in culprits:
            others = [it for it in culprits if it != name]
            together = f" together with {hostlist.fold(others)}" if others else ""
            said[name] = NodeVerdict(name, "Failed", _job(part), f"{part.evidence}{together}", part.at)
    for nodes in found.cleared:
        text = f"{last[nodes].evidence} with {hostlist.fold(nodes)}, and not again in parts"
        _error(said, nodes, last[nodes], text)
    for nodes in (*found.unknown, *found.pending):
        part = last.get(nodes, first)
        text = f"{first.evidence} with {first.nodes}; which node it is was not found: {part.evidence or 'not run'}"
        _error(said, nodes, part, text)
    passed = (name for name in first.group if name not in said)
    return (*said.values(), *(NodeVerdict(name, "Passed", _job(first), "", first.at) for name in passed))


def status(plan: Plan) -> RunStatus:
    """How a run stands as a whole."""
    outcomes = {part.outcome for part in plan.parts}
    if "" in outcomes:
        return "InProgress"
    if "failed" in outcomes:
        return "Failed"
    if "error" in outcomes or not plan.parts:
        return "Error"
    return "Cancelled" if "cancelled" in outcomes else "Complete"


def _job(part: Part) -> str:
    return str(part.job) if part.job else ""


def _speaks(part: Part) -> bool:
    return part.outcome in {"passed", "failed", "error"}


def _verdict(node: str, part: Part) -> NodeVerdict:
    result: Literal["Failed", "Error", "Passed"] = "Error"
    if part.outcome == "failed":
        result = "Failed"
    elif part.outcome == "passed":
        result = "Passed"
    return NodeVerdict(node, result, _job(part), part.evidence, part.at)


def _error(said: dict[str, NodeVerdict], nodes: Iterable[str], part: Part, text: str) -> None:
    for name in nodes:
        said.setdefault(name, NodeVerdict(name, "Error", _job(part), text[:MAX_EVIDENCE], part.at))


def _with(part: Part, **changes: object) -> Part:
    return msgspec.structs.replace(part, **changes)
