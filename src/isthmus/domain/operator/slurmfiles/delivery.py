"""Whether everybody runs with the files and keys as they are now.

    changed ──► mounted in every pod (`due`) ──► slurmctld has read them ──► every node has

slurmctld begins to count anew when it reads its files; slurmd tells when it was started, which is when it read
them. Both are compared with the time of the change. Files reach slurmctld's pod first, and its side-car makes it
read them. Keys have to be mounted in the pods of all nodes before, so for them everybody is made to read again a
little later.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from isthmus.domain.languages import hostlist
from isthmus.model.slurm import Node, Statistics

KEYS_SETTLE: Final = 10.0
"""Seconds in which kubelet brings a changed Secret into a pod that was told of it."""
_PUSH_AGAIN: Final = 15.0
_SHOWN: Final = 200

_AWAY: Final = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
_SILENT: Final = frozenset({"NOT_RESPONDING", "UNKNOWN"})
_GRACE: Final = 30.0
"""Seconds in which a node that says nothing is waited for: slurmctld may just not have asked it yet."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a revision; times are seconds since 1970 on our clock."""

    revision: str
    now: float
    changed_at: float
    due: float
    """From when on all pods surely have the files and keys."""
    counting_since: float | None = None
    """When slurmctld last read its files; None while it cannot be asked."""
    nodes: tuple[Node, ...] = ()
    with_pod: frozenset[str] = frozenset()
    """Names of nodes whose pod runs: they have to take it though slurmctld may not reach them."""
    refusals: Mapping[str, str] = {}
    """What the side-cars of slurmctld's pods said last when they gave up, by pod."""


class Verdict(msgspec.Struct, frozen=True):
    """How far a revision has come."""

    state: Literal["applied", "delivering", "rejected", "unknown"]
    message: str
    push: bool = False
    """Let slurmctld and all nodes read their files again."""


def judge(seen: Delivery) -> Verdict:
    """Tell how far a revision has come, and what to do about it."""
    for pod, said in sorted(seen.refusals.items()):
        revision, _, why = said.partition("\n")
        if revision.strip() == seen.revision:
            return Verdict("rejected", f"slurmctld in {pod} refuses it: {_one_line(why)}")
    since = seen.counting_since
    if since is None:
        return Verdict("unknown", "slurmctld cannot be asked whether it has taken it")
    if since < int(seen.changed_at):
        return Verdict("delivering", "slurmctld has not read it yet")
    if since < int(seen.due):
        return Verdict("delivering", "new keys are being mounted in all pods", push=seen.now >= seen.due)
    if behind := _behind(seen):
        shown = hostlist.fold(behind)[:_SHOWN]
        return Verdict(
            "delivering",
            f"{len(behind)} of {len(seen.nodes)} nodes have not taken it yet: {shown}",
            push=seen.now - max(since, seen.due) >= _PUSH_AGAIN,
        )
    return Verdict("applied", f"slurmctld and {len(seen.nodes)} nodes run with revision {seen.revision}")


def counting_since(statistics: Statistics, *, now: float) -> float | None:
    """Tell on our clock when slurmctld began to count; its own may go wrong."""
    began, its_now = statistics.since.value, statistics.now.value
    if not began or not its_now:
        return None
    # Whole seconds on its side: rounded, so that a clock that agrees is not moved.
    return began + round(now - its_now) if abs(now - its_now) >= 1.5 else began  # noqa: PLR2004 - seconds


def _behind(seen: Delivery) -> list[str]:
    """List nodes that run but have not been started, and so have not read anything, since it was due."""
    due = int(seen.due)
    return [node.name for node in seen.nodes if _runs(node, seen) and (node.slurmd_start_time.value or 0) < due]


def _runs(node: Node, seen: Delivery) -> bool:
    if "EXTERNAL" in node.state:
        return False
    if node.name in seen.with_pod:
        return True
    if not _AWAY.isdisjoint(node.state):
        return False
    waited = seen.now - max(seen.counting_since or 0.0, seen.due)
    return _SILENT.isdisjoint(node.state) or waited < _GRACE


def _one_line(text: str) -> str:
    return " ".join(text.split())
