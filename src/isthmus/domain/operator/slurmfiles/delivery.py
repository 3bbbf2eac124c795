"""Whether all daemons run with the current files and keys.

    changed ──► mounted in every pod (`due`) ──► slurmctld has read them ──► every node has

slurmctld restarts its counters soon after it has read its files; slurmd reports when it was started, and that
is when it read them. slurmctld is compared with the time of the change, and nodes with the time at which slurmctld
was first seen to have read it: a slurmd that started between the two was given the files of before. Files reach
slurmctld's pod first, and its side-car makes it read them. Keys have to be mounted in the pods of all nodes before,
so for them all daemons are made to read again a little later. At midnight UTC slurmctld restarts its counters
without having read anything, so what begins then proves nothing, and slurmctld is reconfigured once more.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from isthmus.domain.languages import hostlist
from isthmus.domain.operator.authkeys import KeySet
from isthmus.model.slurm import Node, Statistics

KEYS_SETTLE: Final = 5.0
"""Seconds in which kubelet updates a changed Secret in a pod that was annotated."""
DROP_SETTLE: Final = 2.0
"""The same where a key is only dropped: a daemon that reads its files too early accepts the old key for longer, and
works with all others meanwhile."""
_PUSH_AGAIN: Final = 15.0
_ANSWERS_WITHIN: Final = 5.0
"""Seconds in which slurmctld restarts its counters after a reconfigure; until then it is not asked again."""
_COUNTS_LATE: Final = 1
"""Seconds: slurmctld begins to count with the second that follows its reading, nodes have been notified by then."""
_DAY: Final = 86400
_MIDNIGHT: Final = 10
"""Seconds of a day in which slurmctld, which may be busy, surely has restarted its counters because of the date."""
_SHOWN: Final = 200

_AWAY: Final = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
_STARTING: Final = "POWERING_UP"
_SILENT: Final = frozenset({"NOT_RESPONDING", "UNKNOWN", _STARTING})
_GRACE: Final = 30.0
"""Seconds in which a node that says nothing is waited for: slurmctld may just not have asked it yet, and a slurmd
that starts may have fetched its files a moment before. One that starts later fetches them later."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a revision; times are seconds since 1970 on our clock."""

    revision: str
    now: float
    changed_at: float
    due: float
    """From when on all pods surely have the files and keys."""
    counting_since: float | None = None
    """When slurmctld last read its files; None while it cannot be asked."""
    began: float | None = None
    """The same on its own clock, which distinguishes one reading from another."""
    nodes: tuple[Node, ...] = ()
    with_pod: frozenset[str] = frozenset()
    """Names of nodes whose pod runs: they have to take it though slurmctld may not reach them."""
    refusals: Mapping[str, str] = {}
    """What the side-cars of slurmctld's pods said last when they gave up, by pod."""
    asked_at: float = 0.0
    """When we last reconfigured slurmctld, for whatever reason; 0 if never."""


class Progress(msgspec.Struct, frozen=True):
    """What was seen of a revision so far. Without it everything is found again, only later."""

    revision: str = ""
    began: float | None = None
    """When slurmctld had read its files, on its own clock, as we looked first."""
    taken_at: float | None = None
    """When slurmctld had read files since they changed, and not because of us: the side-car brought them."""
    read_at: float | None = None
    """When it was first seen to have read files and keys that all pods had."""


class Verdict(msgspec.Struct, frozen=True):
    """How far a revision has come."""

    state: Literal["applied", "delivering", "rejected", "unknown"]
    message: str
    push: bool = False
    """Let slurmctld and all nodes read their files again."""
    read: bool = False
    """slurmctld has read the files; nodes may not have yet."""


_NOTHING: Final = Progress()


def settle(keys: KeySet | None) -> float:
    """Seconds after which kubelets have brought these keys into all pods."""
    return DROP_SETTLE if keys and len(keys.keys) == 1 else KEYS_SETTLE


def advance(known: Progress, seen: Delivery) -> Progress:
    """Remember what is seen now, beside what was known."""
    since = seen.counting_since
    progress = known if known.revision == seen.revision else Progress(seen.revision, seen.began)
    if since is None:
        return progress
    began = seen.began if progress.began is None else progress.began
    if seen.began is not None and seen.began % _DAY < _MIDNIGHT:
        return msgspec.structs.replace(progress, began=began)
    # What was read in the very second of the change is mostly what was there before.
    again = since > int(seen.changed_at) or progress.began not in {None, seen.began}
    taken_at, read_at = progress.taken_at, progress.read_at
    if taken_at is None and again and not _is_answer(seen, since):
        taken_at = since
    if read_at is None and taken_at is not None and since >= int(seen.due):
        read_at = since
    return Progress(seen.revision, began, taken_at, read_at)


def judge(seen: Delivery, known: Progress = _NOTHING) -> Verdict:
    """How far a revision has come, and what to do about it."""
    for pod, said in sorted(seen.refusals.items()):
        revision, _, why = said.partition("\n")
        if revision.strip() == seen.revision:
            return Verdict("rejected", f"slurmctld in {pod} rejects it: {_one_line(why)}")
    since, progress = seen.counting_since, advance(known, seen)
    if since is None:
        return Verdict("unknown", "slurmctld does not answer, so it is unknown whether it has loaded it")
    if progress.taken_at is None:
        unclear = since >= int(seen.changed_at) - _COUNTS_LATE and seen.now - seen.changed_at >= _PUSH_AGAIN
        return Verdict("delivering", "slurmctld has not read it yet", push=unclear and not _is_asked(seen))
    if progress.read_at is None:
        due = seen.now >= seen.due and not _is_asked(seen)
        return Verdict("delivering", "new keys are being mounted in all pods", push=due, read=True)
    if behind := _behind(seen, progress.read_at):
        shown = hostlist.fold(it.name for it in behind)[:_SHOWN]
        # Nodes that start are not reached. While a gang boots, slurmctld has better things to do.
        reached = any(_STARTING not in it.state for it in behind)
        return Verdict(
            "delivering",
            f"{len(behind)} of {len(seen.nodes)} nodes have not loaded it yet: {shown}",
            push=reached and seen.now - max(since, seen.due) >= _PUSH_AGAIN and not _is_asked(seen),
            read=True,
        )
    return Verdict("applied", f"slurmctld and {len(seen.nodes)} nodes run with revision {seen.revision}", read=True)


def counting_since(statistics: Statistics, *, now: float) -> float | None:
    """When slurmctld began to count, on our clock; its own may be wrong."""
    began, its_now = statistics.since.value, statistics.now.value
    if not began or not its_now:
        return None
    # Whole seconds on its side: rounded, so that a clock that agrees is not moved.
    return began + round(now - its_now) if abs(now - its_now) >= 1.5 else began  # noqa: PLR2004 - seconds


def _is_asked(seen: Delivery) -> bool:
    """Whether slurmctld has just been reconfigured, and need not have read its files yet."""
    return seen.now - seen.asked_at < _ANSWERS_WITHIN


def _is_answer(seen: Delivery, since: float) -> bool:
    """Whether slurmctld may have read because of us, and so what it had, as the side-car was not there yet.

    Given time, the side-car has brought the new files, or has said why slurmctld refuses them.
    """
    by_us = int(seen.asked_at) <= since <= seen.asked_at + _ANSWERS_WITHIN and seen.asked_at >= seen.changed_at
    return by_us and seen.now - seen.changed_at < _PUSH_AGAIN


def _behind(seen: Delivery, read_at: float) -> list[Node]:
    """List nodes that run but have not been started, and so have not read anything, since slurmctld has."""
    since = max(int(seen.due), read_at - _COUNTS_LATE)
    return [node for node in seen.nodes if _runs(node, seen) and (node.slurmd_start_time.value or 0) < since]


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
