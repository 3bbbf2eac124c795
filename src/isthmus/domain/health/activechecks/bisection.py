"""Which nodes are to blame when a job on several of them fails.

    n1 n2 n3 n4  failed          both halves are run again
    n1 n2        passed
          n3 n4  failed          … and so on, until single nodes are left
          n3     failed

Where both halves pass, the fault is between them, such as a link. Then parts of one half are run with parts of the
other until two nodes are left: a failing pair. If nothing fails again, nobody is to blame.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from isthmus.domain.health.activechecks.outcomes import Outcome
from isthmus.domain.languages.hostlist import natural_key

Group: TypeAlias = tuple[str, ...]
"""Nodes that run one job together, sorted."""


class Blame(msgspec.Struct, frozen=True):
    """What is known so far."""

    culprits: tuple[Group, ...] = ()
    """Single nodes that fail, and groups that fail together and cannot be divided further."""
    unknown: tuple[Group, ...] = ()
    """Groups of which it is not known, because a run of them ended in an error or was cancelled."""
    cleared: tuple[Group, ...] = ()
    """Groups that failed, and did not fail again in parts."""
    pending: tuple[Group, ...] = ()
    """Groups to run next; some of them may be under way."""


def group(names: Iterable[str]) -> Group:
    return tuple(sorted(set(names), key=natural_key))


def blame(nodes: Group, results: Mapping[Group, Outcome], *, least: int = 1) -> Blame:
    """Find who is to blame for a job on these nodes, from the results so far; `least` nodes can run it."""
    match results.get(nodes):
        case None:
            return Blame(pending=(nodes,))
        case "passed":
            return Blame()
        case "failed":
            return _divided(nodes, results, least=least)
        case _:
            return Blame(unknown=(nodes,))


def _divided(nodes: Group, results: Mapping[Group, Outcome], *, least: int) -> Blame:
    if len(nodes) < 2 * least or len(nodes) == 1:
        return Blame(culprits=(nodes,))
    middle = len(nodes) // 2
    halves = (nodes[:middle], nodes[middle:])
    found = _sum(blame(half, results, least=least) for half in halves)
    if found != Blame():
        return found
    return _between(*halves, results) or Blame(cleared=(nodes,))


def _between(one: Group, other: Group, results: Mapping[Group, Outcome]) -> Blame | None:
    """Look for the fault between two groups that pass by themselves and fail together; None if it is gone."""
    if len(one) == len(other) == 1:
        return Blame(culprits=(group((*one, *other)),))
    found = Blame()
    for left in _halves(one):
        for right in _halves(other):
            both = group((*left, *right))
            match results.get(both):
                case None:
                    found = _sum((found, Blame(pending=(both,))))
                case "failed":
                    found = _sum((found, _between(left, right, results) or Blame(cleared=(both,))))
                case "passed":
                    pass
                case _:
                    found = _sum((found, Blame(unknown=(both,))))
    return None if found == Blame() else found


def _halves(nodes: Group) -> Sequence[Group]:
    middle = len(nodes) // 2
    return (nodes[:middle], nodes[middle:]) if middle else (nodes,)


def _sum(parts: Iterable[Blame]) -> Blame:
    known = tuple(parts)
    return Blame(
        culprits=tuple(it for part in known for it in part.culprits),
        unknown=tuple(it for part in known for it in part.unknown),
        cleared=tuple(it for part in known for it in part.cleared),
        pending=tuple(it for part in known for it in part.pending),
    )
