"""What checks say of nodes: the results in the status of an ActiveCheck, and the reactions that it asks for.

A node stays in the status until it passes. A run that does not test it changes nothing, for a failed node is
drained and later runs pass it by; and neither an error nor a cancelled job takes a failure back.
"""

from collections.abc import Container, Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from isthmus.domain.health.activechecks.plan import NodeVerdict
from isthmus.domain.languages.hostlist import natural_key
from isthmus.model.activecheck import MAX_NODES, ActiveCheck, CheckedNode, NodeResult, Reactions

_MAX_TEXT = 512


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One node that a check has something to say of, for the observations of the health loop."""

    check: str
    node: str
    result: NodeResult
    """Failed is a finding. Error is not: the check has no result. Passed exists only for its reaction."""
    evidence: str = ""
    at: datetime
    wants: Literal["", "comment", "drain", "undrain"] = ""
    """What the check asks for. Without a reaction it is empty: the check may not even be about its node."""
    reason: str = ""
    """The reason or comment for Slurm; for undrain, the beginning of the reasons that it lifts."""
    notify: bool = False
    receivers: tuple[str, ...] = ()
    """Receivers to notify; all if empty."""


def results(check: ActiveCheck) -> tuple[CheckResult, ...]:
    """What a check says of nodes now."""
    return tuple(_result(check, it) for it in check.status.nodes)


def _result(check: ActiveCheck, node: CheckedNode) -> CheckResult:
    reactions = _reactions(check, node.result)
    wants, reason = _wanted(check, reactions, node)
    notify = reactions.notify
    return CheckResult(
        check=check.metadata.name,
        node=node.node,
        result=node.result,
        evidence=node.evidence,
        at=node.at or datetime.fromtimestamp(0, UTC),
        wants=wants,
        reason=reason,
        notify=notify is not None,
        receivers=notify.receivers if notify else (),
    )


def _reactions(check: ActiveCheck, result: NodeResult) -> Reactions:
    found = {"Failed": check.spec.failure_reactions, "Passed": check.spec.success_reactions}.get(result)
    return found or Reactions()


def _wanted(
    check: ActiveCheck, reactions: Reactions, node: CheckedNode
) -> tuple[Literal["", "comment", "drain", "undrain"], str]:
    kind = "slurm_job" if check.spec.check_type == "slurmJob" else "k8s_job"
    told = f"{check.metadata.name}: job {node.job_id} [{kind}]"
    drain, comment, undrain = (
        reactions.drain_slurm_node,
        reactions.comment_slurm_node,
        reactions.undrain_slurm_node,
    )
    if drain and drain.drain_reason_prefix:
        return "drain", f"{drain.drain_reason_prefix} {told}"
    if comment and comment.comment_prefix:
        return "comment", f"{comment.comment_prefix} {told}"
    if undrain:
        return "undrain", undrain.drain_reason_prefix or _own_prefix(check)
    return "", ""


def _own_prefix(check: ActiveCheck) -> str:
    """How reasons begin that this check asked for."""
    failure = check.spec.failure_reactions
    drain = failure.drain_slurm_node if failure else None
    return f"{drain.drain_reason_prefix} {check.metadata.name}:" if drain else f"{check.metadata.name}:"


def merged(
    check: ActiveCheck, verdicts: Iterable[NodeVerdict], *, there: Container[str] | None
) -> tuple[CheckedNode, ...]:
    """Put what a run says over what is known; nodes that are not `there` any more go (None: it is not known).

    The pod of a k8sJob runs anywhere, so its last run counts alone. A node that is held for it is tested by itself.
    """
    known = {it.node: it for it in check.status.nodes if check.spec.check_type == "slurmJob"}
    listed = _lists_passed(check.spec.success_reactions)
    told = _tells_passed(check.spec.success_reactions)
    for it in verdicts:
        before = known.get(it.node)
        if it.result == "Passed" and not (listed or (told and before is not None)):
            known.pop(it.node, None)
        elif not (it.result == "Error" and before is not None and before.result == "Failed"):
            known[it.node] = CheckedNode(
                node=it.node,
                result=it.result,
                job_id=it.job,
                evidence=it.evidence[:_MAX_TEXT],
                at=datetime.fromtimestamp(it.at, UTC),
            )
    kept = (it for name, it in known.items() if there is None or name in there)
    # What is wrong comes first, where not all have room.
    ranked = sorted(kept, key=lambda it: (("Failed", "Error", "Passed").index(it.result), natural_key(it.node)))
    return tuple(sorted(ranked[:MAX_NODES], key=lambda it: natural_key(it.node)))


def _lists_passed(reactions: Reactions | None) -> bool:
    return reactions is not None and any(
        (reactions.drain_slurm_node, reactions.comment_slurm_node, reactions.undrain_slurm_node)
    )


def _tells_passed(reactions: Reactions | None) -> bool:
    """Whether somebody wants to know of nodes that pass after they did not."""
    return reactions is not None and reactions.notify is not None
